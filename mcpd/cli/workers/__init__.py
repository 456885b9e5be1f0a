"""Several processes on one machine, `mcpd serve --workers N`: a parent that serves nobody, and its workers.

The parent (`parent`) binds the addresses, starts the workers by its own command line, and gives each its sockets over a
control socket (`process`). A worker (`worker`) is otherwise an ordinary `mcpd serve`. Each worker number has listening
sockets of its own, among which the kernel spreads connections (SO_REUSEPORT). The parent keeps them open, so that a
worker that dies or is replaced leaves its queue to its successor. `overview` adds up metrics and status. What workers
share is in the parent's memory, in `backplane`.
"""
