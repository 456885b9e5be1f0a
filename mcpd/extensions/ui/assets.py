"""Views from a folder: `x.html` is the HTML, `x.json` beside it the metadata, `ui://<namespace>/x` the URI.

Read once, when asked. What is missing or broken is logged and left out; a server never fails to
start for it (APP-S-18).
"""

from __future__ import annotations

import logging
import os
from typing import Any

from msgspec import Struct
from msgspec.json import decode

from ...jsonrpc import MALFORMED

__all__ = ["App", "bundled_folder", "load_app", "load_folder"]

log = logging.getLogger("mcpd")

MAX_HTML_BYTES = 16 * 1024 * 1024


class App(Struct, kw_only=True):
    """One View: its URI, its HTML, and `_meta` for its resource (`{"ui": {…}}`, or None)."""

    name: str
    uri: str
    html: str
    title: str | None = None
    description: str | None = None
    meta: dict[str, Any] | None = None


def bundled_folder() -> str:
    """The folder of the apps that come with mcpd: inside the installed package, or beside it in a checkout."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    installed = os.path.join(package, "_assets", "apps")
    return installed if os.path.isdir(installed) else os.path.join(os.path.dirname(package), "assets", "apps")


def load_folder(folder: str, namespace: str) -> list[App]:
    """Every `*.html` of a folder, in order of name."""
    try:
        names = sorted(entry for entry in os.listdir(folder) if entry.endswith(".html"))
    except OSError as error:
        log.error("apps folder %s cannot be read (%s); going on without its apps", folder, error.strerror)
        return []
    apps = [load_app(os.path.join(folder, name), namespace) for name in names]
    return [app for app in apps if app is not None]


def load_app(path: str, namespace: str) -> App | None:
    """One View from its HTML file, or None if that cannot be used."""
    name = os.path.splitext(os.path.basename(path))[0]
    try:
        with open(path, encoding="utf-8") as file:
            html = file.read(MAX_HTML_BYTES + 1)
    except (OSError, UnicodeDecodeError) as error:
        log.error("app %s cannot be read (%s); going on without it", path, error)
        return None
    if len(html) > MAX_HTML_BYTES:
        log.error("app %s is larger than %d bytes, which no host takes; going on without it", path, MAX_HTML_BYTES)
        return None
    data = _metadata(os.path.splitext(path)[0] + ".json")
    ui = data.get("ui")
    return App(
        name=name,
        uri=f"ui://{namespace}/{name}",
        html=html,
        title=data.get("title") if isinstance(data.get("title"), str) else None,
        description=data.get("description") if isinstance(data.get("description"), str) else None,
        meta={"ui": ui} if isinstance(ui, dict) else None,
    )


def _metadata(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            data = decode(file.read())
    except FileNotFoundError:
        return {}
    except (OSError, *MALFORMED) as error:
        log.error("app metadata %s cannot be used (%s); going on without it", path, error)
        return {}
    if not isinstance(data, dict):
        log.error("app metadata %s is no JSON object; going on without it", path)
        return {}
    return data
