"""An approval file for what a server offers: written once, read by people, held against the server ever after.

    offerings   what a server offers, as JSON
    schemas     what changed between two JSON schemas, in words: what breaks callers, and what does not
    changes     the same of tools, resources and prompts
    lock        the file

Loaded by `mcpd check` and by pytest's fixture `mcpd_lock` alone.
"""

from __future__ import annotations

from .changes import Change, compare
from .lock import check_lock, write_lock
from .offerings import offerings

__all__ = ["Change", "check_lock", "compare", "offerings", "write_lock"]
