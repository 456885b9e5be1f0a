"""A page for a kind of view: one HTML document, put together of the styles and scripts in assets/views.

Each part is read when a page with it is first asked for. Indentation and lines that are only a comment stay behind;
no line of a script or style there may depend on either. What the page is told comes as JSON in an element of its own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from msgspec.json import encode

from mcpd.extensions.ui.assets import bundled_folder

PARTS: Final = {
    "table": ("table",),
    "chart": ("table", "chart"),
    "markdown": ("markdown",),
    "image": ("image",),
    "form": ("table", "markdown", "form"),
    "reader": ("markdown", "image", "page", "reader"),
    "notebook": ("markdown", "image", "page", "notebook"),
}
"""What each kind is made of, beside the base: a chart has its rows as a table, a form shows results of all shapes.

The last two are no kinds of `view=`: each belongs to tools of mcpd's own, and calls another one of them.
"""

_PAGE: Final = """\
<!doctype html>
<html lang="en" data-phase="connecting" data-view="{kind}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style id="fonts"></style>
<style>
{style}
</style>
</head>
<body>
<main aria-busy="true"><p class="state" role="status">Connecting</p></main>
<script type="application/json" id="spec">{spec}</script>
<script>
(() => {{
"use strict";
{script}
connect();
}})();
</script>
</body>
</html>
"""


def page(kind: str, options: Mapping[str, Any], tool: Mapping[str, Any] | None = None) -> str:
    """The document of one kind, with its options; `tool` is the one that a form calls."""
    spec = {"view": kind, **options}
    if tool is not None:
        spec["tool"] = tool
    names = ("base", *PARTS[kind])
    return _PAGE.format(
        kind=kind,
        title=kind.capitalize(),
        spec=_in_script(spec),
        style="\n".join(_part(f"{name}.css") for name in names),
        script="\n".join(_part(f"{name}.js") for name in names),
    )


def _in_script(value: Any) -> str:
    """JSON that ends no script element, and no older JavaScript's line, whatever texts it has."""
    text = encode(value).decode()
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


@cache
def _part(name: str) -> str:
    """One file, without what is for its readers only."""
    path = os.path.join(bundled_folder(), "views", name)
    with open(path, encoding="utf-8") as file:
        text = file.read()
    return "\n".join(_without_comments(text))


def _without_comments(text: str) -> list[str]:
    """The lines that say something, without indentation. A comment has its own lines, or ends one, two spaces off."""
    kept = []
    is_comment = False
    for line in map(str.strip, text.splitlines()):
        is_comment = is_comment or line.startswith("/*")
        if is_comment:
            is_comment = not line.endswith("*/")
        elif line and not line.startswith("//"):
            kept.append(line.partition("  // ")[0])
    return kept
