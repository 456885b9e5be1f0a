"""What holds if nobody says otherwise: told once, to the options of serving and to who heeds them. A leaf."""

from __future__ import annotations

OVER_STDIO = ("-m", "mcpd", "serve", "--stdio")
"""What Python is given to serve a target to whoever has started it; the target follows, or none for the starter."""

DEMO = "--demo"
"""The option that asks for the demo server, and the target that stands for it inside mcpd."""

MAX_FRAME_BYTES = 64 * 1024 * 1024
"""The largest message that is received or sent."""

MAX_THREADS = 96
"""How many plain functions run at once."""

THREAD_TIMEOUT = 30.0
"""How many seconds a call waits for a thread."""

SESSION_TIMEOUT = 1800.0
"""How many seconds an HTTP session may be idle."""
