"""Searches an index: pages for a query, code blocks, and descriptions of a name."""

from __future__ import annotations

import base64
import hashlib
import re
import sqlite3
from collections.abc import Sequence

from msgspec import Struct

from .index import CHUNK_BITS, CODE_BITS
from .page import (
    BadCursor,
    CodeHit,
    CodeResult,
    Entry,
    EntryResult,
    Progress,
    SearchHit,
    SearchResult,
    without_number,
)
from .words import (
    MAX_CHARACTERS,
    Highlighter,
    Term,
    Vocabulary,
    letters_of,
    near_names,
    parsed,
    storable,
    words_of,
)

MAX_HITS = 100
"""How many pages or code blocks one query finds at most."""

MAX_LIMIT = 50
"""How many results one page of results has at most."""

# The number of chunks that are ranked; 1,000 take about a millisecond. Frequent words are not used for ranking if rarer
# words exist.
_MAX_ROWS = 2000
_MAX_SAMPLED = 50_000  # chunks that are examined without ranking, for frequent words
_WHOLE = 1.3  # factor for chunks with all words, if frequent words were not used for ranking


class State(Struct, frozen=True):
    connection: sqlite3.Connection
    generation: str
    progress: Progress
    vocabulary: Vocabulary


# The id of the file of a chunk.
_FILE = f"(rowid >> {CHUNK_BITS})"


class Scope(Struct, frozen=True):
    """The scope of a search: a section or a folder below it, and a format. None means everything."""

    section: str | None = None
    kind: str | None = None

    def condition(self, file: str) -> tuple[str, list[str]]:
        """Return the SQL condition for an expression that gives the id of a file, with its values."""
        parts: list[str] = []
        values: list[str] = []
        if self.section is not None:
            parts.append("(folder = ? OR folder LIKE ? ESCAPE '!')")
            escaped = self.section.replace("!", "!!").replace("%", "!%").replace("_", "!_")
            values += [self.section, f"{escaped}/%" if self.section else ""]

        if self.kind is not None:
            parts.append("kind = ?")
            values.append(storable(self.kind))

        return f"AND {file} IN (SELECT id FROM files WHERE {' AND '.join(parts)})" if parts else "", values


class Plan(Struct, frozen=True):
    terms: list[Term]
    """The terms after correction."""
    rows: dict[str, int]
    """How many chunks each term matches, up to a limit."""
    corrected: str | None
    """The corrected query, if it was corrected."""


class RankedPage(Struct, frozen=True):
    file: int
    chunk: int
    score: float


def plan(connection: sqlite3.Connection, query: str, vocabulary: Vocabulary) -> Plan:
    """Decide for each term of a query whether it is used as it is, as a prefix, or corrected."""
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
    # Return the term if it matches anything, otherwise what may have been meant.
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
    # Return how many chunks match, up to the limit.
    sql = "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT ?)"
    found: int = connection.execute(sql, (match, _MAX_ROWS + 1)).fetchone()[0]
    return found


def find(connection: sqlite3.Connection, planned: Plan, scope: Scope) -> list[RankedPage]:
    """Return at most `MAX_HITS` pages, best first."""
    if not planned.terms:
        return []
    by_rows = sorted(planned.terms, key=lambda term: planned.rows[term.match])
    chosen: list[Term] = []
    sum_of_rows = 0
    for term in by_rows:
        sum_of_rows += planned.rows[term.match]
        if sum_of_rows > _MAX_ROWS:
            break
        chosen.append(term)

    every = " AND ".join(term.match for term in planned.terms)
    if not chosen:
        return _by_page(_frequent(connection, every, by_rows[0].match, scope))
    rows = _ranked(connection, " OR ".join(term.match for term in chosen), scope)
    if len(chosen) < len(planned.terms):
        # Ranking by very frequent words is slow and hardly changes the order, so chunks with all words get a bonus
        # instead.
        sql = "SELECT rowid FROM words WHERE words MATCH ? LIMIT ?"
        whole = {chunk for (chunk,) in connection.execute(sql, (every, _MAX_ROWS))}
        rows = [(chunk, score * (_WHOLE if chunk in whole else 1)) for chunk, score in rows]

    return _by_page(rows)


def _frequent(connection: sqlite3.Connection, every: str, rarest: str, scope: Scope) -> list[tuple[int, float]]:
    # Return chunks for queries that have only frequent words: the best with the words in headings, otherwise the first.
    headed = f"{{title headings}} : ({every})"
    if 0 < _rows(connection, headed) <= _MAX_ROWS and (rows := _ranked(connection, headed, scope)):
        return rows
    for match in (headed, every, rarest):
        if rows := _ranked(connection, match, scope, is_sample=True):
            return rows

    return []


def _ranked(
    connection: sqlite3.Connection, match: str, scope: Scope, *, is_sample: bool = False
) -> list[tuple[int, float]]:
    # Return the best chunks, or the first ones with equal scores for a sample.
    inside, values = scope.condition(_FILE)
    score, order, limit = ("-1.0", "", _MAX_SAMPLED) if is_sample else ("rank", "ORDER BY rank", _MAX_ROWS)
    sql = f"SELECT rowid, {score} FROM words WHERE words MATCH ? {inside} {order} LIMIT ?"
    found: list[tuple[int, float]] = []
    pages: set[int] = set()
    # A long page has thousands of chunks. The limit counts pages, so that it does not hide the others.
    for chunk, rank in connection.execute(sql, (match, *values, limit)):
        pages.add(chunk >> CHUNK_BITS)
        if len(pages) > MAX_HITS:
            break
        found.append((chunk, -rank))

    return found


def _by_page(rows: list[tuple[int, float]]) -> list[RankedPage]:
    # Return each page once. Its score is the best score of its chunks plus a part of the next three.
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
        found.append(RankedPage(file, -pieces[0][1], score))
    found.sort(key=lambda page: (-page.score, page.file))
    return found[:MAX_HITS]


class Cursors:
    """The cursors of one query in one state of the index."""

    def __init__(self, generation: str, asked: Sequence[str | None], limit: int) -> None:
        """`asked` has everything that the result depends on; `limit` is the largest number of results."""
        self._mark = hashlib.blake2b(repr((generation, *asked)).encode("utf-8", "replace"), digest_size=9).hexdigest()
        self._most = limit

    def start(self, cursor: str | None) -> int:
        """Return the offset in a cursor. Raises BadCursor if it is malformed or out of date."""
        if cursor is None:
            return 0
        try:
            at, _, mark = base64.urlsafe_b64decode(cursor.encode("ascii")).decode("ascii").partition(".")
            start = int(at)
        except (ValueError, UnicodeError):
            raise BadCursor("it is not a cursor of this search; search without a cursor") from None
        if mark != self._mark or not 0 < start <= self._most:
            raise BadCursor("the pages or the query have changed; search again without a cursor")
        return start

    def next(self, start: int, limit: int, number: int) -> str | None:
        if start + limit >= number:
            return None
        return base64.urlsafe_b64encode(f"{start + limit}.{self._mark}".encode("ascii")).decode("ascii")


def search_result(
    state: State, section: str | None, *, query: str, kind: str | None, limit: int, cursor: str | None
) -> SearchResult:
    limit = max(1, min(limit, MAX_LIMIT))
    cursors = Cursors(state.generation, [query, section, kind], MAX_HITS)
    start = cursors.start(cursor)
    connection = state.connection
    planned = plan(connection, query, state.vocabulary)
    found = find(connection, planned, Scope(section, kind))
    highlighter = Highlighter(planned.terms)
    hits = [_search_hit(connection, page, highlighter) for page in found[start : start + limit]]
    return SearchResult(hits, len(found), cursors.next(start, limit, len(found)), planned.corrected, state.progress)


def _search_hit(connection: sqlite3.Connection, found: RankedPage, highlighter: Highlighter) -> SearchHit:
    place, text, description = _chunk(connection, found.chunk)
    _, title, _, heading, _ = place
    if heading:  # the result contains the heading anyway
        text = text.partition("\n")[2].strip() or text
    return SearchHit(*place, *highlighter.snippet(text.strip() or description or title))


def _chunk(connection: sqlite3.Connection, chunk: int) -> tuple[tuple[str, str, str, str, str], str, str]:
    # Return the members of the `Place` of a chunk, its text, and the description of its page.
    path, title, section, description = connection.execute(
        "SELECT path, title, section, description FROM files WHERE id = ?", (chunk >> CHUNK_BITS,)
    ).fetchone()
    sql = "SELECT heading, anchor, text FROM chunks WHERE id = ?"
    heading, anchor, text = connection.execute(sql, (chunk,)).fetchone()
    return (path, title, section, heading, anchor), text, description


_MAX_CODE_CHUNKS = 400


def code_result(
    state: State, section: str | None, *, words: str, language: str | None, limit: int, cursor: str | None
) -> CodeResult:
    limit = max(1, min(limit, MAX_LIMIT))
    cursors = Cursors(state.generation, [words, language, section], MAX_HITS)
    start = cursors.start(cursor)
    connection = state.connection
    planned = plan(connection, words, state.vocabulary)
    rows = _code_rows(connection, planned, language, Scope(section))
    hits = [_code_hit(connection, number) for number, _ in rows[start : start + limit]]
    counted = connection.execute(
        "SELECT language FROM code WHERE language != '' GROUP BY language ORDER BY count(*) DESC, language LIMIT 20"
    )
    languages = [] if rows else [name for (name,) in counted]
    return CodeResult(hits, len(rows), cursors.next(start, limit, len(rows)), languages, state.progress)


def _code_rows(
    connection: sqlite3.Connection, planned: Plan, language: str | None, scope: Scope
) -> list[tuple[int, float]]:
    # Return the ids and scores of code blocks. Words in the block count more than words near it.
    spoken, languages = ("AND language = ?", [storable(language.lower())]) if language else ("", [])
    if not planned.terms:
        # All code blocks, or those in a language, in the order of their pages.
        inside, values = scope.condition(f"(id >> {CHUNK_BITS + CODE_BITS})")
        sql = f"SELECT id, 0.0 FROM code WHERE 1 {inside} {spoken} ORDER BY id LIMIT ?"
        return connection.execute(sql, [*values, *languages, MAX_HITS]).fetchall()

    inside, values = scope.condition(_FILE)
    match = " OR ".join(term.match for term in planned.terms)
    # The inner query ranks chunks; the join adds their code blocks.
    sql = f"""
        SELECT code.id, code.text, code.before, ranked.score FROM
        (SELECT rowid AS chunk, rank AS score FROM words WHERE words MATCH ? {inside} ORDER BY rank LIMIT ?) AS ranked
        JOIN code ON code.id >= ranked.chunk << {CODE_BITS} AND code.id < (ranked.chunk + 1) << {CODE_BITS} {spoken}
    """
    highlighter = Highlighter(planned.terms)
    number = len(planned.terms)
    found = []
    for at, text, before, score in connection.execute(sql, [match, *values, _MAX_CODE_CHUNKS, *languages]):
        share = highlighter.count(text) / number + 0.5 * highlighter.count(before) / number
        found.append((at, -score * (0.25 + share)))

    found.sort(key=lambda row: (-row[1], row[0]))
    return found[:MAX_HITS]


def _code_hit(connection: sqlite3.Connection, number: int) -> CodeHit:
    place, _, _ = _chunk(connection, number >> CODE_BITS)
    block = connection.execute("SELECT language, text, before FROM code WHERE id = ?", (number,)).fetchone()
    return CodeHit(*place, *block)


_MAX_ENTRY = 4000


def entry_result(state: State, section: str | None, *, name: str, limit: int) -> EntryResult:
    # Pages and headings of that name come first, then list items, then longer headings.
    limit = max(1, min(limit, MAX_LIMIT))
    connection = state.connection
    words = words_of(storable(name[:MAX_CHARACTERS]))
    if not words:
        return EntryResult([], [], state.progress)
    wanted = letters_of(name[:MAX_CHARACTERS])
    inside, values = Scope(section).condition(_FILE)
    phrase = Term(name, words).match
    found: dict[int, tuple[int, float, Entry]] = {}
    for match in (f"{{title headings}} : {phrase}", phrase):
        sql = f"SELECT rowid, rank FROM words WHERE words MATCH ? {inside} ORDER BY rank LIMIT 200"
        for chunk, rank in connection.execute(sql, (match, *values)).fetchall():
            if chunk not in found and (judged := _entry(connection, chunk, wanted, words)):
                found[chunk] = (judged[0], rank, judged[1])

    entries: dict[tuple[str, str], Entry] = {}
    for _, _, entry in sorted(found.values(), key=lambda row: row[:2]):
        entries.setdefault((entry.path, entry.anchor), entry)
    near = [] if entries else near_names(name, _names(connection))
    return EntryResult(list(entries.values())[:limit], near, state.progress)


def _entry(connection: sqlite3.Connection, chunk: int, wanted: str, words: tuple[str, ...]) -> tuple[int, Entry] | None:
    # Return what a chunk says about a name and its rank (0 is best), or None if it only mentions the name.
    place, text, _ = _chunk(connection, chunk)
    title, heading = letters_of(place[1]), letters_of(place[3])
    stem = without_number(place[0].rsplit("/", 1)[-1].rsplit(".", 1)[0])
    is_first = chunk & ((1 << CHUNK_BITS) - 1) == 0
    if is_first and wanted in (title, letters_of(stem)):
        rank = 0
    elif heading and wanted == heading:
        rank = 1
    elif (item := _item(text, words)) is not None:
        # Tables often compare things; definitions are more often in lists.
        rank, text = 3 if item.lstrip().startswith("|") else 2, item
    elif wanted in heading or (is_first and wanted in title):
        rank = 3
    else:
        return None

    return rank, Entry(*place, _cut(text))


def _item(text: str, words: tuple[str, ...]) -> str | None:
    # Return the list item or table row that begins with a name, with its continuation lines.
    name = r"[\W_]{1,3}".join(re.escape(word) for word in words)
    pattern = re.compile(
        r"^(?P<indent>[ \t]*)(?:[-*+]|\d{1,4}[.)]|\||#{1,6})[ \t]+[*_\[]{0,3}"
        rf"`{{1,2}}[-/@]{{0,2}}(?:\w{{1,60}}\.){{0,5}}{name}[^\w`\n]?[^`\n]{{0,60}}`",
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
    return text if len(text) <= _MAX_ENTRY else text[:_MAX_ENTRY].rstrip() + " …"


def _names(connection: sqlite3.Connection) -> list[str]:
    titles = connection.execute("SELECT DISTINCT title FROM files WHERE title IS NOT NULL LIMIT 50000")
    headings = connection.execute("SELECT DISTINCT heading FROM chunks WHERE heading != '' LIMIT 50000")
    return [name for rows in (titles, headings) for (name,) in rows if len(name) <= 80]
