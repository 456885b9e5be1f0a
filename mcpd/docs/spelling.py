"""Words that look like one that is not there: those of the index, by edit distance; and names that look like a name."""

from __future__ import annotations

import re
import sqlite3
import sys
from collections.abc import Callable, Iterable

__all__ = ["Vocabulary", "distance", "named_like", "near_names"]

_MOST_LENGTH = 40
_MOST_TERMS = 300_000
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_NO_NAME = re.compile(r"[\W_]+")


class Vocabulary:
    """The words of an index, as it has them: stems, in lower case. Made once for many questions; immutable."""

    def __init__(self, terms: Iterable[tuple[str, int]] = ()) -> None:
        """`terms`: each word, and in how many pieces of text it is."""
        self._counts = {sys.intern(term): count for term, count in terms if 3 <= len(term) <= _MOST_LENGTH}
        self._by_letter: dict[tuple[str, int], list[str]] = {}
        for term in self._counts:
            self._by_letter.setdefault((term[0], len(term)), []).append(term)
        self._letters: dict[tuple[str, int], list[int]] = {}  # of those that were looked through, the letters of each

    def __len__(self) -> int:
        return len(self._counts)

    @classmethod
    def read(cls, connection: sqlite3.Connection) -> Vocabulary:
        """That of an index: reads all of it, which takes some milliseconds for a thousand pages."""
        return cls(connection.execute("SELECT term, doc FROM vocabulary LIMIT ?", (_MOST_TERMS,)))

    def corrected(self, word: str) -> list[str]:
        """Words that a mistyped one may mean, best first: one edit away, or two for long ones."""
        word = word.lower()
        if not 3 <= len(word) <= _MOST_LENGTH:
            return []
        found = {term for term in _edits(word) if term in self._counts}
        if not found and len(word) >= 6:
            found = self._two_edits(word)
        # The first letter is seldom wrong, and a frequent word is more often meant.
        return sorted(found, key=lambda term: (term[0] != word[0], -self._counts[term], term))[:3]

    def _two_edits(self, word: str) -> set[str]:
        wanted, is_near = _letters(word), _within(word, 2)
        found: set[str] = set()
        for length in range(len(word) - 2, len(word) + 3):
            key = word[0], length
            terms = self._by_letter.get(key)
            if terms is None:
                continue
            masks = self._letters.get(key)
            if masks is None:
                masks = self._letters[key] = [_letters(term) for term in terms]
            # Two edits change four letters at most: that is told by one operation, and leaves a few.
            for term, mask in zip(terms, masks, strict=True):
                if (mask ^ wanted).bit_count() <= 4 and is_near(term):
                    found.add(term)
        return found


def _letters(word: str) -> int:
    """The set of its letters; few of other alphabets share a bit."""
    mask = 0
    for letter in word:
        mask |= 1 << (ord(letter) & 63)
    return mask


def _within(word: str, most: int) -> Callable[[str], bool]:
    """Tells which words are no more than so many edits away from this one, as `distance` counts them.

    A column of its table is two numbers of as many bits as the word has letters (Hyyrö 2003), and a letter a dozen
    operations.
    """
    size = len(word)
    last, whole = 1 << (size - 1), (1 << size) - 1
    places: dict[str, int] = {}
    for at, letter in enumerate(word):
        places[letter] = places.get(letter, 0) | 1 << at

    def is_near(other: str) -> bool:
        more, less, diagonal, before, score = whole, 0, 0, 0, size
        left = len(other)
        for letter in other:
            here = places.get(letter, 0)
            exchanged = (((~diagonal & here) << 1) & before) & whole
            diagonal = (((((here & more) + more) ^ more) | here | less) | exchanged) & whole
            up = less | (~(diagonal | more) & whole)
            down = more & diagonal
            left -= 1

            if up & last:
                score += 1
            elif down & last:
                score -= 1
            if score - left > most:
                return False

            up = (up << 1 | 1) & whole
            down = (down << 1) & whole
            more, less, before = down | (~(diagonal | up) & whole), up & diagonal, here
        return score <= most

    return is_near


def _edits(word: str) -> set[str]:
    """All words that are one edit away: a letter less, another, one more, or two exchanged."""
    letters = set(_LETTERS) | set(word)
    parts = [(word[:at], word[at:]) for at in range(len(word) + 1)]
    found = {left + right[1:] for left, right in parts if right}
    found |= {left + right[1] + right[0] + right[2:] for left, right in parts if len(right) > 1}
    found |= {left + letter + right[1:] for left, right in parts if right for letter in letters}
    found |= {left + letter + right for left, right in parts for letter in letters}
    return found - {word}


def distance(one: str, other: str, most: int) -> int:
    """How many letters are to be changed, added, left out or exchanged with the next; `most` + 1 for more."""
    if abs(len(one) - len(other)) > most:
        return most + 1
    before: list[int] = []
    row = list(range(len(other) + 1))
    for at, letter in enumerate(one, 1):
        before, above, row = row, before, [at]
        for place, another in enumerate(other, 1):
            cost = min(before[place] + 1, row[-1] + 1, before[place - 1] + (letter != another))
            if above and place > 1 and letter == other[place - 2] and one[at - 2] == another:
                cost = min(cost, above[place - 2] + 1)
            row.append(cost)
        if min(row) > most:
            return most + 1
    return row[-1]


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
