"""Byte formats without I/O, which transports, the HTTP server and the client share.

`ndjson` is newline-delimited JSON (stdio), `sse` server-sent events, `headers` the HTTP headers that mirror a message,
and `trace_context` the W3C Trace Context. JSON-RPC messages themselves are in `mcpd.protocol.jsonrpc`.
Start reading in `ndjson`.
"""
