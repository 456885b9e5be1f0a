"""A server as one file that others install, and as an entry of the registry: `mcpd bundle`, `mcpd publish-info`.

`pack` makes a bundle from a target; begin reading there. `project` selects the files and reads the metadata of the
project, `manifest` is the format of manifest.json, `server_json` the format of the registry. The command line is in
`mcpd.cli`.
"""
