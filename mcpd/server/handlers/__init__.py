"""The handlers of requests, one function for each method of the specification, and the wrappers around them.

They know the newest protocol version only; `protocol/versions` translates for older clients. Start reading in
`methods.py` (the handlers) and `table.py` (which handler serves which method). `middleware`, `limits` and `access` wrap
handlers; the work itself is done by the entries in `registry/`.
"""
