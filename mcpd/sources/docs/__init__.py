"""Documents as resources and as tools: the source of a folder's `docs/`, over the library in `mcpd.sources.docs`."""
