"""Tasks: calls of tools that continue after they were answered, in the form of 2026-07-28 and of 2025-11-25.

`extension` adds them to a server. `running` turns a call into a task, whose work uses the objects of `peer`. `registry`
has the tasks. `store` keeps them as `record` describes, on a backplane or in this process. `methods` answers clients in
one of two forms, `forms` and `legacy`. Start reading in `running.py`. A server without a tool that can
be a task loads `extension` only.
"""
