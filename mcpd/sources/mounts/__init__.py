"""Other servers behind one: `server.mount("db", target)`, `mcpd serve TARGET… [-- command]`.

    mounted    the mounts of one server, and their entries in its catalog; start here.
    settings   the settings of a mount.
    upstream   one mounted server: its instances, its failures and its lists.
    entries    tools, resources, templates and prompts of a mounted server.
    relay      one request, passed on to a mounted server.

A server without mounts loads nothing of this package.
"""
