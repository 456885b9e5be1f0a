"""The protocol without I/O: JSON-RPC messages, the vocabulary, the versions, and the server's side of a session.

Nothing in this package opens a socket, starts a task or reads a clock; transports and the dispatcher do that.
Start reading at `session.py`, which receives messages and says what to do with each, and at `versions/table.py`.
"""
