"""The bundled views on stage: what each kind is shown with, and what has to be so of every page that is shown.

Lives here: samples, and looks at a page that more than one module of tests/apps takes. Never here: fixtures, hosts.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from typing import Any

from support.browser import Frame

__all__ = [
    "CALLED",
    "CELLS",
    "DARK",
    "FORM_TOOL",
    "HITS",
    "LIGHT",
    "MARKDOWN",
    "PAGE",
    "SAMPLES",
    "data",
    "look",
    "png",
    "text",
]

LIGHT, DARK = "light", "dark"


def png(width: int = 64, height: int = 40) -> str:
    """A PNG of one colour, as base64."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\x30\x60\xc0" * width) * height)
    whole = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return base64.b64encode(whole).decode()


def text(words: str) -> dict[str, Any]:
    """A result that is text."""
    return {"content": [{"type": "text", "text": words}]}


def data(value: Any) -> dict[str, Any]:
    """A result that is data, as a tool of ours gives it."""
    return {
        "content": [{"type": "text", "text": json.dumps(value)}],
        "structuredContent": value if isinstance(value, dict) else {"result": value},
    }


MARKDOWN = """# Notes

This is **bold**, *slanted*, `code` and a [link](https://example.com/a_b?c=d).

- one
  - inner
- [x] done

> quoted

```python
print("<b>")
```

| Plan | Price |
| :--- | ----: |
| Free | 0 |
"""

FORM_TOOL: dict[str, Any] = {
    "name": "forecast",
    "title": "Forecast",
    "description": "The weather of the next days.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "minLength": 2, "description": "The city"},
            "days": {"type": "integer", "minimum": 1, "maximum": 14, "default": 3},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
            "start": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}], "default": None},
            "hourly": {"type": "boolean", "default": False},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 9}, "default": []},
            "measures": {"type": "array", "items": {"enum": ["wind", "rain"]}, "default": []},
            "place": {
                "type": "object",
                "properties": {
                    "latitude": {"type": "number", "minimum": -90, "maximum": 90},
                    "longitude": {"type": "number"},
                },
                "required": ["latitude", "longitude"],
            },
            "more": {"type": "object", "additionalProperties": True},
        },
        "required": ["city", "days"],
    },
}

_SALES = [
    {"month": f"2026-{month:02}-01", "region": region, "sales": 12000.5 + month * 100, "orders": 90 + month}
    for month in range(1, 13)
    for region in ("North", "South")
]

HITS: dict[str, Any] = {
    "query": "filter units",
    "total": 12,
    "results": [
        {
            "path": "02-guides/units.md",
            "title": "Units",
            "section": "guides",
            "heading": "Filters",
            "anchor": "filters",
            "snippet": "How to filter the \U0001f33f units that a run takes",
            "highlights": [[7, 13], [20, 25]],
        },
        {"path": "index.md", "title": "Welcome", "section": "", "snippet": "Units, and more", "highlights": [[0, 5]]},
    ],
    "next_cursor": "c2",
}
"""What a search of documents gives, under its default names."""

PAGE: dict[str, Any] = {
    "path": "02-guides/units.md",
    "title": "Units",
    "section": "guides",
    "section_title": "Guides",
    "html": (
        '<h1 id="page-units">Units</h1><p>What a <em>unit</em> is; see <a href="#" data-page="02-guides/stacks.md" '
        'data-anchor="deep">stacks</a>, <a href="#" data-page="02-guides/units.md" data-anchor="filters">below</a> and '
        '<a href="https://example.com/x" target="_blank">the site</a>.</p>'
        '<pre><code class="language-hcl">unit "a" {\n  path = "x"\n}\n</code></pre>'
        '<h2 id="page-kinds">Kinds</h2><ul><li>[ ] one</li><li>two</li></ul>'
        '<h2 id="page-filters">Filters</h2><table><thead><tr><th>Name</th><th>Takes</th></tr></thead>'
        "<tbody><tr><td>glob</td><td>2</td></tr></tbody></table>" + "<p>More about it.</p>" * 40
    ),
    "toc": [
        {"level": 1, "title": "Units", "anchor": "units"},
        {"level": 2, "title": "Kinds", "anchor": "kinds"},
        {"level": 2, "title": "Filters", "anchor": "filters"},
    ],
    "next": {"path": "02-guides/stacks.md", "title": "Stacks"},
}
"""A page, as the tool gives it that is for the reader alone."""

CELLS: dict[str, Any] = {
    "path": "resources/spring.ipynb",
    "cells": [
        {
            "kind": "markdown",
            "source": "",
            "html": '<h1>Spring</h1><p><math display="block"><mrow><msup><mi>x</mi><mn>2</mn></msup></mrow></math></p>',
        },
        {
            "kind": "code",
            "source": "frame.head()",
            "count": 3,
            "outputs": [
                {"kind": "text", "text": "\x1b[31mred\x1b[0m and \x1b[1mstrong\x1b[0m"},
                {"kind": "html", "html": "<table><tr><th>a</th></tr><tr><td>1.5</td></tr></table>"},
                {"kind": "image", "type": "image/png", "data": png(), "alt": "A plot"},
                {"kind": "error", "name": "KeyError", "value": "'none'", "text": "\x1b[32mline 1\x1b[0m"},
                {"kind": "text", "text": "careful", "stream": "stderr"},
            ],
        },
        {"kind": "markdown", "source": "**by itself**"},
        {"kind": "raw", "source": "raw"},
        {"kind": "broken", "reason": "a cell that is no object"},
    ],
}
"""Cells of a notebook, as the tool gives them that is for its page alone."""

SAMPLES: dict[str, tuple[dict[str, Any], str]] = {
    "table": (data(_SALES), "tbody tr"),
    "chart": (data([row for row in _SALES if row["region"] == "North"]), ".plot svg path"),
    "markdown": (text(MARKDOWN), ".markdown h1"),
    "image": ({"content": [{"type": "image", "data": png(), "mimeType": "image/png"}]}, ".stage img"),
    "form": (data([{"day": "2026-03-01", "high": 12.5}]), ".outcome tbody tr"),
    "reader": (data(HITS), ".hits mark"),
    "notebook": (data({"path": "resources/spring.ipynb", "title": "Spring", "cells": 5}), ".cell math"),
}
"""For each kind a result, and what is there once it is shown."""

CALLED: dict[str, dict[str, Any]] = {
    "reader": {"content": [], "structuredContent": PAGE},
    "notebook": {"content": [], "structuredContent": CELLS},
}
"""What the tool gives that the reader and the notebook call themselves."""

_LOOK = """() => {
  const parse = (colour) => {
    const [r, g, b, a = 1] = colour.match(/[\\d.]+/g).map(Number);
    return { r, g, b, a };
  };
  const part = (value) => (value / 255 <= 0.03928 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  const light = ({ r, g, b }) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const found = parse(getComputedStyle(at).backgroundColor);
      if (found.a === 1) return found;
    }
    return { r: 255, g: 255, b: 255, a: 1 };
  };
  const pale = [], unnamed = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode.parentElement, words = walk.currentNode.textContent.trim().slice(0, 30);
    if (!words || !node.checkVisibility() || node.closest("script, style, option, svg, .seen, :disabled")) continue;
    const [a, b] = [light(parse(getComputedStyle(node).color)), light(ground(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) pale.push(`${node.tagName}.${node.className} ${ratio.toFixed(2)} ${words}`);
  }
  for (const node of document.querySelectorAll("button, input, select, textarea, img, [role=region], svg[role]")) {
    const named = node.ariaLabel || node.textContent.trim() || node.labels?.length || node.hasAttribute("alt");
    if (!named) unnamed.push(node.outerHTML.slice(0, 120));
  }
  return {
    pale, unnamed,
    ground: light(ground(document.querySelector("main"))),
  };
}"""


async def look(view: Frame, scheme: str) -> None:
    """What has to be so of every page: it has the host's theme, can be read, fits its frame, and names its controls."""
    await view.until(f"getComputedStyle(document.documentElement).colorScheme === '{scheme}'")
    await view.until("document.documentElement.scrollWidth <= innerWidth")
    seen = await view.call(_LOOK)
    assert seen["pale"] == []
    assert seen["unnamed"] == []
    assert (seen["ground"] > 0.8) is (scheme == LIGHT)
