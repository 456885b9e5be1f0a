"""What users ask, as the index takes it: whatever they type is text, but for quotes and a final `*`."""

from __future__ import annotations

import re

from msgspec import Struct

from mcpd.docs.chunks import indexed

MOST_CHARACTERS = 1000
"""How much of a query is read."""

_MOST_TERMS = 24
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
    """A word or a phrase of a query."""

    text: str
    """As it was typed."""
    words: tuple[str, ...]
    is_prefix: bool = False
    """Whether words that begin so are meant."""
    is_quoted: bool = False

    @property
    def match(self) -> str:
        """The expression that finds it."""
        return f'"{" ".join(self.words)}"{" *" if self.is_prefix else ""}'


def storable(text: str) -> str:
    """A text that SQLite takes: half of a character, which JSON may have, is a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")


def words_of(text: str) -> tuple[str, ...]:
    """The words of a text as the index tells them apart."""
    return tuple(word for part in _WORD.findall(indexed(text)) for word in part.split("_") if word)


def parsed(query: str) -> list[Term]:
    """The terms of a query; words that are everywhere in English are left out where others are there."""
    found: dict[str, Term] = {}
    stops: dict[str, Term] = {}
    text = _SHORTENED.sub("", storable(query[:MOST_CHARACTERS]).replace("\0", " "))
    for token in _TOKEN.finditer(text):
        quoted = token[1] or token[2]
        typed = quoted or token[3]
        words = words_of(typed)
        if not words:
            continue
        term = Term(typed, words, token[4] == "*", bool(quoted))
        is_stop = not quoted and not term.is_prefix and len(words) == 1 and typed.lower() in _STOP
        (stops if is_stop else found).setdefault(term.match.lower(), term)
    return list((found or stops).values())[:_MOST_TERMS]
