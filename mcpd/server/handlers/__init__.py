"""The handlers of requests, one function for each method of the specification, and the wrappers around them.

They know the newest protocol version only; `protocol/versions` translates for older clients. Start reading in
`methods.py`, which has the handlers and the table of those that a server has.
"""
