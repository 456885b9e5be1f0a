"""A Chromium on this machine: named by the user, in the usual places, or one that Playwright has fetched."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from mcpd.errors import ConfigurationError

VARIABLE: Final = "MCPD_CHROMIUM"
"""The variable that names the browser."""

HOW_TO_GET_ONE: Final = (
    f"install one (apt-get install chromium, or Google Chrome), or python -m playwright install chromium, or name "
    f"one by --browser PATH or {VARIABLE}; without a browser: --static"
)

_NAMES: Final = (
    "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge",
    "microsoft-edge-stable", "msedge", "brave-browser",
)  # fmt: skip
_MAC: Final = (
    "Google Chrome.app/Contents/MacOS/Google Chrome",
    "Chromium.app/Contents/MacOS/Chromium",
    "Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
    "Brave Browser.app/Contents/MacOS/Brave Browser",
)
_WINDOWS: Final = (
    "Google/Chrome/Application/chrome.exe",
    "Chromium/Application/chrome.exe",
    "Microsoft/Edge/Application/msedge.exe",
)
# Below Playwright's folder, in any of its versions.
_PLAYWRIGHT: Final = (
    "chromium-*/chrome-linux*/chrome",
    "chromium_headless_shell-*/chrome-*/*headless*shell*",
    "chromium-*/chrome-mac*/*.app/Contents/MacOS/*",
    "chromium-*/chrome-win*/chrome.exe",
)


def find_browser(
    named: str | None = None, *, environment: Mapping[str, str] = os.environ, platform: str = sys.platform
) -> str:
    """The path of a Chromium: the one that is `named`, that `MCPD_CHROMIUM` names, or the first that is found.

    Raises ConfigurationError with how to get one, also if the one that was named is not there.
    """
    for name, what in ((named, "--browser"), (environment.get(VARIABLE), VARIABLE)):
        if name:
            found = shutil.which(name, path=environment.get("PATH"))
            if found is None:
                raise ConfigurationError(f"{what} {name}: there is no such program; {HOW_TO_GET_ONE}")
            return found
    found = next(_candidates(environment, platform), None)
    if found is None:
        raise ConfigurationError(f"there is no Chromium on this machine; {HOW_TO_GET_ONE}")
    return found


def _candidates(environment: Mapping[str, str], platform: str) -> Iterator[str]:
    for name in _NAMES:
        if found := shutil.which(name, path=environment.get("PATH", "")):
            yield found
    home = Path(environment.get("HOME") or environment.get("USERPROFILE") or "/nonexistent")
    places: list[Path] = []
    if platform == "darwin":
        places = [folder / app for folder in (Path("/Applications"), home / "Applications") for app in _MAC]
        fetched = home / "Library/Caches/ms-playwright"
    elif platform == "win32":
        folders = [environment.get(name) for name in ("PROGRAMFILES", "PROGRAMFILES(X86)", "LOCALAPPDATA")]
        places = [Path(folder, app) for folder in folders if folder for app in _WINDOWS]
        fetched = Path(environment.get("LOCALAPPDATA") or home, "ms-playwright")
    else:
        fetched = Path(environment.get("XDG_CACHE_HOME") or home / ".cache", "ms-playwright")
    yield from (str(place) for place in places if place.is_file())

    own = Path(environment.get("PLAYWRIGHT_BROWSERS_PATH") or fetched)
    for pattern in _PLAYWRIGHT:
        # The newest version, by its number.
        for place in sorted(own.glob(pattern), key=lambda path: (len(str(path)), str(path)), reverse=True):
            if place.is_file() and os.access(place, os.X_OK):
                yield str(place)
