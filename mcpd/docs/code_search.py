"""Blocks of code: those that have the words that are asked for, or stand where pages have them."""

from __future__ import annotations

import sqlite3
from typing import Any

from mcpd.docs.cursors import Cursors
from mcpd.docs.indexing import CHUNK_BITS, CODE_BITS
from mcpd.docs.query import storable
from mcpd.docs.results import CodeHit, CodeResult
from mcpd.docs.search import MOST_HITS, MOST_LIMIT, Plan, Scope, State, plan
from mcpd.docs.snippets import Marker

_MOST_CODE_CHUNKS = 400


def code_result(
    state: State, words: str, language: str | None, section: str | None, limit: int, cursor: str | None
) -> CodeResult:
    """Blocks of code for words. Raises BadCursor."""
    limit = max(1, min(limit, MOST_LIMIT))
    cursors = Cursors(state.generation, [words, language, section], MOST_HITS)
    start = cursors.start(cursor)
    connection = state.connection
    planned = plan(connection, words, state.vocabulary)
    rows = _code_rows(connection, planned, language, Scope(section))
    hits = [_code_hit(connection, *row) for row in rows[start : start + limit]]
    counted = connection.execute(
        "SELECT language FROM code WHERE language != '' GROUP BY language ORDER BY count(*) DESC, language LIMIT 20"
    )
    languages = [] if rows else [name for (name,) in counted]
    return CodeResult(words, hits, len(rows), cursors.next(start, limit, len(rows)), languages, state.progress)


def _code_rows(
    connection: sqlite3.Connection, planned: Plan, language: str | None, scope: Scope
) -> list[tuple[int, float]]:
    """The numbers of blocks, best first: those that have more of the words come before those near to them."""
    condition, values = scope.condition
    inside = f"AND (words.rowid >> {CHUNK_BITS}) IN (SELECT id FROM files WHERE {condition})" if condition else ""
    spoken = "AND code.language = ?" if language else ""
    asked: list[Any] = [*values, *([storable(language.lower())] if language else [])]
    if not planned.terms:
        return _code_of_language(connection, language, condition, values)
    match = " OR ".join(term.match for term in planned.terms)
    # The innermost query ranks; the join takes the blocks of its pieces.
    sql = f"""
        SELECT code.id, code.text, code.before, ranked.score FROM
        (SELECT rowid AS chunk, rank AS score FROM words WHERE words MATCH ? {inside} ORDER BY rank LIMIT ?) AS ranked
        JOIN code ON code.id >= ranked.chunk << {CODE_BITS} AND code.id < (ranked.chunk + 1) << {CODE_BITS} {spoken}
    """
    limited = [match, *values, _MOST_CODE_CHUNKS, *asked[len(values) :]]
    marker = Marker(planned.terms)
    number = len(planned.terms)
    found = []
    for at, text, before, score in connection.execute(sql, limited):
        share = marker.count(text) / number + 0.5 * marker.count(before) / number
        found.append((at, -score * (0.25 + share)))
    found.sort(key=lambda one: (-one[1], one[0]))
    return found[:MOST_HITS]


def _code_of_language(
    connection: sqlite3.Connection, language: str | None, condition: str, values: list[str]
) -> list[tuple[int, float]]:
    """All blocks of a language, or all there are, as they come in their pages."""
    inside = f"AND (id >> {CHUNK_BITS + CODE_BITS}) IN (SELECT id FROM files WHERE {condition})" if condition else ""
    spoken = "language = ?" if language else "1"
    asked = [*([storable(language.lower())] if language else []), *values, MOST_HITS]
    sql = f"SELECT id, 0.0 FROM code WHERE {spoken} {inside} ORDER BY id LIMIT ?"
    return connection.execute(sql, asked).fetchall()


def _code_hit(connection: sqlite3.Connection, number: int, score: float) -> CodeHit:
    language, before, text = connection.execute(
        "SELECT language, before, text FROM code WHERE id = ?", (number,)
    ).fetchone()
    chunk = number >> CODE_BITS
    heading, anchor = connection.execute("SELECT heading, anchor FROM chunks WHERE id = ?", (chunk,)).fetchone()
    path, title, section = connection.execute(
        "SELECT path, title, section FROM files WHERE id = ?", (chunk >> CHUNK_BITS,)
    ).fetchone()
    return CodeHit(path, title, section, heading, anchor, language, text, before, round(score, 4))
