"""Adds servers to the configuration of hosts: `mcpd install`, `mcpd uninstall`, `mcpd doctor --hosts`.

`operations` plans and makes the changes for one host; start reading there. `entry` is a server as a host starts or
reaches it, which `formats/` write in the host's way; `files` reads and restores files. `hosts` finds the hosts of this
machine, `launch` starts a server as a host does, and `checks` examines existing entries. The table of hosts is
`assets/hosts.json`, read by `client.targets.hosts`; the command line is in `mcpd.cli.commands`.
"""
