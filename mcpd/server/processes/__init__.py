"""Tools in processes of their own: `@server.tool(process=True)`. Loaded with the first such tool.

In the server, a tool calls `callee.py` instead of its function, `pool.py` lends a worker to each call, and
`starting.py` starts workers. In the other processes, `loading.py` imports the target, `fork_server.py` forks workers,
and `worker.py` runs one call at a time; `relay.py` has its request, and `link.py` the connection to the server.
`messages.py` has the messages. Start reading in `callee.py`.
"""
