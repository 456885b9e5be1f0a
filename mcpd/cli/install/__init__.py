"""Adds servers to the configuration of hosts: `mcpd install`, `mcpd uninstall`, `mcpd doctor --hosts`.

`operations` has the steps for one host; begin reading there. `entry` is a server as a host starts or reaches it, which
`formats` write in the host's way; `plan` changes a file, and `files` restores it. `launch` starts a server as a host
does, `checks` examines existing entries. The table of hosts is in `client.targets.hosts`, the command line in
`mcpd.cli`.
"""
