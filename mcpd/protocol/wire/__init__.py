"""Byte formats without I/O: newline-delimited JSON, server-sent events, HTTP headers that mirror a message, and W3C
Trace Context. Transports, the HTTP server and the client share them.
"""
