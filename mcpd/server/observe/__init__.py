"""Observation of a server from outside: metrics, status and traces. Each is loaded only if it is used.

Start reading in `watching`, which answers requests for metrics and status; `http_thread` is its HTTP server, on a
thread of its own so that it works while the event loop is blocked. `metrics` counts calls as hooks of the sessions, and
writes the text formats. `report` is the state of the server. `control` finds running servers. The hooks are called by
`server/dispatcher`.
"""
