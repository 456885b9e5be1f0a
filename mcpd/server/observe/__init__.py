"""Observation of a server from outside: metrics, status, traces and the wire log. Each is loaded only if it is used.

Start reading in `watching`, which answers requests for metrics and status; `http_thread` is its HTTP server, on a
thread of its own so that it works while the event loop is blocked. `meter` counts calls as hooks of the sessions,
`report` is the state of the server, `metrics` the text formats. `control` finds running servers. The hooks are called
by `server/dispatcher`.
"""
