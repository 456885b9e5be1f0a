"""Transports and access to them: framing, connections, limits and authentication, but no rules of the protocol.

`stdio`, `websocket/` and `memory` have channels; `process` connects to a server in a child process (`child`).
`address`, `accepting` and `systemd` open and share sockets. `guards` checks `Host` and `Origin`, `authentication` finds
the user. The HTTP server is in `mcpd.server.http` and the HTTP client in `mcpd.client.http`, but their `routes` and
`challenge` are here. The interfaces are in `mcpd.protocol.channel`: start reading there, then in `stdio`.
"""
