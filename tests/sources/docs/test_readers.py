"""Readers: what is left of each kind of file, and what no file may do."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from markdown_it import MarkdownIt

from mcpd.sources.docs.addresses import page_head
from mcpd.sources.docs.page import Page, UnreadablePage
from mcpd.sources.docs.readers.html import read_html
from mcpd.sources.docs.readers.markdown import scan_lines
from mcpd.sources.docs.readers.reading import ReaderProcess, read_page
from mcpd.sources.docs.readers.rst import read_rst
from mcpd.sources.docs.readers.text import read_pdf
from mcpd.sources.docs.rendering import render


@pytest.fixture(scope="module")
def process() -> Iterator[ReaderProcess]:
    process = ReaderProcess(20)
    yield process
    process.close()


def read(path: str, text: str) -> Page:
    return read_page(path, text.encode())


# ------------------------------------------------------------------------------------ Markdown

MARKDOWN = """---
title: "Beds: a plan"   # as the site shows it
description: >
  Where things
  grow.
sidebar:
  order: 3
tags: [a, 'b']
---
<!-- # no heading -->
Intro with [a link](water.md#when "x"), ![an image](x.png) and `code`.

Setext *title*
--------------

```python title="x"
# no heading
```

    # code by indentation

## `closed` heading {#own-id} ##

~~~~
```
## no heading
~~~~

## Twice
## Twice
"""


def test_markdown() -> None:
    page = read("02-plan.md", MARKDOWN)
    assert (page.title, page.description, page.order) == ("Beds: a plan", "Where things grow.", 3)
    assert [(one.level, one.title, one.anchor) for one in page.headings] == [
        (2, "Setext title", "setext-title"), (2, "closed heading", "own-id"), (2, "Twice", "twice"),
        (2, "Twice", "twice-1"),
    ]  # fmt: skip
    assert [(one.language, one.text) for one in page.code] == [("python", "# no heading"), ("", "```\n## no heading")]
    assert "no heading -->" not in page.text
    assert page.text[page.headings[0].start :].startswith("Setext *title*\n")


LINES = st.sampled_from(
    ["# one", "## two ##", "####### seven", "#none", "text", "text *more*", "===", "---", "- item", "> quote", "", "",
     "```", "~~~", "```sh", "    indented", "1. one", "<b>x</b>"]
)  # fmt: skip


@given(st.lists(LINES, max_size=14))
def test_headings_are_those_of_a_whole_parser(lines: list[str]) -> None:
    """In texts whose headings and fences stand at the left, which is where they are looked for."""
    text = "\n".join(lines)
    tokens = MarkdownIt("commonmark").parse(text)
    expected = [
        (int(token.tag[1]), token.map[0])
        for token in tokens
        if token.type == "heading_open" and token.level == 0 and token.map is not None
    ]
    found = [(title.level, text[: title.start].count("\n")) for title in scan_lines(text).titles]
    in_html = any(token.type == "html_block" for token in tokens)  # goes on to the next empty line
    lazy = any(token.type in ("blockquote_open", "list_item_open") for token in tokens)
    if not in_html and not lazy:
        assert found == expected


@given(st.text(max_size=300), st.sampled_from(["x.md", "x.mdx", "x.txt", "x.ipynb"]))
def test_whatever_stands_there_is_read_or_refused(text: str, path: str) -> None:
    try:
        page = read_page(path, text.encode("utf-8", "surrogatepass"))
    except UnreadablePage:
        return
    assert all(0 <= one.start <= one.end <= len(page.text) for one in page.headings)
    assert all(page.text[one.start :].lstrip("> -+*0123456789.)\t").startswith(("`", "~")) for one in page.code)


def test_mdx() -> None:
    page = read(
        "a.mdx",
        "import Note from '@x/Note'\nimport {\n  A,\n  B,\n} from 'y';\nexport const rate = { a: 1 };\n\n# Water\n\n"
        '<Note type="tip" title="Mornings are best">\n\nNot at noon {/* never */}, at {rate}.\n\n</Note>\n\n'
        "<Tabs>\n  <TabItem label=\"Hose\">\n\n  ```sh\n  hose --on <Valve /> {x}\n  ```\n\n  </TabItem>\n</Tabs>\n\n"
        "<LinkCard title='Soil' href=\"/soil\" description='Below' />\n<Code code={`fork`} lang=\"sh\" />\n"
        "`<Kept />` and {'text'} <Since version=\"1.2\" />x",
    )  # fmt: skip
    assert page.title == "Water"
    assert "import" not in page.text
    assert "export" not in page.text
    assert "**Tip: Mornings are best**" in page.text
    assert "Not at noon , at `rate`." in page.text
    assert "**Hose**" in page.text
    assert [one.text for one in page.code] == ["hose --on <Valve /> {x}", "fork"]
    assert "- [Soil](/soil): Below" in page.text
    assert page.text.endswith("`<Kept />` and text *Since 1.2* x")


# ------------------------------------------------------------------------------------ the others


def test_notebook() -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Yield\n", "By bed."]},
        {
            "cell_type": "code",
            "source": "total()",
            "outputs": [
                {"output_type": "execute_result", "data": {"text/plain": ["42"], "text/html": "<script>x</script>"}},
                {"output_type": "error", "ename": "KeyError", "evalue": "'bed'", "traceback": ["\x1b[31mx"]},
                7,
            ],
        },
        "none",
    ]
    book = json.dumps({"cells": cells, "metadata": {"kernelspec": {"language": "julia"}}, "nbformat": 4})
    page = read("n.ipynb", book)
    assert page.title == "Yield"
    assert [(one.language, one.text) for one in page.code] == [
        ("julia", "total()"), ("output", "42"), ("error", "KeyError: 'bed'")
    ]  # fmt: skip
    for broken in ("{}", "[]", "nothing", '{"cells": 3}', "[" * 100_000):
        with pytest.raises(UnreadablePage, match="notebook"):
            read("n.ipynb", broken)


HTML = """<!doctype html><html><head><title>Beds — Garden</title><meta name="description" content="On beds.">
<script>alert("script")</script></head><body><nav>around <a href="x">it</a></nav><div role="main">
<section id="rows"><h1>Rows &amp; <em>beds</em><a class="headerlink" href="#rows">¶</a></h1>
<p>As <code>a&lt;b</code> in &lt;tags&gt;,\n see <a href="water.html#when">water</a>.</p>
<div class="highlight-python3"><div class="highlight"><pre><span>def</span> row():\n    return 1\n</pre></div></div>
<ol><li>one<ul><li>inner</li></ul><li><p>two</p></ol><table><tr><th>A<th>B<tr><td>1<td>2</table></section></div>
<footer>around</footer></body></html>"""


def test_html(process: ReaderProcess) -> None:
    page = read_page("rows.html", HTML.encode(), process=process)
    assert page == read_html("rows.html", HTML.encode())
    assert (page.title, page.description) == ("Beds", "On beds.")
    assert [(one.title, one.anchor) for one in page.headings] == [("Rows & beds", "rows")]
    assert page.text == (
        "# Rows & *beds*\n\nAs `a<b` in \\<tags>, see [water](water.html#when).\n\n"
        "```python3\ndef row():\n    return 1\n```"
        "\n\n1. one\n\n   - inner\n\n2. two\n\n| A | B |\n| --- | --- |\n| 1 | 2 |"
    )


@pytest.mark.parametrize(
    ("path", "text", "title"),
    [
        ("a.html", HTML, "Beds"),
        ("a.html", "<title>csv — CSV files — Python</title><h1>CSV</h1>", "csv — CSV files"),
        ("a.html", "<h1>A <b>bed</b></h1>", "A bed"),
        ("a.md", "---\n\n# Bed\n\n---\n\nText", "Bed"),
        ("a.md", "---\ntitle: >-\n  A\n  bed\n---\n# Other", "A bed"),
    ],
)
def test_lists_and_pages_have_one_title(
    tmp_path: Path, process: ReaderProcess, path: str, text: str, title: str
) -> None:
    (tmp_path / path).write_text(text, encoding="utf-8")
    assert page_head(str(tmp_path), path).title == title
    assert read_page(path, text.encode(), process=process).title == title


@pytest.mark.parametrize(
    ("href", "text"),
    [
        ("a b(c).html#d", "[it](a%20b%28c%29.html#d)"),
        (" wa\nter.html\t", "[it](water.html)"),
        ("c:\\x\\", "[it](c:%5Cx%5C)"),
        ("x> &#34;y", '[it](x%3E%20"y)'),
        ("java&#10;script:alert(1)", "it"),
        ("&#1; JavaScript:alert(1)", "it"),
        ("data:text/html,x", "it"),
        ("x" * 3000, "it"),
        ("", "it"),
    ],
)
def test_links_of_html_are_links_of_markdown_or_text(href: str, text: str) -> None:
    """Browsers leave out breaks in an address, so that a script may hide in one; Markdown's links end at blanks."""
    assert read_html("a.html", f"<p><a href='{href}'>it</a> end</p>".encode()).text == f"{text} end"


@pytest.mark.parametrize(
    ("html", "text"),
    [
        # As Sphinx writes tables: paragraphs and lists in cells.
        (
            "<table><thead><tr><th><p>Name</p></th><th><p>Use</p></th></tr></thead><tbody><tr><td><p>hoe</p></td>"
            "<td><p>digs</p><p>rakes</p><ul><li>soil</li><li>gravel<br>too</li></ul><pre>go</pre></td></tr></tbody></table>",
            "| Name | Use |\n| --- | --- |\n| hoe | digs rakes soil gravel too `go` |",
        ),
        (
            "<table><tr><td>a<table><tr><td>x<td>y</table></td><td>c<tr><td>1<td>2</table>z",
            "| a x y | c |\n| --- | --- |\n| 1 | 2 |\n\nz",
        ),
        (
            "<table><tr><td><pre>1\n2</pre></td><td><pre>a\nb</pre></td></tr></table>z",
            "```\n1\n2\n```\n\n```\na\nb\n```\n\nz",
        ),
        ("<table><tr><td>alone</table>z", "alone\n\nz"),
        (
            "<dl><dt class=sig>f(<em>a</em>, *b)<dd><p>Does</dl><dl><dt>Bed<dd>A row</dl>",
            "- `f(a, *b)`\n\n  Does\n\n- **Bed**\n\n  A row",
        ),
        ("<blockquote><pre>1\n2</pre></blockquote><a href=x title=y>z</a>", "```\n1\n2\n```\n\n[z](x)"),
        (r"<p>a\x \(b) \&lt;c> \<br><code>x\y</code>\<b>!</b>", r"a\x \\(b) \\\<c> \\" + "  \n" + r"`x\y`\\**!**"),
        ('<ol start="3"><li>three<li>four</ol><ol start="x"><li>one</ol>', "3. three\n4. four\n\n1) one"),
    ],
)
def test_tables_and_lists_of_html(html: str, text: str) -> None:
    found = read_html("a.html", html.encode()).text
    assert found == text


RST = """
Watering
========

Use :func:`hose.open` and ``rate``, *gently*; see :ref:`the soil <soil>` and `a site <https://example.org>`_.

.. include:: {secret}

.. literalinclude:: {secret}

.. csv-table:: Rates
   :file: {secret}

.. raw:: html
   :file: {secret}

.. unknown:: argument

   Inside of it.

When
----

.. code-block:: sh

   hose --on

Rate
  Litres in an hour.

.. note:: Not at noon.

#. one
#. two

=====  =====
A      B
=====  =====
1      2
=====  =====

:field: its value
"""


@pytest.mark.parametrize(
    "html",
    [
        "see [x](javascript:alert(1)) and a[0](b)",
        "[x]<b>(http://bad/)</b>",
        "[x][y]<p>[y]: http://bad/",
        "![x](http://bad/p.png)",
        '<a href="javascript:1">a](http://bad/)</a>',
    ],
)
def test_text_of_html_that_looks_like_a_link_is_none(html: str) -> None:
    page = read_html("a.html", html.encode())
    shown = render(page)
    assert "<a" not in shown
    assert "<img" not in shown
    marks = "".join(char for char in page.text if char not in "\\*")
    assert "](" in marks or "]: " in marks  # the text is there


def test_html_needs_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "html_to_markdown", None)
    with pytest.raises(UnreadablePage, match=r"HTML needs libraries: pip install 'mcpd-server\[docs\]'"):
        read_html("a.html", b"<p>x")


def test_a_link_of_html_may_have_brackets_in_its_text() -> None:
    shown = render(read_html("a.html", b'<a href="https://ok.example/">a](http://bad/) [1]</a> and list[int]'))
    assert shown.startswith('<p><a href="https://ok.example/" target="_blank"')
    assert ">a](http://bad/) [1]</a> and list[int]" in shown


def test_rst(process: ReaderProcess, tmp_path_factory: pytest.TempPathFactory) -> None:
    secret = tmp_path_factory.mktemp("outside") / "secret.txt"
    secret.write_text("the,password")
    page = read_page("w.rst", RST.format(secret=secret).encode(), process=process)
    assert page == read_rst("w.rst", RST.format(secret=secret).encode())
    assert [(one.level, one.title) for one in page.headings] == [(1, "Watering"), (2, "When")]
    assert "Use `hose.open` and `rate`, gently; see the soil and [a site](https://example.org)." in page.text
    assert "Inside of it." in page.text
    assert "- **Rate**: Litres in an hour." in page.text
    assert "**Note:** Not at noon." in page.text
    assert "1. one\n2. two" in page.text
    assert "| A | B |\n| --- | --- |\n| 1 | 2 |" in page.text
    assert "- **field**: its value" in page.text
    assert [(one.language, one.text) for one in page.code] == [("sh", "hose --on")]
    assert "password" not in page.text


def test_rst_lists_begin_anywhere_and_cells_may_have_paragraphs() -> None:
    text = "3. three\n4. four\n\n+-----+-----+\n| A   | B   |\n+-----+-----+\n"
    text += "| one | * x |\n|     | * y |\n| two |     |\n+-----+-----+\n"
    page = read_rst("w.rst", text.encode())
    assert page.text == "3. three\n4. four\n\n| A | B |\n| --- | --- |\n| one two | x y |"


def pdf(text: str) -> bytes:
    """A PDF file with one line."""
    stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET".encode()
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R "
        b"/Resources << /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream),
    ]
    body = b"%PDF-1.4\n"
    places = []
    for number, one in enumerate(objects, 1):
        places.append(len(body))
        body += b"%d 0 obj\n%s\nendobj\n" % (number, one)
    table = b"xref\n0 5\n0000000000 65535 f \n" + b"".join(b"%010d 00000 n \n" % place for place in places)
    return body + table + b"trailer\n<< /Size 5 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % len(body)


def test_pdf(process: ReaderProcess) -> None:
    page = read_page("beds.pdf", pdf("Plan of the beds"), process=process)
    assert page == read_pdf("beds.pdf", pdf("Plan of the beds"))
    assert (page.title, page.text, page.mime_type) == ("Plan of the beds", "Plan of the beds", "text/plain")
    for data in (b"%PDF-1.7 nothing", b"", pdf("")):
        with pytest.raises(UnreadablePage, match="PDF"):
            read_page("beds.pdf", data, process=process)
        with pytest.raises(UnreadablePage, match="PDF"):
            read_pdf("beds.pdf", data)


def test_binary_is_no_text() -> None:
    for data in (b"\x7fELF\x02\x00\x00", bytes(range(1, 32)) * 30):
        with pytest.raises(UnreadablePage, match="binary"):
            read_page("x.md", data)
    assert read_page("x.txt", "caf\xe9".encode("latin-1")).text == "caf\xe9"
    assert read_page("x.txt", "café".encode("utf-16")).text == "café"


MANY = 100_000
PATHOLOGICAL = {
    "md": ["[" * MANY, "`a" * MANY, "[a](" * MANY, "```\n~~~\n" * MANY, "<!--" * MANY, "a\n" * MANY + "===", " " * MANY,
           "- " * MANY, "---\n" + "a: \n" * MANY, "![a](" * MANY, "*a_ " * MANY],
    "mdx": ["{" * MANY, "<A " * MANY, "import {" * MANY, '<A b="' * MANY, "{/*" * MANY, "`a ``b " * MANY],
    "ipynb": ['{"cells":' + "[" * MANY],
    "html": [tag * 10_000 for tag in ("<table><tr><td>", "<ul><li>", "<dl><dt class=sig>", "<blockquote><pre>", "<b>")],
}  # fmt: skip


@pytest.mark.parametrize("kind", PATHOLOGICAL)
def test_no_text_takes_long(kind: str) -> None:
    for text in PATHOLOGICAL[kind]:
        since = time.process_time()
        try:
            read(f"x.{kind}", text)
        except UnreadablePage:
            pass
        assert time.process_time() - since < 10, text[:20]


@pytest.mark.parametrize(
    ("path", "text"),
    [("x.html", "<![CDATA[" * 400_000), ("x.rst", "\n".join("  " * at + "x" for at in range(900)))],
)
def test_what_takes_too_long_is_left_out_and_the_next_is_read(path: str, text: str) -> None:
    process = ReaderProcess(1.0)
    try:
        said = ""
        try:
            process.read_page(path, text.encode())
        except UnreadablePage as error:
            said = str(error)
        if said or path != "x.html":  # late releases of Python 3.13 and 3.14 have a parser that reads that in time
            assert re.search("more than 1 seconds|nested too deeply", said)
        assert process.read_page("y.html", b"<p>next</p>").text == "next"
    finally:
        process.close()
