"""What carries messages, and who may connect: framing, limits and access, but no protocol rules.

`stdio`, `websocket/` and `memory` have channels; `process` talks to a server in a child process (`child`). `address`,
`accepting` and `systemd` open and share sockets. `guards` checks `Host` and `Origin`, `authentication` finds the user.
The HTTP server is in `mcpd.server.http` and the HTTP client in `mcpd.client.http`, but their `routes` and `challenge`
are here. The interfaces are in `mcpd.protocol.channel`: start reading there, then in `stdio`.
"""
