"""A server as one file that others install, and as an entry of the registry: `mcpd bundle`, `mcpd publish-info`.

`pack` makes a bundle from a target; begin reading there. `files` selects the files, `project` reads pyproject.toml,
requirements.txt and script headers, `manifest` is the format of manifest.json. `server_json` is the format of the
registry. The command line is in `mcpd.cli`.
"""
