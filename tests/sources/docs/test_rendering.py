"""Pages as HTML for a reader: links that stay inside, sites, images, and nothing that could run."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, strategies as st

from mcpd.sources.docs.page import UnreadablePage
from mcpd.sources.docs.readers.reading import read_page
from mcpd.sources.docs.rendering import MAX_CHARACTERS, names_of, render, resolved

PATHS = ["index.md", "01-basics/01-soil.md", "01-basics/02-water.mdx", "02-more/index.md", "notes.txt"]
NAMES = names_of(PATHS)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("01-soil.md", ("01-basics/01-soil.md", "")),
        ("./01-soil.md#loam", ("01-basics/01-soil.md", "loam")),
        ("../index.md", ("index.md", "")),
        ("soil", ("01-basics/01-soil.md", "")),
        ("/basics/soil/", ("01-basics/01-soil.md", "")),
        ("/basics/soil#loam", ("01-basics/01-soil.md", "loam")),
        ("/more/", ("02-more/index.md", "")),
        ("#when", ("01-basics/02-water.mdx", "when")),
        ("../../../etc/passwd.md", None),
        ("https://example.org/basics/soil", None),
        ("//example.org/soil", None),
        ("javascript:alert(1)", None),
        ("nowhere.md", None),
    ],
)
def test_links_between_pages(target: str, expected: tuple[str, str] | None) -> None:
    assert resolved(target, "01-basics/02-water.mdx", NAMES) == expected


def rendered(text: str, path: str = "01-basics/02-water.mdx") -> str:
    return render(read_page(path, text.encode()), NAMES)


def test_a_page() -> None:
    shown = rendered(
        "# When\n\nSee [soil](01-soil.md#loam 'Loam') and [a site](https://example.org/?a=1&b=2), **not** "
        "[this](javascript:alert%281%29) or [that](other.html).\n\n"
        "```sh\nhose <on>\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n"
        "![A bed](bed.png) ![dot](data:image/png;base64,AAAA) ![no](data:image/svg+xml;base64,AAAA)\n\n## When\n"
    )
    assert '<h1 id="page-when">When</h1>' in shown
    assert '<h2 id="page-when-1">When</h2>' in shown
    assert '<a href="#" data-page="01-basics/01-soil.md" data-anchor="loam" title="Loam">soil</a>' in shown
    assert '<a href="https://example.org/?a=1&amp;b=2" target="_blank" rel="noreferrer noopener">a site</a>' in shown
    assert "<span>this</span>" in shown
    assert "<span>that</span>" in shown
    assert '<pre><code class="language-sh">hose &lt;on&gt;\n</code></pre>' in shown
    assert "<td>1</td>" in shown
    assert '<span class="image">A bed</span>' in shown
    assert '<img src="data:image/png;base64,AAAA" alt="dot">' in shown
    assert '<span class="image">no</span>' in shown
    assert render(read_page("notes.txt", b"a <b> & c")) == "<pre>a &lt;b&gt; &amp; c</pre>\n"


ALLOWED = {
    "a": {"href", "target", "rel", "title", "data-page", "data-anchor"},
    "img": {"src", "alt"}, "code": {"class"}, "span": {"class"}, "ol": {"start"}, "td": {"style"}, "th": {"style"},
    **{f"h{level}": {"id"} for level in range(1, 7)},
    **dict.fromkeys(
        ("p", "pre", "em", "strong", "s", "ul", "li", "blockquote", "hr", "br", "table", "thead", "tbody", "tr"), set()
    ),
}  # fmt: skip


class Checked(HTMLParser):
    """Fails for what a reader must not get."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ALLOWED, tag
        for name, value in attrs:
            assert name in ALLOWED[tag], (tag, name)
            if name == "href":
                assert value == "#" or re.match(r"https?://", value or "", re.IGNORECASE), value
            elif name == "src":
                assert re.match(r"data:image/(png|gif|jpeg|webp);base64,", value or ""), value
            elif name == "style":
                assert re.fullmatch(r"text-align:(left|right|center)", value or ""), value


HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>",
    "[x](JavaScript:alert(1))",
    "[x](data:text/html,<script>)",
    "<a href=javascript:x>y</a>",
    "![x](javascript:x)",
    "<javascript:alert(1)>",
    "[x]: javascript:alert(1)\n\n[x]",
    '```x" onclick="y\n```',
    '# a {#x" onclick="y}',
    "<div\nonclick=x>\n\ny\n\n</div>",
    '[x](https://a.b/"onclick="y)',
    "[x](https://a.b 'q\" onclick=\"y')",
    "<style>*{}</style>",
    "&lt;script&gt;",
    "<!-- --><b>",
    '![x](data:image/png;base64,AA"onerror="y)',
    "<https://a.b/<script>>",
    "[x](//a.b)",
    "[x](vbscript:x)",
    "<![CDATA[<script>]]>",
    "| a |\n|:-:|\n| <b onclick=x> |",
    "[x](\x01javascript:y)",
    "[x](&#106;avascript:y)",
    "<textarea><script>",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_of_a_page_runs(text: str) -> None:
    for path in ("x.md", "x.mdx"):
        Checked().feed(rendered(text, path))


@given(
    st.lists(st.one_of(st.sampled_from(HOSTILE), st.text(max_size=20)), max_size=6), st.sampled_from(["x.md", "x.mdx"])
)
def test_nothing_of_any_page_runs(parts: list[str], path: str) -> None:
    try:
        shown = rendered("".join(parts).encode("utf-8", "replace").decode(), path)
    except UnreadablePage:  # too many controls for a text
        return
    Checked().feed(shown)


@pytest.mark.medium
def test_a_page_that_is_too_long_is_cut() -> None:
    shown = rendered("word " * MAX_CHARACTERS)
    assert len(shown) < MAX_CHARACTERS + 500
    assert "too long to show" in shown
    assert rendered(">" * 10_000 + "a")
    assert rendered("[" * 20_000)
    assert rendered("* " * 3000 + "a")
