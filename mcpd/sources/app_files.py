"""Pages that show the results of tools: `apps/x.html`, with `x.json` beside it, is the View of the tool `x`."""

from __future__ import annotations

from typing import cast

from ..extensions.ui.apps import AppEntry
from ..extensions.ui.assets import AppFile, load_app
from ..extensions.ui.constants import UI
from ..extensions.ui.extension import AppsExtension
from ..extensions.ui.uris import app_uri
from ..server import Server
from .reports import Report
from .tree import MOST_OF_A_KIND, files_of

__all__ = ["apps_of", "has_page"]

_NAME = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")


def apps_of(server: Server, folder: str, report: Report) -> dict[str, AppEntry]:
    """The HTML files of a folder by name; those in sub-folders have its name before theirs, as tools have."""
    found: dict[str, AppEntry] = {}
    apps = cast("AppsExtension", server.extensions[UI]).apps
    for file in files_of(folder, report, most=MOST_OF_A_KIND, is_wanted=lambda parts: parts[-1].endswith(".html")):
        name = "_".join((*file.parts[:-1], file.stem))
        if not _NAME.issuperset(name):
            report.error(file.path, "its name is to have letters, digits, '_', '-' and '.' only; it is left out")
            continue
        loaded = load_app(file.path, folder)
        if not isinstance(loaded, AppFile):
            report.error(file.path, loaded.text)
            continue
        if name in found:
            report.error(file.path, f"there is an app {name} already; it is left out")
            continue
        found[name] = apps.file_entry(loaded, app_uri(server.name, name))
    return found


def has_page(options: dict[str, object]) -> bool:
    """Whether a tool says itself what shows its results."""
    return any(options.get(option) is not None for option in ("ui", "view", "meta"))
