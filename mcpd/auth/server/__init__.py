"""The login server: an authorization server for the MCP endpoint of the same process.

It is optional and loaded by `mcpd serve --auth-server auth.toml`. It issues codes with PKCE, asks for consent and signs
its own tokens. Users come from a file or from other providers.

Start reading at `LoginServer` and `AuthorizationServer` in `login_server.py`. Spec: OAuth 2.1 draft 13, RFC 7591, 7009,
8414, 8707, 9068, 9207; AUTH-120 to AUTH-155.
"""
