"""Several processes on one machine, `mcpd serve --workers N`: a parent that serves nobody, and its workers.

Theory of operation. The parent (`parent.py`) binds the addresses (`places.py`), starts the workers by the command line
that it was started by, and hands each its sockets and a pair of control sockets (`handover.py`). A worker (`worker.py`)
is `mcpd serve` as ever, but for these. Each place in the line of workers has listening sockets of its own, among which
the kernel spreads connections (SO_REUSEPORT), and which the parent keeps open: a worker that dies or is replaced
leaves its queue to the next one in its place. What is shared is in the parent's memory (`backplane.shared_memory`).
"""

from __future__ import annotations
