"""Default values that several packages share; they are here because `protocol` is below all of these packages."""

from __future__ import annotations

# The arguments of Python to serve a target on stdio; the target follows, or nothing for the demo server.
OVER_STDIO = ("-m", "mcpd", "serve", "--stdio")

# The option for the demo server, which is also its name as a target inside mcpd.
DEMO = "--demo"

# The largest message that is received or sent (64 MiB).
MAX_FRAME_BYTES = 64 * 1024 * 1024

# How many plain functions run at once.
MAX_THREADS = 96

# How many seconds a call waits for a free thread.
THREAD_TIMEOUT = 30.0

# After how many seconds without progress a call gets a heartbeat.
HEARTBEAT = 15.0

# How many seconds an HTTP session may be idle.
SESSION_TIMEOUT = 1800.0
