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

__all__ = ["DARK", "FORM_TOOL", "LIGHT", "MARKDOWN", "SAMPLES", "data", "look", "png", "text"]

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

SAMPLES: dict[str, tuple[dict[str, Any], str]] = {
    "table": (data(_SALES), "tbody tr"),
    "chart": (data([row for row in _SALES if row["region"] == "North"]), ".plot svg path"),
    "markdown": (text(MARKDOWN), ".markdown h1"),
    "image": ({"content": [{"type": "image", "data": png(), "mimeType": "image/png"}]}, ".stage img"),
    "form": (data([{"day": "2026-03-01", "high": 12.5}]), ".outcome tbody tr"),
}
"""For each kind a result, and what is there once it is shown."""

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
