"""The low-level server of the official SDK, on which the servers of all libraries are built.

`server` is the server itself: a handler for each method. `bridge` serves it with mcpd. `session` has the context of a
request, and what a handler can send to its client. High-level servers, which turn functions into tools, are in `sdk`
and `fastmcp`. Start reading with `server`.
"""
