"""`FastMCP` of the library `fastmcp`, served by the low-level server.

Tools, resources and prompts are components here: models with versions, tags and visibility, which mounted servers and
middleware may change. `functions` calls an author's function, and `results` converts what it returns. Start reading
with `server`.
"""
