"""Apps from a folder: `x.html` is the HTML, `x.json` beside it the metadata, `ui://<namespace>/x` the URI.

Read once, when asked. What is missing or broken becomes a problem and is left out; a server never fails to
start for it (APP-S-18). A link may lead to another file of the folder, and nowhere else: whoever may write into the
folder must not be able to publish what only the server may read.
"""

from __future__ import annotations

import errno
import os
from typing import Any

from msgspec import Struct
from msgspec.json import decode

from mcpd.extensions.ui.html import MAX_HTML_BYTES
from mcpd.extensions.ui.meta import ViewMeta, read_view_meta
from mcpd.protocol.jsonrpc import MALFORMED
from mcpd.server.folder_files import read_within
from mcpd.server.registry.entries import Problem

MAX_METADATA_BYTES = 1024 * 1024


class AppFile(Struct, kw_only=True):
    """What one HTML file and its metadata say. `problems` are those of the metadata."""

    path: str
    name: str
    html: str
    title: str | None = None
    description: str | None = None
    meta: ViewMeta
    problems: tuple[Problem, ...] = ()


def bundled_folder() -> str:
    """The folder of the assets that come with mcpd: inside the installed package, or beside it in a checkout."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    installed = os.path.join(package, "_assets")
    return installed if os.path.isdir(installed) else os.path.join(os.path.dirname(package), "assets")


def load_folder(folder: str) -> tuple[list[AppFile], list[Problem]]:
    """Every `*.html` of a folder, in order of name, and why others are missing."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".html") and name[0] != ".")
    except OSError as error:
        return [], [Problem(f"apps folder {folder}", f"cannot be read ({error.strerror}); going on without its apps")]
    loaded = [load_app(os.path.join(folder, name), folder) for name in names]
    return [app for app in loaded if isinstance(app, AppFile)], [one for one in loaded if isinstance(one, Problem)]


def load_app(path: str, folder: str = "") -> AppFile | Problem:
    """One app from its HTML file, or why that cannot be used. With a `folder` its files have to be in there."""
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
        problems.append(Problem(where, f"cannot be used ({error}); the app goes without it"))
        return {}

    if not isinstance(members, dict):
        problems.append(Problem(where, "is no JSON object; the app goes without it"))
        return {}

    meta = members.get("_meta")
    if isinstance(meta, dict) and meta.keys() == {"ui"} and "ui" not in members:  # as it is called in the resource
        members["ui"] = members.pop("_meta")["ui"]
    if "_meta.ui" in members and "ui" not in members:
        members["ui"] = members.pop("_meta.ui")
    for name in sorted(members.keys() - {"ui", "title", "description"}):
        text = f"has no use for {name!r}: only ui, title and description"
        if name in ("_meta", "_meta.ui"):
            text = f'{name} is not used; write {{"ui": {{…}}}} in its place, with all that belongs to the app'
        problems.append(Problem(where, text, is_error=False))
    return members


def _text(members: dict[str, Any], name: str, where: str, problems: list[Problem]) -> str | None:
    value = members.get(name)
    if value is None or isinstance(value, str):
        return value
    problems.append(Problem(where, f"{name} must be a string; it is left out"))
    return None
