"""Python functions as callables with JSON arguments: signatures, schemas, coercion, dependencies and threads.

Nothing here knows MCP: no tools, requests or clients, only functions, their annotations and their values.
Start reading in `signature.py`, whose `bind` reads a function once and returns its `Callee`.
"""
