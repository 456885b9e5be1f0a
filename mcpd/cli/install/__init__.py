"""Adds servers to the configuration of hosts: `mcpd install`, `mcpd uninstall`, `mcpd doctor --hosts`.

`operations` plans and makes the changes for one host; begin reading there. `entry` is a server as a host starts or
reaches it, which `formats` write in the host's way, and `files` reads and restores files. `launch` starts a server as a
host does, `checks` examines existing entries. The table of hosts is in `client.targets.hosts`, the command line in
`mcpd.cli`.
"""
