"""An authorization server for the one MCP endpoint beside which it runs: codes with PKCE, consent, its own tokens.

Optional and off: `mcpd serve --auth-server auth.toml` loads it. It has no users but those of a file, and what other
providers say of theirs. Spec: OAuth 2.1 draft 13, RFC 7591, 7009, 8414, 8707, 9068, 9207; decisions in AUTH-120 … 155.
"""
