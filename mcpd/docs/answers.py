"""Pages that were found, with the piece of each that shows why."""

from __future__ import annotations

import sqlite3

from mcpd.docs.cursors import Cursors
from mcpd.docs.results import SearchHit, SearchResult
from mcpd.docs.search import MOST_HITS, MOST_LIMIT, Found, Scope, State, find, plan
from mcpd.docs.snippets import Marker


def search_result(
    state: State, query: str, section: str | None, kind: str | None, limit: int, cursor: str | None
) -> SearchResult:
    """The pages for a query. Raises BadCursor."""
    limit = max(1, min(limit, MOST_LIMIT))
    cursors = Cursors(state.generation, [query, section, kind], MOST_HITS)
    start = cursors.start(cursor)
    connection = state.connection
    planned = plan(connection, query, state.vocabulary)
    found = find(connection, planned, Scope(section, kind))
    marker = Marker(planned.terms)
    hits = [_hit(connection, one, marker) for one in found[start : start + limit]]
    return SearchResult(
        query, hits, len(found), cursors.next(start, limit, len(found)), planned.corrected, state.progress
    )


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
