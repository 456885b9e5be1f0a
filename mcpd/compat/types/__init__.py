"""The names of `mcp.types`, as pydantic models of our own.

`features` has what all models share, content blocks, errors, and what clients ask of servers. `client_requests` has
what servers ask of clients, and the unions of the messages that they send. It is loaded when it is first needed, since
hosts wait for a server to start. Messages that only clients or transports make are missing, and so is what belongs to
tasks.

These modules do without `from __future__ import annotations`: pydantic would compile the text of each annotation.
They have no `__all__`: every public name in them is a name of `mcp.types`.
"""
