"""A server as one file that others install, and as an entry of the registry: `mcpd bundle`, `mcpd publish-info`.

pack          from a target to a bundle: all of the below in turn
sources       the files of a target, and what is left out of a bundle
imports       what Python files import: modules beside them, and packages
project       what a pyproject.toml, a requirements.txt and the head of a script say
manifest      manifest.json, held to the format
archive       the zip file, the same for the same files
server_json   server.json of the registry, held to its schema
"""
