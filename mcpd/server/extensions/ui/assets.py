"""Apps from a folder, and checks of their HTML: `x.html` has the metadata `x.json` and the URI `ui://<namespace>/x`.

Files are read once. Missing and broken ones become problems and are left out; the server starts anyway (APP-S-18). A
link must lead to another file of the folder: users who can write there must not publish files that only the server may
read. The checks of HTML are for size, doctype and encoding; the limits are those of known hosts. Spec: MCP Apps
2026-01-26, "Content Requirements" (APP-S-04).
"""

from __future__ import annotations

import errno
import os
from typing import Any, Final

from msgspec import Struct
from msgspec.json import decode

from mcpd.protocol.jsonrpc import MALFORMED
from mcpd.server.folder_files import read_within
from mcpd.server.registry.entries import Problem
from .meta import ViewMeta, read_view_meta

WARN_HTML_BYTES: Final = 1024 * 1024
MAX_HTML_BYTES: Final = 16 * 1024 * 1024

# HTML: the declaration has to lie within the first 1024 bytes of the document.
_DECLARED_WITHIN: Final = 1024
_LEGACY_STRINGS: Final = ("", 'system "about:legacy-compat"', "system 'about:legacy-compat'")


def html_problems(where: str, html: str) -> list[Problem]:
    """Return all problems of a document, errors first."""
    try:
        data = html.encode()
    except UnicodeEncodeError as error:
        return [Problem(where, f"character {error.start} cannot be written as UTF-8 (it is half of a surrogate pair)")]

    problems = []
    if len(data) > MAX_HTML_BYTES:
        problems.append(Problem(where, f"{len(data)} bytes of HTML; hosts refuse more than {MAX_HTML_BYTES}"))

    start = _skip_comments(html)
    if start == len(html):
        problems.append(Problem(where, "the HTML is empty"))
    elif found := _wrong_doctype(html[start : start + 200].lower()):
        problems.append(Problem(where, f"not a complete HTML5 document: {found}; begin it with <!doctype html>"))

    if WARN_HTML_BYTES < len(data) <= MAX_HTML_BYTES:
        text = f"{len(data)} bytes of HTML: apps over {WARN_HTML_BYTES} start slowly"
        problems.append(Problem(where, text, is_error=False))

    declared = _charset(data[:_DECLARED_WITHIN].lower())
    if not declared:
        text = f'no <meta charset="utf-8"> within the first {_DECLARED_WITHIN} bytes: some hosts guess another encoding'
        problems.append(Problem(where, text, is_error=False))
    elif declared not in (b"utf-8", b"utf8"):
        text = f"declares charset {declared.decode('ascii', 'replace')}, but apps are sent as UTF-8; declare utf-8"
        problems.append(Problem(where, text, is_error=False))

    return problems


def _wrong_doctype(begin: str) -> str:
    # Return what is wrong with the beginning of a document; "" for the doctype of HTML5.
    if not begin.startswith("<!doctype"):
        return "no doctype"
    name, _, rest = begin[len("<!doctype") :].partition(">")[0].strip().partition(" ")
    return "" if name == "html" and " ".join(rest.split()) in _LEGACY_STRINGS else "an older doctype"


def _charset(begin: bytes) -> bytes:
    # Return the encoding that the first bytes of a document declare, or b"".
    for tag in begin.split(b"<meta")[1:]:
        _, found, value = tag.partition(b">")[0].partition(b"charset")
        if found and value.lstrip()[:1] == b"=":
            words = value.lstrip()[1:].strip(b" \t\r\n\f\"'/").replace(b'"', b" ").replace(b"'", b" ").split()
            return words[0] if words else b""
    return b""


def _skip_comments(html: str) -> int:
    # Return the position after white space and comments; the length if nothing follows.
    position = 0
    while True:
        while position < len(html) and (html[position].isspace() or html[position] == "\ufeff"):
            position += 1
        if not html.startswith("<!--", position):
            return position
        end = html.find("-->", position + 4)
        if end < 0:
            return len(html)
        position = end + 3


MAX_METADATA_BYTES = 1024 * 1024


class AppFile(Struct, kw_only=True):
    """One HTML file and its metadata, with the problems of the metadata."""

    path: str
    name: str
    html: str
    title: str | None = None
    description: str | None = None
    meta: ViewMeta
    problems: tuple[Problem, ...] = ()


def load_folder(folder: str) -> tuple[list[AppFile], list[Problem]]:
    """Return all `*.html` of a folder, sorted by name, and the problems of files that cannot be used."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".html") and name[0] != ".")
    except OSError as error:
        return [], [Problem(f"apps folder {folder}", f"cannot be read ({error.strerror}); going on without its apps")]
    loaded = [load_app(os.path.join(folder, name), folder) for name in names]
    return [app for app in loaded if isinstance(app, AppFile)], [one for one in loaded if isinstance(one, Problem)]


def load_app(path: str, folder: str = "") -> AppFile | Problem:
    """Return the app of an HTML file, or the problem. With a `folder`, all files must be inside it."""
    where = f"app {path}"
    try:
        data = read_within(path, folder, MAX_HTML_BYTES + 1)
        html = data.decode().removeprefix("\ufeff")
    except OSError as error:
        return Problem(where, f"cannot be read ({error.strerror}); going on without it")
    except UnicodeDecodeError as error:
        return Problem(where, f"is not UTF-8 (byte {error.start}); save it as UTF-8. Going on without it")

    if len(data) > MAX_HTML_BYTES:
        return Problem(where, f"is larger than {MAX_HTML_BYTES} bytes, which hosts refuse; going on without it")
    problems: list[Problem] = []
    members = _metadata(os.path.splitext(path)[0] + ".json", folder, problems)
    meta = read_view_meta(where, members.get("ui"))
    return AppFile(
        path=path,
        name=os.path.splitext(os.path.basename(path))[0],
        html=html,
        title=_text(members, "title", where, problems),
        description=_text(members, "description", where, problems),
        meta=meta,
        problems=(*problems, *meta.problems),
    )


def _metadata(path: str, folder: str, problems: list[Problem]) -> dict[str, Any]:
    where = f"app metadata {path}"
    try:
        data = read_within(path, folder, MAX_METADATA_BYTES + 1)
        if len(data) > MAX_METADATA_BYTES:
            raise OSError(errno.EFBIG, f"larger than {MAX_METADATA_BYTES} bytes")
        members = decode(data.removeprefix(b"\xef\xbb\xbf"))
    except FileNotFoundError:
        return {}
    except (OSError, *MALFORMED) as error:
        problems.append(Problem(where, f"cannot be used ({error}); the app is served without it"))
        return {}

    if not isinstance(members, dict):
        problems.append(Problem(where, "is not a JSON object; the app is served without it"))
        return {}

    meta = members.get("_meta")
    if isinstance(meta, dict) and meta.keys() == {"ui"} and "ui" not in members:  # as in the resource
        members["ui"] = members.pop("_meta")["ui"]
    if "_meta.ui" in members and "ui" not in members:
        members["ui"] = members.pop("_meta.ui")
    for name in sorted(members.keys() - {"ui", "title", "description"}):
        text = f"ignores {name!r}: use ui, title and description"
        if name in ("_meta", "_meta.ui"):
            text = f'{name} is not used; write {{"ui": {{…}}}} instead, with all metadata of the app'
        problems.append(Problem(where, text, is_error=False))
    return members


def _text(members: dict[str, Any], name: str, where: str, problems: list[Problem]) -> str | None:
    value = members.get(name)
    if value is None or isinstance(value, str):
        return value
    problems.append(Problem(where, f"{name} must be a string; it is left out"))
    return None
