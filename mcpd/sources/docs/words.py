"""The words of a search: parsing a query, correcting its spelling, and finding its words in texts."""

from __future__ import annotations

import re
import sqlite3
import sys
from collections.abc import Iterable
from itertools import islice

from msgspec import Struct

from mcpd.sources.docs.readers.markdown import plain_text
from .index import indexed

MAX_CHARACTERS = 1000

_MAX_TERMS = 24
_TOKEN = re.compile(r"\"([^\"]{1,300})\"|[“„”]([^“„”]{1,300})[“”]|(\w+(?:[-._/:@+#~\\]+\w+)*)(\*?)")
_WORD = re.compile(r"\w+")
_SHORTENED = re.compile(r"(?<=\w)['’](?:s|t|re|ll|ve|d|m)\b", re.IGNORECASE)
_ENGLISH = """
    a about after all also am an and any are as at be because been before being but by can could did do does doing
    don doesn each for from get gets getting had has have having he her here him his how i if in into is isn it its
    just let like make me more most my need no not of on only onto or other our out over own please same she should
    so some such than that the their them then there these they this those through to too under until up us use used
    using very want was way we were what when where whether which while who whom why will with within without won
    would you your
"""
_STOP = frozenset(_ENGLISH.split())


class Term(Struct, frozen=True):
    """A word or phrase of a query."""

    text: str
    """As typed."""
    words: tuple[str, ...]
    is_prefix: bool = False
    """Whether it matches words that begin with it."""
    is_quoted: bool = False

    @property
    def match(self) -> str:
        """The FTS5 expression for it."""
        return f'"{" ".join(self.words)}"{" *" if self.is_prefix else ""}'


def storable(text: str) -> str:
    # JSON may contain unpaired surrogates, which SQLite does not accept.
    return text.encode("utf-8", "replace").decode("utf-8")


def words_of(text: str) -> tuple[str, ...]:
    return tuple(word for part in _WORD.findall(indexed(text)) for word in part.split("_") if word)


def parsed(query: str) -> list[Term]:
    # Very common English words are left out if there are others.
    found: dict[str, Term] = {}
    stops: dict[str, Term] = {}
    text = _SHORTENED.sub("", storable(query[:MAX_CHARACTERS]).replace("\0", " "))
    for token in _TOKEN.finditer(text):
        quoted = token[1] or token[2]
        typed = quoted or token[3]
        words = words_of(typed)
        if not words:
            continue
        term = Term(typed, words, token[4] == "*", bool(quoted))
        is_stop = not quoted and not term.is_prefix and len(words) == 1 and typed.lower() in _STOP
        (stops if is_stop else found).setdefault(term.match.lower(), term)

    return list((found or stops).values())[:_MAX_TERMS]


_MAX_LENGTH = 40
_MAX_VOCABULARY = 300_000
_SEPARATORS = re.compile(r"[\W_]+")


class Vocabulary:
    """The words of an index: stems in lower case. Immutable."""

    def __init__(self, terms: Iterable[tuple[str, int]] = ()) -> None:
        """`terms` has each word with the number of chunks that contain it."""
        self._counts = {sys.intern(term): count for term, count in terms if 3 <= len(term) <= _MAX_LENGTH}
        self._by_length: dict[int, list[str]] = {}
        for term in self._counts:
            self._by_length.setdefault(len(term), []).append(term)

    def __len__(self) -> int:
        return len(self._counts)

    @classmethod
    def read(cls, connection: sqlite3.Connection) -> Vocabulary:
        return cls(connection.execute("SELECT term, doc FROM vocabulary LIMIT ?", (_MAX_VOCABULARY,)))

    def corrected(self, word: str) -> list[str]:
        # An edit adds, removes or changes a letter, or swaps two. Words with one edit are found, for long words also
        # those with two. Nothing is corrected without the extra `docs`.
        try:
            from rapidfuzz import process
            from rapidfuzz.distance import OSA
        except ImportError:
            return []
        word = word.lower()
        if not 3 <= len(word) <= _MAX_LENGTH:
            return []
        limit = 2 if len(word) >= 6 else 1
        terms = [term for size in range(-limit, limit + 1) for term in self._by_length.get(len(word) + size, ())]
        near = process.extract(word, terms, scorer=OSA.distance, score_cutoff=limit, limit=None)
        # The first letter is rarely wrong, and frequent words are meant more often.
        found = [term for term, edits, _ in near if edits == 1]
        found = found or [term for term, edits, _ in near if edits == 2 and term[0] == word[0]]
        return sorted(found, key=lambda term: (term[0] != word[0], -self._counts[term], term))[:3]


def letters_of(text: str) -> str:
    """Return a text in lower case without separators, to compare names."""
    return _SEPARATORS.sub("", text.lower())


def named_like(name: str, paths: Iterable[str]) -> str | None:
    """Return the path that equals a name except for case and separators, or the only path whose last part does."""
    wanted = list(map(letters_of, name.strip("/").split("/")))
    last_parts = []
    for path in sorted(paths):
        parts = list(map(letters_of, path.split("/")))
        if parts == wanted:
            return path
        if parts[-1] == letters_of(name):
            last_parts.append(path)
    return last_parts[0] if len(last_parts) == 1 else None


def near_names(name: str, names: Iterable[str]) -> list[str]:
    """Return the names that are most similar to a name, by shared pairs of letters and common beginnings."""
    wanted = letters_of(name)[:_MAX_LENGTH]
    pairs = _pairs(wanted)
    found: set[tuple[float, str]] = set()
    for known in names:
        plain = letters_of(known)[:80]
        if not wanted or not plain:
            continue
        own = _pairs(plain)
        score = 2 * len(pairs & own) / (len(pairs) + len(own))
        if wanted in plain or plain in wanted:
            score += 0.3 * min(len(wanted), len(plain)) / max(len(wanted), len(plain)) + 0.1
        if score >= 0.35:
            found.add((-score, known))

    return [known for _, known in sorted(found)[:5]]


def _pairs(text: str) -> set[str]:
    return {text[at : at + 2] for at in range(len(text) - 1)} or {text}


_LENGTH = 280
_MAX_READ = 20_000
_MAX_MATCHES = 400
_SUFFIXES = (
    "ization", "ations", "ation", "ities", "ments", "ition", "ness", "ment", "ings", "able", "ible", "ions", "ion",
    "ing", "ies", "ity", "ers", "ed", "er", "es", "ly", "or", "al", "s", "e", "y",
)  # fmt: skip
_RULES = re.compile(
    r"(?m)^[ \t]*(?:#{1,6}[ \t]+|[-*_=]{3,}[ \t]*$|`{3,}[^\n]*$|~{3,}[^\n]*$|\|[-:| ]+\|[ \t]*$|>[ \t]?)"
)


def _stem(word: str) -> str:
    # Return a word without its ending, roughly, to recognize other forms of it.
    word = word.lower()
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 3:
            return word[: -len(suffix)]
    return word


class Highlighter:
    def __init__(self, terms: list[Term]) -> None:
        patterns = []
        for term in terms:
            parts = [re.escape(_stem(word)) + r"\w{0,8}" for word in term.words]
            if term.is_prefix:
                parts[-1] = re.escape(term.words[-1]) + r"\w*"
            patterns.append(r"[\W_]{1,4}".join(parts))
        joined = "|".join(f"({pattern})" for pattern in patterns)
        self._pattern = re.compile(rf"(?<![^\W_])(?:{joined})(?![^\W_])", re.IGNORECASE) if patterns else None

    def snippet(self, text: str) -> tuple[str, list[tuple[int, int]]]:
        """Return a line of about 300 characters around the matches, and the (start, end) of each match in it."""
        text = _readable(text[:_MAX_READ])
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
        """Return how many different terms a text contains."""
        if self._pattern is None:
            return 0
        return len({found.lastindex for found in self._pattern.finditer(text[:_MAX_READ])})

    def _best_start(self, text: str) -> int:
        # Return the start of the window with the most different terms, then the most matches.
        if self._pattern is None or len(text) <= _LENGTH:
            return 0
        found = islice(self._pattern.finditer(text), _MAX_MATCHES)
        matches = [(match.start(), match.lastindex) for match in found]
        best, best_score = 0, (0, 0)
        for at, (start, _) in enumerate(matches):
            inside = [term for place, term in matches[at : at + 40] if place < start + _LENGTH - 40]
            score = (len(set(inside)), min(len(inside), 6))
            if score > best_score:
                best, best_score = start, score
        return max(0, min(best - 60, len(text) - _LENGTH))


def _readable(text: str) -> str:
    # Return Markdown on one line, without block markup.
    lines = _RULES.sub("", text).split("\n")
    return " ".join(" ".join(plain_text(line) for line in lines if line.strip()).split())
