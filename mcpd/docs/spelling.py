"""Words that look like one that is not there: those of the index, by edit distance; and names that look like a name."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable

__all__ = ["corrected_words", "distance", "near_names"]

_MOST_LENGTH = 40
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_NO_NAME = re.compile(r"[\W_]+")


def corrected_words(connection: sqlite3.Connection, word: str) -> list[str]:
    """Words of the index that a mistyped one may mean, best first: one edit away, or two for long words.

    The index has the stems of words; what is given is searched as it stands.
    """
    word = word.lower()
    if not 3 <= len(word) <= _MOST_LENGTH:
        return []
    found = _known(connection, _edits(word))
    if not found and len(word) >= 6:
        found = _two_edits(connection, word)
    return [term for term, _ in sorted(found, key=lambda one: (one[0][0] != word[0], -one[1], one[0]))][:3]


def _known(connection: sqlite3.Connection, words: set[str]) -> list[tuple[str, int]]:
    """Those words that are in the index, and in how many pieces."""
    found: list[tuple[str, int]] = []
    left = list(words)
    for at in range(0, len(left), 500):
        some = left[at : at + 500]
        marks = ",".join("?" * len(some))
        found += connection.execute(f"SELECT term, doc FROM vocabulary WHERE term IN ({marks})", some).fetchall()
    return found


def _edits(word: str) -> set[str]:
    """All words that are one edit away: a letter less, another, one more, or two exchanged."""
    letters = set(_LETTERS) | set(word)
    parts = [(word[:at], word[at:]) for at in range(len(word) + 1)]
    found = {left + right[1:] for left, right in parts if right}
    found |= {left + right[1] + right[0] + right[2:] for left, right in parts if len(right) > 1}
    found |= {left + letter + right[1:] for left, right in parts if right for letter in letters}
    found |= {left + letter + right for left, right in parts for letter in letters}
    return found - {word}


def _two_edits(connection: sqlite3.Connection, word: str) -> list[tuple[str, int]]:
    """Words with the same first letter that are at most two edits away."""
    sql = "SELECT term, doc FROM vocabulary WHERE term >= ? AND term < ? AND length(term) BETWEEN ? AND ? LIMIT 20000"
    bounds = (word[0], word[0] + "\U0010ffff", len(word) - 2, len(word) + 2)
    letters = set(word)
    return [
        (term, count)
        for term, count in connection.execute(sql, bounds)
        if len(letters.symmetric_difference(term)) <= 4 and distance(word, term, 2) <= 2
    ]


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
