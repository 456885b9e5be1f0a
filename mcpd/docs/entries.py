"""Where a command or a setting is described: pages, headings and items of its name."""

from __future__ import annotations

import re
import sqlite3

from mcpd.docs.indexing import CHUNK_BITS
from mcpd.docs.query import MOST_CHARACTERS, Term, storable, words_of
from mcpd.docs.results import Entry, EntryResult
from mcpd.docs.search import MOST_LIMIT, Scope, State
from mcpd.docs.spelling import near_names

_MOST_ENTRY = 4000
_NO_NAME = re.compile(r"[\W_]+")


def entry_result(state: State, name: str, section: str | None, limit: int) -> EntryResult:
    """Where a name is described: pages and headings of that name, then items that it begins, then headings with it."""
    limit = max(1, min(limit, MOST_LIMIT))
    connection = state.connection
    words = words_of(storable(name[:MOST_CHARACTERS]))
    if not words:
        return EntryResult(name, [], [], state.progress)
    wanted = _NO_NAME.sub("", name[:MOST_CHARACTERS].lower())
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
    return EntryResult(name, entries[:limit], near, state.progress)


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
        # A row may be of a table that compares; what defines a name is a list more often.
        return 3 if item.lstrip().startswith("|") else 2, Entry(path, title, section, heading, anchor, _cut(item), True)
    if wanted in plain_heading or (is_first and wanted in plain_title):
        return 3, Entry(path, title, section, heading, anchor, _cut(text), False)
    return None


def _item(text: str, words: tuple[str, ...]) -> str | None:
    """The item of a list, or the row of a table, that begins with a name, and the lines that belong to it."""
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
    return text if len(text) <= _MOST_ENTRY else text[:_MOST_ENTRY].rstrip() + " …"


def _names(connection: sqlite3.Connection) -> list[str]:
    titles = connection.execute("SELECT DISTINCT title FROM files WHERE title IS NOT NULL LIMIT 50000")
    headings = connection.execute("SELECT DISTINCT heading FROM chunks WHERE heading != '' LIMIT 50000")
    return [name for rows in (titles, headings) for (name,) in rows if len(name) <= 80]
