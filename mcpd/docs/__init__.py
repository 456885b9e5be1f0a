"""Documents of a folder: read, indexed, searched. Knows nothing of MCP; `sources` makes resources and tools of it."""
