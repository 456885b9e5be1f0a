"""The login server: an authorization server for the MCP endpoint of the same process (`mcpd serve --auth-server`).

It issues codes with PKCE, asks for consent and signs its own tokens. Start reading at `LoginServer` and
`AuthorizationServer` in `login_server.py`. `endpoints` and `interaction` answer requests, `upstream` signs in with
other providers, `store` is the database. The checks of tokens belong in `mcpd.auth`. Spec: OAuth 2.1 draft 13,
RFC 7591, 7009, 8414, 8707, 9068, 9207; AUTH-120 to AUTH-155.
"""
