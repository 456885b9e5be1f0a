"""Words that look like one that is not there: those of the index, by edit distance; and names that look like a name."""

from __future__ import annotations

import re
import sqlite3
import sys
from collections.abc import Iterable

_MOST_LENGTH = 40
_MOST_TERMS = 300_000
_NO_NAME = re.compile(r"[\W_]+")


class Vocabulary:
    """The words of an index, as it has them: stems, in lower case. Made once for many questions; immutable."""

    def __init__(self, terms: Iterable[tuple[str, int]] = ()) -> None:
        """`terms`: each word, and in how many pieces of text it is."""
        self._counts = {sys.intern(term): count for term, count in terms if 3 <= len(term) <= _MOST_LENGTH}
        self._by_length: dict[int, list[str]] = {}
        for term in self._counts:
            self._by_length.setdefault(len(term), []).append(term)

    def __len__(self) -> int:
        return len(self._counts)

    @classmethod
    def read(cls, connection: sqlite3.Connection) -> Vocabulary:
        """That of an index: reads all of it, which takes some milliseconds for a thousand pages."""
        return cls(connection.execute("SELECT term, doc FROM vocabulary LIMIT ?", (_MOST_TERMS,)))

    def corrected(self, word: str) -> list[str]:
        """Words that a mistyped one may mean, best first: one edit away, or two for long ones.

        An edit is a letter more, less, other, or exchanged with the next. None without the extra `docs`.
        """
        try:
            from rapidfuzz import process
            from rapidfuzz.distance import OSA
        except ImportError:
            return []
        word = word.lower()
        if not 3 <= len(word) <= _MOST_LENGTH:
            return []
        most = 2 if len(word) >= 6 else 1
        terms = [term for size in range(-most, most + 1) for term in self._by_length.get(len(word) + size, ())]
        near = process.extract(word, terms, scorer=OSA.distance, score_cutoff=most, limit=None)
        # The first letter is seldom wrong, and a frequent word is more often meant.
        found = [term for term, edits, _ in near if edits == 1]
        found = found or [term for term, edits, _ in near if edits == 2 and term[0] == word[0]]
        return sorted(found, key=lambda term: (term[0] != word[0], -self._counts[term], term))[:3]


def named_like(said: str, paths: Iterable[str]) -> str | None:
    """The path that is written so but for the case and the signs between words, or the only one whose last part is."""
    wanted = _NO_NAME.sub("", said.casefold())
    if not wanted:
        return None

    by_title = []
    for path in sorted(paths):
        if "/".join(_NO_NAME.sub("", part.casefold()) for part in path.split("/")) == "/".join(
            _NO_NAME.sub("", part.casefold()) for part in said.strip("/").split("/")
        ):
            return path
        if _NO_NAME.sub("", path.rpartition("/")[2].casefold()) == wanted:
            by_title.append(path)
    return by_title[0] if len(by_title) == 1 else None


def near_names(name: str, names: Iterable[str], limit: int = 5) -> list[str]:
    """Those names that look most like one: by pairs of letters they share, by what begins or contains it."""
    wanted = _NO_NAME.sub("", name.lower())[:_MOST_LENGTH]
    if not wanted:
        return []
    pairs = _pairs(wanted)
    found: list[tuple[float, str]] = []
    for one in names:
        plain = _NO_NAME.sub("", one.lower())[:80]
        if not plain:
            continue
        shared = len(pairs & (own := _pairs(plain)))
        score = 2 * shared / (len(pairs) + len(own))
        if wanted in plain or plain in wanted:
            score += 0.3 * min(len(wanted), len(plain)) / max(len(wanted), len(plain)) + 0.1
        if score >= 0.35:
            found.append((-score, one))
    return [one for _, one in sorted(set(found))[:limit]]


def _pairs(text: str) -> set[str]:
    return {text[at : at + 2] for at in range(len(text) - 1)} or {text}
