"""A folder served as an MCP server: its tools, apps, resources, prompts, skills and documents.

`folder.py` builds the server; each kind of sub-folder has a module. `lookup.py` finds the folder, `configuration.py`
reads `mcpd.toml`, and `watch.py` reloads what changed. The documents are in `docs/`.

Nothing here knows of transports or the command line. Start reading at `Folder` in `folder.py`.
"""
