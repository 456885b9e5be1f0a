"""The protocol without I/O: JSON-RPC messages, the vocabulary, the versions, and the server's side of a session.

Nothing in this package opens a socket, starts a task or reads the time of day; transports and the dispatcher do that.
Start reading in `session.py`, which opens and closes calls, and `versions/table.py`. `methods.py` has a row for each
method, `envelope.py` the rules of `_meta`, `types/` the params and results, `channel.py` the interface of transports,
and `wire/` the byte formats. The client's side of a session is in `mcpd.client.session`.
"""
