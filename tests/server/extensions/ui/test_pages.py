"""The pages themselves: what is in them, and what must not be (APP-S-04, APP-V-05, APP-V-07)."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
from conftest import REPOSITORY

from mcpd.server.extensions.ui.assets import html_problems
from mcpd.server.extensions.ui.pages import PARTS, page

FOLDER = REPOSITORY / "assets" / "views"
LIMITS = {"table": 42_000, "chart": 60_000, "markdown": 38_000, "image": 32_000, "form": 82_000,
          "reader": 82_000, "notebook": 72_000}  # fmt: skip
NAMESPACES = {"http://www.w3.org/2000/svg", "http://www.w3.org/1998/Math/MathML"}

each_kind = pytest.mark.parametrize("kind", PARTS)


@each_kind
def test_it_is_one_document_that_needs_nothing_else(kind: str) -> None:
    html = page(kind, {})
    assert html_problems(kind, html) == []
    assert len(html.encode()) <= LIMITS[kind]
    addresses = set(re.findall(r"https?://[^\s\"'`)\\]+", html)) - NAMESPACES
    assert not {one for one in addresses if not one.startswith(("https?:", "https://…"))}
    assert not re.search(r"<(link|img|iframe|script src)|@import|\burl\((?!\|)", html)


@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda path: path.name)
def test_nothing_of_the_data_can_become_markup_or_code(path: Path) -> None:
    """The only ways to make elements are createElement and text; none of the others is even named."""
    text = path.read_text(encoding="utf-8")
    if path.name == "page.js":
        # It reads HTML in a document of its own and makes elements of names that it knows; the hostile ones that it is
        # given are in tests/apps.
        text = text.replace("new DOMParser().parseFromString(", "", 1)
    for word in (
        "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser", "createContextualFragment",
        "srcdoc", "eval(", "new Function", "localStorage", "sessionStorage", "indexedDB", "Worker(", "import(",
        "fetch(", "XMLHttpRequest", "WebSocket", "createObjectURL", "setTimeout(\"", ".cookie",
    ):  # fmt: skip
        assert word not in text, word


def test_what_it_is_told_ends_no_script() -> None:
    html = page("chart", {"title": "</script><script>alert(1)</script><!--", "x": "a&b\u2028"})
    found = re.search(r'<script type="application/json" id="spec">(.*?)</script>', html)
    assert found is not None
    told: dict[str, Any] = json.loads(found[1])
    assert told == {"view": "chart", "title": "</script><script>alert(1)</script><!--", "x": "a&b\u2028"}
    assert html.count("<script") == 2


def test_comments_and_indentation_stay_behind() -> None:
    source = (FOLDER / "base.js").read_text(encoding="utf-8")
    html = page("table", {})
    assert "/* What all pages share" in source
    assert "What all pages share" not in html
    assert not re.search(r"^\s+\S", html, re.MULTILINE)


def test_the_wheel_has_them(tmp_path: Path) -> None:
    builder = pytest.importorskip("hatchling.builders.wheel")
    [wheel] = builder.WheelBuilder(str(REPOSITORY)).build(directory=str(tmp_path), versions=["standard"])
    names = zipfile.ZipFile(wheel).namelist()
    assert {name for name in names if name.startswith("mcpd/_assets/views/")} == {
        f"mcpd/_assets/views/{path.name}" for path in FOLDER.iterdir()
    }
