"""The handlers of requests, one function for each method of the specification, and the wrappers around them.

They know the newest protocol version only; `protocol/versions` translates for older clients. Start reading in
`methods.py`: `HANDLERS` says which function serves which method, and a `HandlerTable` adds the wrappers. `middleware`,
`limits` and `access` are wrappers; the work itself is done by the entries in `registry/`.
"""
