"""Cursors: where the next page of a result begins, for the very same question to the very same index."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

from mcpd.docs.results import BadCursor


class Cursors:
    """Those of one question in one state of the index."""

    def __init__(self, generation: str, asked: Sequence[str | None], most: int) -> None:
        """`asked` is all that the result depends on; `most` the largest number of hits."""
        self._mark = hashlib.blake2b(repr((generation, *asked)).encode("utf-8", "replace"), digest_size=9).hexdigest()
        self._most = most

    def start(self, cursor: str | None) -> int:
        """The number of hits before this page. Raises BadCursor for what is none of ours, or is of another state."""
        if cursor is None:
            return 0
        try:
            at, _, mark = base64.urlsafe_b64decode(cursor.encode("ascii")).decode("ascii").partition(".")
            start = int(at)
        except (ValueError, UnicodeError):
            raise BadCursor("this is no cursor of a search here; search without one") from None
        if mark != self._mark or not 0 < start <= self._most:
            raise BadCursor("the pages have changed, or the query is another one; search again without a cursor")
        return start

    def next(self, start: int, limit: int, number: int) -> str | None:
        """The cursor behind a page of `limit` hits out of `number`; None at the end."""
        if start + limit >= number:
            return None
        return base64.urlsafe_b64encode(f"{start + limit}.{self._mark}".encode("ascii")).decode("ascii")
