"""Tools in processes of their own: `@server.tool(process=True)`. Loaded with the first such tool.

A *nursery* is a process without threads that has imported the target and forks *workers*. A worker runs one call at a
time. A tool calls `callee.py` instead of its function, `pool.py` keeps the workers that this process uses, `nursery.py`
and `worker.py` run in the other processes, and `messages.py` has their messages. Start reading in `callee.py`.
"""
