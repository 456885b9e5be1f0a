"""Tools in processes of their own: `@server.tool(process=True)`. Loaded with the first such tool.

A *nursery* is a process without threads that has imported the target and forks *workers*, each of which runs one call
at a time. `callee.py` is what a tool calls instead of its function, `pool.py` has the workers of this process,
`nursery.py` and `worker.py` run in the other processes, and `messages.py` is what they say. Start reading in
`callee.py`.
"""
