"""An approval file for what a server offers: written once, read by people, held against the server ever after.

    offerings   what a server offers, as JSON
    schemas     what changed between two JSON schemas, in words: what breaks callers, and what does not
    changes     the same of tools, resources and prompts
    lock        the file

Loaded by `mcpd check` and by pytest's fixture `mcpd_lock` alone.
"""

from __future__ import annotations

from mcpd.approval.changes import Change, compare
from mcpd.approval.lock import check_lock, write_lock
from mcpd.approval.offerings import offerings

__all__ = ["Change", "check_lock", "compare", "offerings", "write_lock"]
