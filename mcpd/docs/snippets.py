"""The piece of a text that shows best why it was found, and where in it the words of the query stand."""

from __future__ import annotations

import re

from mcpd.docs.query import Term
from mcpd.docs.readers.markdown_lines import plain_text

_LENGTH = 280
_MOST_READ = 20_000
_MOST_MATCHES = 400
_SUFFIXES = (
    "ization", "ations", "ation", "ities", "ments", "ition", "ness", "ment", "ings", "able", "ible", "ions", "ion",
    "ing", "ies", "ity", "ers", "ed", "er", "es", "ly", "or", "al", "s", "e", "y",
)  # fmt: skip
_RULES = re.compile(
    r"(?m)^[ \t]*(?:#{1,6}[ \t]+|[-*_=]{3,}[ \t]*$|`{3,}[^\n]*$|~{3,}[^\n]*$|\|[-:| ]+\|[ \t]*$|>[ \t]?)"
)


def _stem(word: str) -> str:
    """A word without its ending: enough to see which words of a text are meant by one of a query."""
    word = word.lower()
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 3:
            return word[: -len(suffix)]
    return word


class Marker:
    """Finds the terms of one query in texts."""

    def __init__(self, terms: list[Term]) -> None:
        patterns = []
        for term in terms:
            words = list(term.words)
            tail = r"\w*" if term.is_prefix else None
            parts = [re.escape(_stem(word)) + r"\w{0,8}" for word in words[:-1]]
            parts.append(re.escape(words[-1]) + tail if tail else re.escape(_stem(words[-1])) + r"\w{0,8}")
            patterns.append(r"[\W_]{1,4}".join(parts))
        self._number = len(patterns)
        joined = "|".join(f"({pattern})" for pattern in patterns)
        self._pattern = re.compile(rf"(?<![^\W_])(?:{joined})(?![^\W_])", re.IGNORECASE) if patterns else None

    def snippet(self, text: str) -> tuple[str, list[tuple[int, int]]]:
        """A line of at most some 300 characters, and the (start, end) of each match in it."""
        text = _readable(text[:_MOST_READ])
        start = self._best_start(text)
        end = min(len(text), start + _LENGTH)
        if start:
            space = text.find(" ", start, start + 25)
            start = space + 1 if space >= 0 else start
        if end < len(text):
            space = text.rfind(" ", end - 25, end)
            end = space if space >= 0 else end
        shown = ("… " if start else "") + text[start:end].strip() + (" …" if end < len(text) else "")
        if self._pattern is None:
            return shown, []
        return shown, [found.span() for found in self._pattern.finditer(shown)]

    def count(self, text: str) -> int:
        """How many different terms are in a text."""
        if self._pattern is None:
            return 0
        return len({found.lastindex for found in self._pattern.finditer(text[:_MOST_READ])})

    def _best_start(self, text: str) -> int:
        """Where the window begins that holds most different terms, then most matches."""
        if self._pattern is None or len(text) <= _LENGTH:
            return 0
        matches = []
        for found in self._pattern.finditer(text):
            matches.append((found.start(), found.lastindex or 0))
            if len(matches) == _MOST_MATCHES:
                break
        best, best_score = 0, (0, 0)
        for at, (start, _) in enumerate(matches):
            inside = [term for place, term in matches[at : at + 40] if place < start + _LENGTH - 40]
            score = (len(set(inside)), min(len(inside), 6))
            if score > best_score:
                best, best_score = start, score
        return max(0, min(best - 60, len(text) - _LENGTH))


def _readable(text: str) -> str:
    """A text of Markdown on one line, without the marks that only make its form."""
    lines = _RULES.sub("", text).split("\n")
    return " ".join(" ".join(plain_text(line) for line in lines if line.strip()).split())
