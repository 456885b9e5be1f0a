"""What a handler is given besides its params, and what of it authors see: who asks, and ways to talk back."""

from __future__ import annotations

import sys

__all__ = ["context_type"]


def context_type() -> type | None:
    """`Context`, or None while nobody has loaded it: no function can be annotated with it then."""
    module = sys.modules.get(f"{__name__}.context")
    return getattr(module, "Context", None)
