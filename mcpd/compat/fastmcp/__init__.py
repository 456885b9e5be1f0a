"""`FastMCP` of the library `fastmcp`, served by the low-level server.

Tools, resources and prompts are components here: models with versions, tags and visibility, which mounted servers and
middleware may change. `base` is what they share. `functions` calls an author's function and converts what it returns.
Start reading with `server`.
"""
