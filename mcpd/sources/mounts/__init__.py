"""Other servers behind one: `server.mount("db", target)`, `mcpd serve TARGET… [-- command]`.

    mounted    the mounts of one server, and their entries in its catalog; start here.
    passing    a single mounted server, whose names and results stay as they are.
    targets    the servers that a command line or a file names; `settings` has their settings.
    upstream   one mounted server: its instances, its failures and its lists.
    opening    a new connection to it, and what it receives of this process.
    manifest   its lists and the digests of its tools, kept for the next start.
    entries    its tools, resources, templates and prompts.
    relay      one request, passed on to it; `parking` has the calls that wait for answers, `shapes` the messages.
    routes     tasks and subscriptions of mounted servers; `carried` has their ids and apps.

A server without mounts loads nothing of this package.
"""
