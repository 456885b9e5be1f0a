"""Finds pages in an index: the words of a query, rarest first, ranked by BM25, each page once."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from msgspec import Struct

from mcpd.docs.indexing import CHUNK_BITS
from mcpd.docs.query import Term, parsed, storable
from mcpd.docs.results import Progress
from mcpd.docs.spelling import Vocabulary

MOST_HITS = 100
"""How many pages, or blocks of code, one query finds at most."""

MOST_LIMIT = 50
"""How many of them are on one page of a result at most."""

# Pieces that are ranked for one query: a thousand take a millisecond. Frequent words are left out beside rarer ones.
_MOST_ROWS = 2000
_MOST_SAMPLED = 50_000  # pieces that are looked at, unranked, for the pages of a frequent word
_WHOLE = 1.3  # how much better a piece is that has all words, if the frequent ones were not ranked


class State(Struct, frozen=True):
    """The index at one moment, for one question."""

    connection: sqlite3.Connection
    generation: str
    progress: Progress
    vocabulary: Vocabulary


class Scope(Struct, frozen=True):
    """Where is searched: a section or a folder below it, and a kind; None for everywhere."""

    section: str | None = None
    kind: str | None = None

    @property
    def condition(self) -> tuple[str, list[str]]:
        """What is asked of `files`, and its values; empty for everything."""
        parts: list[str] = []
        values: list[str] = []
        if self.section is not None:
            parts.append("(folder = ? OR folder LIKE ? ESCAPE '!')")
            escaped = self.section.replace("!", "!!").replace("%", "!%").replace("_", "!_")
            values += [self.section, f"{escaped}/%" if self.section else ""]
        if self.kind is not None:
            parts.append("kind = ?")
            values.append(storable(self.kind))

        return " AND ".join(parts), values


class Plan(Struct, frozen=True):
    """What is searched for a query."""

    terms: list[Term]
    """All of them, as they are searched."""
    rows: dict[str, int]
    """How many pieces each finds, by its expression; counted to a bound."""
    corrected: str | None
    """The query with words that are there, if others were typed."""


class Found(Struct, frozen=True):
    """A page, by its number, and the piece of it that fits best."""

    file: int
    chunk: int
    score: float


def plan(connection: sqlite3.Connection, query: str, vocabulary: Vocabulary) -> Plan:
    """Find out how the words of a query are to be searched: as they are, as beginnings, or corrected."""
    terms: list[Term] = []
    rows: dict[str, int] = {}
    corrections: dict[str, str] = {}
    for term in parsed(query):
        for better in _resolved(connection, term, corrections, vocabulary):
            if better.match not in rows:
                rows[better.match] = _rows(connection, better.match)
                terms.append(better)

    corrected = None
    if corrections:
        corrected = query
        for typed, word in corrections.items():
            corrected = corrected.replace(typed, word)

    return Plan(terms, rows, corrected)


def _resolved(
    connection: sqlite3.Connection, term: Term, corrections: dict[str, str], vocabulary: Vocabulary
) -> Sequence[Term]:
    """The term itself if anything has it, else what may have been meant."""
    if _is_there(connection, term.match):
        return [term]
    if not term.is_prefix and not term.is_quoted and len(term.words[-1]) >= 3:
        longer = Term(term.text, term.words, True)
        if _is_there(connection, longer.match):
            return [longer]
    if len(term.words) > 1:
        found: list[Term] = []
        for word in term.words:
            found += _resolved(connection, Term(word, (word,)), corrections, vocabulary)

        return found

    for word in vocabulary.corrected(term.words[0]):
        better = Term(word, (word,))
        if _is_there(connection, better.match):
            corrections[term.text] = word
            return [better]

    return []


def _is_there(connection: sqlite3.Connection, match: str) -> bool:
    return connection.execute("SELECT 1 FROM words WHERE words MATCH ? LIMIT 1", (match,)).fetchone() is not None


def _rows(connection: sqlite3.Connection, match: str) -> int:
    """How many pieces an expression finds, counted to the bound."""
    sql = "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT ?)"
    found: int = connection.execute(sql, (match, _MOST_ROWS + 1)).fetchone()[0]
    return found


def find(connection: sqlite3.Connection, planned: Plan, scope: Scope) -> list[Found]:
    """The pages for a query, best first, no more than `MOST_HITS`."""
    if not planned.terms:
        return []
    by_rows = sorted(planned.terms, key=lambda term: planned.rows[term.match])
    chosen: list[Term] = []
    sum_of_rows = 0
    for term in by_rows:
        sum_of_rows += planned.rows[term.match]
        if sum_of_rows > _MOST_ROWS:
            break
        chosen.append(term)

    every = " AND ".join(term.match for term in planned.terms)
    if not chosen:
        return _by_page(_frequent(connection, every, by_rows[0].match, scope))
    rows = _ranked(connection, " OR ".join(term.match for term in chosen), scope)
    if len(chosen) < len(planned.terms):
        # Ranking by words that are nearly everywhere takes long, and says little; where they are too is said by this.
        sql = "SELECT rowid FROM words WHERE words MATCH ? LIMIT ?"
        whole = {chunk for (chunk,) in connection.execute(sql, (every, _MOST_ROWS))}
        rows = [(chunk, score * (_WHOLE if chunk in whole else 1)) for chunk, score in rows]

    return _by_page(rows)


def _frequent(connection: sqlite3.Connection, every: str, rarest: str, scope: Scope) -> list[tuple[int, float]]:
    """Pieces for words that are nearly everywhere: the best whose headings have them, else the first that have all."""
    headed = f"{{title headings}} : ({every})"
    if 0 < _rows(connection, headed) <= _MOST_ROWS and (rows := _ranked(connection, headed, scope)):
        return rows
    for match in (headed, every, rarest):
        if rows := _ranked(connection, match, scope, is_sample=True):
            return rows

    return []


def _ranked(
    connection: sqlite3.Connection, match: str, scope: Scope, *, is_sample: bool = False
) -> list[tuple[int, float]]:
    """The best pieces, or for a sample the first ones, all alike."""
    condition, values = scope.condition
    inside = f"AND (rowid >> {CHUNK_BITS}) IN (SELECT id FROM files WHERE {condition})" if condition else ""
    what, order, most = ("-1.0", "", _MOST_SAMPLED) if is_sample else ("rank", "ORDER BY rank", _MOST_ROWS)
    sql = f"SELECT rowid, {what} FROM words WHERE words MATCH ? {inside} {order} LIMIT ?"
    found: list[tuple[int, float]] = []
    pages: set[int] = set()
    # A long page has thousands of pieces: pages are counted, so that it does not hide the others.
    for chunk, rank in connection.execute(sql, (match, *values, most)):
        pages.add(chunk >> CHUNK_BITS)
        if len(pages) > MOST_HITS:
            break
        found.append((chunk, -rank))

    return found


def _by_page(rows: list[tuple[int, float]]) -> list[Found]:
    """Each page once: by its best piece, and a little by the next ones."""
    best: dict[int, float] = {}
    for chunk, score in rows:
        best[chunk] = max(score, best.get(chunk, 0.0))
    pages: dict[int, list[tuple[float, int]]] = {}
    for chunk, score in best.items():
        pages.setdefault(chunk >> CHUNK_BITS, []).append((score, -chunk))
    found = []
    for file, pieces in pages.items():
        pieces.sort(reverse=True)
        score = pieces[0][0] + sum(
            piece[0] * weight for piece, weight in zip(pieces[1:4], (0.2, 0.1, 0.05), strict=False)
        )
        found.append(Found(file, -pieces[0][1], score))
    found.sort(key=lambda one: (-one.score, one.file))
    return found[:MOST_HITS]
