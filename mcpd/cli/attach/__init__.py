"""`mcpd serve --stdio --attach`: many hosts and chats share one daemon.

`shim` runs in the process that a host starts. It finds or starts the daemon, hands over its descriptors and waits.
`daemon` has the daemon's side: the listener that takes these descriptors, and the rules when it must not. Start
reading in `shim.attach`. A daemon is `mcpd serve` with another listener.
"""
