"""The request that a handler works on: what authors see of it (`Context`), and ways to answer and ask its client.

`exchange.py` is the server's own view of a request, `context.py` the author's. `questions.py` and `forms.py` make
questions, `asking.py` sends them in the way of each protocol version. Start reading in `context.py`.
"""

from __future__ import annotations

import sys

__all__ = ["context_type"]


def context_type() -> type | None:
    """`Context`, or None while nobody has loaded it: no function can be annotated with it then."""
    module = sys.modules.get(f"{__name__}.context")
    return getattr(module, "Context", None)
