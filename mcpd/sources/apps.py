"""The `apps/` folder: `apps/x.html`, with optional metadata in `apps/x.json`, is the View of the tool `x`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import cast

from msgspec import Struct

from mcpd.server import Server
from mcpd.server.extensions.ui.apps import AppEntry
from mcpd.server.extensions.ui.assets import AppFile, load_app
from mcpd.server.extensions.ui.constants import UI, app_uri
from mcpd.server.extensions.ui.extension import AppsExtension
from .files import MAX_PER_KIND, Report, files_of, stamp_of

_NAME = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")


class FolderApp(Struct, frozen=True, eq=False):
    """One HTML file. `stamp` changes when the file or its metadata changes."""

    name: str
    stamp: object
    entry: AppEntry


def apps_of(server: Server, folder: str, report: Report, before: Mapping[str, FolderApp]) -> dict[str, FolderApp]:
    """Return the apps in a folder by path. Of `before`, unchanged apps are reused, and unreadable ones stay."""
    found: dict[str, FolderApp] = {}
    names: set[str] = set()
    apps = cast("AppsExtension", server.extensions[UI]).apps
    for file in files_of(folder, report, limit=MAX_PER_KIND, is_wanted=lambda path: path.endswith(".html")):
        name = "_".join((*file.parts[:-1], file.stem))
        if not _NAME.issuperset(name):
            report.error(file.path, "its name may contain only letters, digits, '_', '-' and '.'; it is left out")
            continue
        if name in names:
            report.error(file.path, f"another file already has the app name {name}; it is left out")
            continue
        names.add(name)
        page, stamp = before.get(file.path), (file.stamp, stamp_of(os.path.splitext(file.path)[0] + ".json"))
        if page is None or page.stamp != stamp:
            loaded = load_app(file.path, folder)
            if isinstance(loaded, AppFile):
                page = FolderApp(name, stamp, apps.file_entry(loaded, app_uri(server.name, name)))
            else:
                report.error(file.path, loaded.text)
        if page is not None:
            found[file.path] = page

    return found
