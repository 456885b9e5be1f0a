"""What one can say about how apps are tried."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct


class TryOptions(Struct, frozen=True, kw_only=True):
    """How apps are tried.

    `static` looks at the texts only, without a browser. `browser` is the path or name of a Chromium, None for the
    first that is found. `app` names the apps to try, each by its URI, its name or one of its tools; empty for all.
    `calls` has the arguments for tools, by their names; for others they are made from the schema. `timeout` is how
    many seconds an app has for its handshake and for each answer. `screenshots` is the folder for pictures, None for
    none. `at_once` is how many apps are shown side by side. With `strict` an app with a warning does not pass.
    """

    static: bool = False
    browser: str | None = None
    app: tuple[str, ...] = ()
    calls: Mapping[str, Mapping[str, Any]] = {}
    timeout: float = 10.0
    screenshots: str | None = None
    at_once: int = 4
    strict: bool = False
