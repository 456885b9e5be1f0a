"""Notebooks: read from every nbformat that is about, shown as safe cells, and as text; broken ones and huge ones."""

from __future__ import annotations

import base64
import json
import re
import sys
import time
from typing import Any

import pytest

from mcpd.sources.docs import notebook, notebook_views
from mcpd.sources.docs.notebook import CodeCell, MarkdownCell, Notebook, UnreadableNotebook, output_of, read_notebook
from mcpd.sources.docs.notebook_views import clean_html, mathml, notebook_text, shown_cells

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"x" * 30).decode()
TABLE = "<table border=1 class='dataframe'><tr style='text-align: right;'><th>a</th></tr><tr><td>1</td></tr></table>"


def four(*given: Any, **metadata: Any) -> bytes:
    """A notebook of nbformat 4."""
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": given}).encode()


def html_of(source: str, **more: Any) -> str:
    """What a Markdown cell becomes."""
    [cell] = shown_cells(read_notebook(four({"cell_type": "markdown", "source": source, **more})), "x.ipynb").cells
    assert isinstance(cell, MarkdownCell)
    assert cell.html is not None
    return cell.html


def bundle(**data: Any) -> Any:
    """The output that a bundle of forms becomes; `_` stands for `/`."""
    return output_of({"output_type": "display_data", "data": {name.replace("_", "/"): of for name, of in data.items()}})


def test_nbformat_4() -> None:
    outputs = [
        {"output_type": "stream", "name": "stderr", "text": ["10%\r", "99%\n", "warned\n"]},
        {"output_type": "execute_result", "data": {"text/plain": ["1", "2"]}, "execution_count": 3},
        {"output_type": "error", "ename": "KeyError", "evalue": "'x'", "traceback": ["\x1b[31ma", "b"]},
    ]
    code = {"cell_type": "code", "execution_count": 3, "source": ["x = 1\n", "x"], "outputs": outputs}
    text = {"cell_type": "markdown", "source": "some\n## The *spring* of `x` ##\n"}
    read = read_notebook(four(text, code, {"cell_type": "raw", "source": "r"}, kernelspec={"language": "R"}))
    assert (read.title, read.language) == ("The spring of x", "r")
    assert read.cells[1] == CodeCell(
        "x = 1\nx",
        count=3,
        outputs=(
            notebook.TextOutput("99%\nwarned\n", "stderr"),
            notebook.TextOutput("12"),
            notebook.ErrorOutput("KeyError", "'x'", "\x1b[31ma\nb"),
        ),
    )
    assert isinstance(read.cells[2], notebook.RawCell)


@pytest.mark.parametrize("version", [2, 3])
def test_older_ones_with_worksheets(version: int) -> None:
    code = {
        "cell_type": "code",
        "language": "Python",
        "input": ["print(1)"],
        "prompt_number": 7,
        "outputs": [
            {"output_type": "stream", "stream": "stdout", "text": "1\n"},
            {"output_type": "pyout", "prompt_number": 7, "text": "<Plot>", "png": PNG},
            {"output_type": "pyerr", "ename": "E", "evalue": "v", "traceback": []},
            {"output_type": "display_data", "html": [TABLE], "text": "a"},
        ],
    }
    heading = {"cell_type": "heading", "level": 2, "source": "Old"}
    sheets = [{"cells": [heading, code]}, {"cells": [{"cell_type": "markdown", "source": "more"}]}]
    read = read_notebook(json.dumps({"nbformat": version, "worksheets": sheets, "metadata": {"name": ""}}).encode())
    assert read.title == "Old"
    assert read.language == "python"
    assert read.cells[0] == MarkdownCell("## Old")
    told = read.cells[1]
    assert isinstance(told, CodeCell)
    assert (told.source, told.count) == ("print(1)", 7)
    assert [type(output).__name__ for output in told.outputs] == [
        "TextOutput", "ImageOutput", "ErrorOutput", "HtmlOutput",
    ]  # fmt: skip
    assert len(read.cells) == 3


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"\xff\xfe{", "not valid JSON"),
        (b"[]", "not an object"),
        (b"{}", "no nbformat"),
        (b'{"nbformat": true}', "no nbformat"),
        (b'{"nbformat": 5, "cells": []}', "nbformat 5"),
        (b'{"nbformat": 4, "cells": {}}', "not a list"),
        (b'{"nbformat": 3, "cells": []}', "not a list"),
        (b'{"nbformat": 4, "cells": ' + b"[" * 1_000_000, "nested too deeply"),
    ],
)
def test_what_is_no_notebook_is_said(data: bytes, says: str) -> None:
    with pytest.raises(UnreadableNotebook, match=says):
        read_notebook(data)


def test_what_is_broken_costs_its_cell_only() -> None:
    strange = [7, {}, {"cell_type": "code", "source": [1]}, {"cell_type": "new", "source": "x"},
               {"cell_type": "markdown", "source": {"a": 1}}]  # fmt: skip
    broken_outputs = [5, {}, {"output_type": "stream", "text": {}}, {"output_type": "display_data", "data": 4},
                      {"output_type": "error"}, {"output_type": "display_data", "data": {"x/y": "z"}}]  # fmt: skip
    code = {"cell_type": "code", "source": None, "execution_count": "no", "outputs": broken_outputs}
    read = read_notebook(four(*strange, code, {"cell_type": "code", "source": "x", "outputs": "no"}))
    assert [type(cell).__name__ for cell in read.cells] == [*["BrokenCell"] * 5, "CodeCell", "CodeCell"]
    told = read.cells[5]
    assert isinstance(told, CodeCell)
    assert [type(output).__name__ for output in told.outputs] == [
        *["OmittedOutput"] * 4,
        "ErrorOutput",
        "OmittedOutput",
    ]
    text, after = notebook_text(read)
    assert "a cell of the unknown type 'new'" in text
    assert after is None
    assert len(shown_cells(read, "x").cells) == 7


def test_of_several_forms_the_best_is_taken() -> None:
    assert type(bundle(text_html=TABLE, image_png=PNG, text_plain="a")) is notebook.HtmlOutput
    assert bundle(text_html="<script>draw()</script>", image_png=PNG, text_plain="<Figure>") == notebook.ImageOutput(
        "image/png", PNG
    )
    assert bundle(image_png=PNG[:8] + "\n" + PNG[8:], text_plain="a plot").alt == "a plot"
    assert bundle(text_latex="$$x^2$$", text_plain="x**2") == notebook.MarkdownOutput("$$x^2$$")
    assert bundle(text_latex="\\frac{1}{2}").source == "$$\n\\frac{1}{2}\n$$"
    assert bundle(text_markdown="**b**", text_plain="b") == notebook.MarkdownOutput("**b**")
    assert bundle(application_json={"a": [1]}) == notebook.TextOutput('{\n  "a": [\n    1\n  ]\n}')
    assert bundle(application_javascript="alert(1)") == notebook.OmittedOutput("application/javascript")
    drawing = bundle(**{"image_svg+xml": "<svg/>"})
    assert (drawing.type, base64.b64decode(drawing.data)) == ("image/svg+xml", b"<svg/>")
    assert "2,400,000 bytes" in bundle(image_png="A" * 3_200_000).reason
    assert bundle(text_html="<p>" * 200_000, text_plain="plain") == notebook.TextOutput("plain")


def test_markdown_becomes_html_that_says_the_same() -> None:
    made = html_of(
        "# T\n\n**b** ~~d~~ [l](https://e.example/?a=1&b=2) <br> <b onclick=x>raw</b> cost $5 and $6\n\n"
        "| a | b |\n|--|--:|\n| 1 | 2 |\n\n```python\nx < 1\n```\n\n![p](attachment:my%20plot.png)\n",
        attachments={"my plot.png": {"image/png": PNG}, "x.svg": {"image/svg+xml": "<svg/>"}},
    )
    for part in ("<h1>T</h1>", "<strong>b</strong>", "<s>d</s>", 'href="https://e.example/?a=1&amp;b=2"', "<b>raw</b>",
                 "$5 and $6", '<td style="text-align:right">2</td>', '<code class="language-python">x &lt; 1',
                 f'src="data:image/png;base64,{PNG}"'):  # fmt: skip
        assert part in made, part


HOSTILE = [
    "<script>x</script>",
    "<img src=x onerror=alert(1)>",
    "<svg><script>x</script></svg>",
    "<a href=javascript:x>a</a>",
    "[a](javascript:x)",
    "[a](data:text/html,x)",
    "![a](javascript:x)",
    "<iframe src=x></iframe>",
    "<style>*{}</style>",
    "<p style='background:url(x)'>p</p>",
    "<meta http-equiv=refresh content=0>",
    "<form action=x><button>b</button>",
    "<base href=//evil>",
    "$\\text{<script>x</script>}$",
    "$\\href{javascript:x}{y}$",
    "$$\\style{color:red}{x}$$",
    "\\begin{align}\\class{x onerror=x}{y}\\end{align}",
    "<math><mi xlink:href=javascript:x href=javascript:x>x</mi></math>",
    "<div id=x class='a b' onmouseover=x data-page=y>d</div>",
    "<noscript><p title='</noscript><img src=x onerror=x>'>",
]
_TAGS = r"<(script|iframe|style|meta|form|button|svg|base|object|noscript)"
_ATTRIBUTES = r"\son|javascript:|data:|url\(|xlink|class=\"(?!language-|math |tex)"


@pytest.mark.parametrize("hostile", HOSTILE)
def test_nothing_of_it_can_run(hostile: str) -> None:
    for made in (html_of(hostile), html_of(f"a {hostile} b"), clean_html(hostile) or ""):
        assert not re.search(_TAGS, made, re.IGNORECASE)
        for tag in re.findall(r"<[^>]*>", made):
            assert not re.search(_ATTRIBUTES, re.sub(r' title="[^"]*"', "", tag)), tag


def test_mathematics_becomes_mathml_or_stays_what_it_was() -> None:
    block = mathml(r"\sum_{i=0}^n \frac{1}{i} \label{a}", is_block=True)
    assert block.startswith('<math display="block">')
    assert "∑" in block
    assert "<mtable" in mathml(r"\begin{aligned} a &= b \\ c &= d \end{aligned}", is_block=True)
    for unknown in (r"\foo{x}", r"\frac{", "", r"\left( x", r"\newcommand{\a}{\a\a}\a", "{" * 3000, "x" * 5000):
        assert mathml(unknown, is_block=False) == f'<code class="tex">{unknown}</code>'
    assert "<b>" not in mathml("<b>", is_block=False)
    made = html_of("$a_1$ and\n\n$$\nb\n$$\n\n\\begin{equation}\nc\n\\end{equation}")
    assert made.count("<math") == 3


def test_cells_come_some_at_a_time() -> None:
    many = read_notebook(four(*({"cell_type": "raw", "source": f"{number}"} for number in range(250))))
    sizes, first = [], 1
    while first:
        part = shown_cells(many, "x", first)
        sizes.append(len(part.cells))
        first = part.next or 0
    assert sizes == [100, 100, 50]

    picture = {"output_type": "display_data", "data": {"image/png": "A" * 1_000_000}}
    heavy = read_notebook(four(*({"cell_type": "code", "source": "x", "outputs": [picture]} for _ in range(4))))
    assert [len(shown_cells(heavy, "x", first).cells) for first in (1, 2, 4)] == [1, 1, 1]
    [cell] = shown_cells(read_notebook(four({"cell_type": "code", "source": "x", "outputs": [picture] * 9})), "x").cells
    assert isinstance(cell, CodeCell)
    assert cell.outputs[-1] == notebook.OmittedOutput("7 more outputs of this cell")
    assert shown_cells(Notebook("", "", ()), "x").next is None


def test_the_text_has_all_that_can_be_read() -> None:
    outputs = [
        {"output_type": "stream", "name": "stdout", "text": "\x1b[1mbold\x1b[0m\x1b]8;;x\x07"},
        {"output_type": "display_data", "data": {"text/html": TABLE + "<script>no()</script>"}},
        {"output_type": "display_data", "data": {"image/png": PNG, "text/plain": "a plot"}},
        {"output_type": "error", "ename": "KeyError", "evalue": "'x'", "traceback": ["long"]},
    ]
    read = read_notebook(
        four({"cell_type": "markdown", "source": "# T"},
             {"cell_type": "code", "source": "a = '```'", "outputs": outputs},
             {"cell_type": "raw", "source": "y" * 50_000}, language_info={"name": "python"})
    )  # fmt: skip
    text, after = notebook_text(read)
    assert after == 3
    assert text.startswith("# T\n\n````python\na = '```'\n````\n\n```output\nbold\n```\n\n```output\na\n1\n```")
    assert "[image/png: a plot]" in text
    assert "KeyError: 'x'" in text
    assert "no()" not in text
    rest, after = notebook_text(read, 3)
    assert after is None
    assert "characters are left out" in rest
    assert len(rest) < 25_000


def test_without_the_extra_it_is_as_it_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("markdown_it", "latex2mathml.converter", "nh3"):
        monkeypatch.setitem(sys.modules, name, None)
    notebook_views._parser.cache_clear()
    outputs = [{"output_type": "display_data", "data": {"text/html": TABLE, "text/plain": "a"}},
               {"output_type": "display_data", "data": {"text/html": TABLE}},
               {"output_type": "display_data", "data": {"text/latex": "$x$"}}]  # fmt: skip
    read = read_notebook(
        four({"cell_type": "markdown", "source": "*a*"}, {"cell_type": "code", "source": "x", "outputs": outputs})
    )
    try:
        words, code = shown_cells(read, "x").cells
    finally:
        notebook_views._parser.cache_clear()
    assert words == MarkdownCell("*a*")
    assert isinstance(code, CodeCell)
    assert code.outputs[0] == notebook.TextOutput("a")
    assert "mcpd-server[docs]" in getattr(code.outputs[1], "reason", "")
    assert code.outputs[2] == notebook.MarkdownOutput("$x$")
    assert mathml("x", is_block=False) == '<code class="tex">x</code>'


SLOW = ["$" * 40_000, "$a" * 20_000, "[a](" * 12_000, "*a_" * 16_000, "> " * 20_000, "<b>" * 16_000, "`" * 49_000,
        "\\begin{align}" * 3_800, "<a " * 16_000, "$$" + "\\frac{1}{" * 400 + "$$"]  # fmt: skip


def test_texts_that_are_made_to_be_slow_are_not() -> None:
    began = time.process_time()
    for source in [*SLOW, "![[" * 100_000]:
        shown_cells(read_notebook(four({"cell_type": "markdown", "source": source})), "x")
    for html in ("<a " * 100_000, "<table>" + "<tr><td>x" * 30_000, "<!--" * 90_000, "<b>" * 130_000):
        assert clean_html(html) is not None
    assert time.process_time() - began < 30
