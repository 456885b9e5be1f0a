"""Results made of what was found: pages with their snippets, blocks of code, entries; and cursors."""

from __future__ import annotations

import base64
import hashlib
import re
import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from .indexing import CHUNK_BITS, CODE_BITS
from .query import Term, words_of
from .results import BadCursor, CodeHit, CodeResult, Entry, EntryResult, Progress, SearchHit, SearchResult
from .search import MOST_HITS, Found, Plan, Scope, find, plan
from .snippets import Marker
from .spelling import near_names

__all__ = ["code_result", "entry_result", "search_result"]

MOST_LIMIT = 50
_MOST_ENTRY = 4000
_MOST_CODE_CHUNKS = 400
_NO_NAME = re.compile(r"[\W_]+")


def _page_of(cursor: str | None, generation: str, asked: Sequence[object]) -> tuple[int, str]:
    """Where a page of results begins, and what its cursors are signed with. Raises BadCursor."""
    mark = hashlib.blake2b(msgspec.json.encode([generation, list(asked)]), digest_size=9).hexdigest()
    if cursor is None:
        return 0, mark
    try:
        at, _, seen = base64.urlsafe_b64decode(cursor.encode("ascii")).decode("ascii").partition(".")
        start = int(at)
    except (ValueError, UnicodeError):
        raise BadCursor("this is no cursor of a search here; search without one") from None
    if seen != mark or not 0 < start <= MOST_HITS:
        raise BadCursor("the pages have changed, or the query is another one; search again without a cursor")
    return start, mark


def _next(start: int, limit: int, number: int, mark: str) -> str | None:
    if start + limit >= number:
        return None
    return base64.urlsafe_b64encode(f"{start + limit}.{mark}".encode("ascii")).decode("ascii")


def search_result(
    connection: sqlite3.Connection, generation: str, query: str, section: str | None, kind: str | None, limit: int,
    cursor: str | None, progress: Progress,
) -> SearchResult:  # fmt: skip
    """The pages for a query. Raises BadCursor."""
    limit = max(1, min(limit, MOST_LIMIT))
    start, mark = _page_of(cursor, generation, [query, section, kind])
    planned = plan(connection, query)
    found = find(connection, planned, Scope(section, kind))
    marker = Marker(planned.terms)
    hits = [_hit(connection, one, marker) for one in found[start : start + limit]]
    return SearchResult(query, hits, len(found), _next(start, limit, len(found), mark), planned.corrected, progress)


def _hit(connection: sqlite3.Connection, found: Found, marker: Marker) -> SearchHit:
    path, title, section, kind, description = connection.execute(
        "SELECT path, title, section, kind, description FROM files WHERE id = ?", (found.file,)
    ).fetchone()
    heading, anchor, text = connection.execute(
        "SELECT heading, anchor, text FROM chunks WHERE id = ?", (found.chunk,)
    ).fetchone()
    if heading:  # the snippet need not say it again
        text = text.partition("\n")[2].strip() or text
    snippet, highlights = marker.snippet(text.strip() or description or title)
    return SearchHit(path, title, section, heading, anchor, snippet, highlights, round(found.score, 4), kind)


# -- code ------------------------------------------------------------------------------------------


def code_result(
    connection: sqlite3.Connection, generation: str, words: str, language: str | None, section: str | None, limit: int,
    cursor: str | None, progress: Progress,
) -> CodeResult:  # fmt: skip
    """Blocks of code for words. Raises BadCursor."""
    limit = max(1, min(limit, MOST_LIMIT))
    start, mark = _page_of(cursor, generation, [words, language, section, "code"])
    planned = plan(connection, words)
    rows = _code_rows(connection, planned, language, Scope(section))
    hits = [_code_hit(connection, *row) for row in rows[start : start + limit]]
    counted = connection.execute(
        "SELECT language FROM code WHERE language != '' GROUP BY language ORDER BY count(*) DESC, language LIMIT 20"
    )
    languages = [] if rows else [name for (name,) in counted]
    return CodeResult(words, hits, len(rows), _next(start, limit, len(rows), mark), languages, progress)


def _code_rows(
    connection: sqlite3.Connection, planned: Plan, language: str | None, scope: Scope
) -> list[tuple[int, float]]:
    """The numbers of blocks, best first: those that have more of the words come before those near to them."""
    condition, values = scope.condition
    inside = f"AND (words.rowid >> {CHUNK_BITS}) IN (SELECT id FROM files WHERE {condition})" if condition else ""
    spoken = "AND code.language = ?" if language else ""
    asked: list[Any] = [*values, *([language.lower()] if language else [])]
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
    asked = [*([language.lower()] if language else []), *values, MOST_HITS]
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


# -- entries ---------------------------------------------------------------------------------------


def entry_result(
    connection: sqlite3.Connection, name: str, section: str | None, limit: int, progress: Progress
) -> EntryResult:
    """Where a name is described: pages and headings of that name, then items that it begins, then headings with it."""
    limit = max(1, min(limit, MOST_LIMIT))
    words = words_of(name)
    if not words:
        return EntryResult(name, [], [], progress)
    wanted = _NO_NAME.sub("", name.lower())
    condition, values = Scope(section).condition
    inside = f"AND (rowid >> {CHUNK_BITS}) IN (SELECT id FROM files WHERE {condition})" if condition else ""
    phrase = Term(name, words).match
    found: dict[int, tuple[int, float, Entry]] = {}
    for match in (f"{{title headings}} : {phrase}", phrase):
        sql = f"SELECT rowid, rank FROM words WHERE words MATCH ? {inside} ORDER BY rank LIMIT 200"
        for chunk, rank in connection.execute(sql, (match, *values)).fetchall():
            if chunk not in found and (judged := _entry(connection, chunk, wanted, words)):
                found[chunk] = (judged[0], rank, judged[1])

    ordered = [entry for _, _, entry in sorted(found.values(), key=lambda one: one[:2])]
    seen: set[tuple[str, str]] = set()
    entries: list[Entry] = []
    for entry in ordered:
        if (entry.path, entry.anchor) not in seen:
            seen.add((entry.path, entry.anchor))
            entries.append(entry)
    near = [] if entries else near_names(name, _names(connection))
    return EntryResult(name, entries[:limit], near, progress)


def _entry(connection: sqlite3.Connection, chunk: int, wanted: str, words: tuple[str, ...]) -> tuple[int, Entry] | None:
    """What a piece is for a name, and how good that is: 0 best; None if it only mentions it."""
    heading, anchor, text = connection.execute(
        "SELECT heading, anchor, text FROM chunks WHERE id = ?", (chunk,)
    ).fetchone()
    path, title, section = connection.execute(
        "SELECT path, title, section FROM files WHERE id = ?", (chunk >> CHUNK_BITS,)
    ).fetchone()
    plain_title, plain_heading = _NO_NAME.sub("", title.lower()), _NO_NAME.sub("", heading.lower())
    stem = _NO_NAME.sub("", re.sub(r"^\d+[-_. ]+", "", path.rsplit("/", 1)[-1].rsplit(".", 1)[0]).lower())
    is_first = chunk & ((1 << CHUNK_BITS) - 1) == 0
    whole = Entry(path, title, section, heading, anchor, _cut(text), True)
    if is_first and wanted in (plain_title, stem):
        return 0, whole
    if heading and wanted == plain_heading:
        return 1, whole
    if (item := _item(text, words)) is not None:
        return 2, Entry(path, title, section, heading, anchor, _cut(item), True)
    if wanted in plain_heading or (is_first and wanted in plain_title):
        return 3, Entry(path, title, section, heading, anchor, _cut(text), False)
    return None


def _item(text: str, words: tuple[str, ...]) -> str | None:
    """The item of a list, or the row of a table, that begins with a name, and the lines that belong to it."""
    name = r"[\W_]{1,3}".join(re.escape(word) for word in words)
    pattern = re.compile(
        r"^(?P<indent>[ \t]*)(?:[-*+]|\d{1,4}[.)]|\||#{1,6})[ \t]+[*_\[]{0,3}"
        rf"`{{1,2}}[-/]{{0,2}}{name}[^\w`\n]?[^`\n]{{0,60}}`",
        re.MULTILINE | re.IGNORECASE,
    )
    found = pattern.search(text)
    if found is None:
        return None
    indent = len(found["indent"].expandtabs(4))
    end = text.find("\n", found.end())
    while 0 <= end < len(text) - 1:
        stop = text.find("\n", end + 1)
        line = text[end + 1 : stop if stop >= 0 else len(text)]
        if line.strip() and len(line.expandtabs(4)) - len(line.expandtabs(4).lstrip()) <= indent:
            break
        end = stop
    return text[found.start() : end if end >= 0 else len(text)].rstrip()


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_ENTRY else text[:_MOST_ENTRY].rstrip() + " …"


def _names(connection: sqlite3.Connection) -> list[str]:
    titles = connection.execute("SELECT DISTINCT title FROM files WHERE title IS NOT NULL LIMIT 50000")
    headings = connection.execute("SELECT DISTINCT heading FROM chunks WHERE heading != '' LIMIT 50000")
    return [name for rows in (titles, headings) for (name,) in rows if len(name) <= 80]
