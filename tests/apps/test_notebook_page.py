"""The page of a notebook: what cells become, what is asked of the server, and what of it runs, which is nothing."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from support.apps_scene import STRICT, Open
from support.hostile_html import HOSTILE, unharmed
from support.views_stage import CELLS, data, text

ABOUT = data({"path": "resources/spring.ipynb", "title": "Spring", "cells": 5})


def answer(*cells: Any, **more: Any) -> dict[str, Any]:
    """What the tool of the page gives."""
    return {"tools/call": {"result": data({"path": "x.ipynb", "cells": list(cells), **more})}}


async def test_cells_and_what_they_gave(open_view: Open) -> None:
    async with open_view("notebook", ABOUT) as scene:
        view = scene.view
        await view.until("document.querySelectorAll('.cell').length === 5")
        [call] = await scene.received("tools/call")
        assert call["params"]["name"] == "show_notebook_cells"
        assert call["params"]["arguments"] == {"path": "resources/spring.ipynb", "first": 1}
        assert await view.evaluate("[...document.querySelectorAll('.cell')].map((one) => one.ariaLabel)") == [
            "Cell 1, text", "Cell 2, code", "Cell 3, text", "Cell 4, raw", "Cell 5, broken",
        ]  # fmt: skip
        assert await view.text(".cell.code pre") == "frame.head()"
        assert await view.text(".count") == "[3]"
        assert await view.text(".ink-red") == "red"
        assert await view.text(".out .strong") == "strong"
        assert await view.text(".stderr") == "careful"
        assert await view.text(".problem b") == "KeyError: 'none'"
        await view.until("document.querySelector('.picture img').naturalWidth === 64")
        assert await view.evaluate("document.querySelector('math').namespaceURI.endsWith('MathML')")
        assert await view.evaluate("document.querySelector('math').getBoundingClientRect().height") > 5
        # What the server has not made HTML of is Markdown still.
        assert await view.text("[aria-label='Cell 3, text'] strong") == "by itself"
        assert "5 cells shown" in await view.text(".bar [role=status]")
        scene.clean()


async def test_the_rest_is_asked_for_when_it_is_wanted(open_view: Open) -> None:
    cells = [{"kind": "raw", "source": f"cell {number}"} for number in range(3)]
    async with open_view("notebook", ABOUT, answers=answer(*cells, next=4)) as scene:
        await scene.view.click(".pane > .button")
        await scene.host.until("host.of('tools/call').length === 2")
        assert (await scene.received("tools/call"))[1]["params"]["arguments"]["first"] == 4
        await scene.view.until("document.querySelectorAll('.cell').length === 6")
        # A server that says the same again and again is not asked without end.
        assert await scene.view.evaluate("document.querySelector('.pane > .button')") is None
        scene.clean()


@pytest.mark.parametrize(
    ("capabilities", "answers"),
    [
        ({"serverTools": None}, None),
        ({}, {"tools/call": {"error": {"code": -32000, "message": "not today"}}}),
        ({}, {"tools/call": {"result": {"isError": True, "content": [{"type": "text", "text": "gone"}]}}}),
        ({}, {"tools/call": {"result": {"content": []}}}),
    ],
    ids=["no-tools", "refused", "error", "nothing"],
)
async def test_without_its_cells_the_text_is_shown(open_view: Open, capabilities: Any, answers: Any) -> None:
    result = {**ABOUT, "content": [{"type": "text", "text": "# All of it\n\n```python\nx = 1\n```"}]}
    async with open_view("notebook", result, capabilities=capabilities, answers=answers) as scene:
        await scene.view.until("document.querySelector('.markdown h1')?.textContent === 'All of it'")
        scene.clean()


async def test_the_notebook_is_found_by_what_the_tool_was_called_with(open_view: Open) -> None:
    """APP-S-16: structured content and `_meta` are lost, text and arguments are there."""
    async with open_view("notebook", text("Cells of it"), arguments={"path": "spring"}) as scene:
        await scene.view.until("document.querySelectorAll('.cell').length === 5")
        assert (await scene.received("tools/call"))[0]["params"]["arguments"]["path"] == "spring"


async def test_html_of_others_does_nothing(open_view: Open) -> None:
    """In text, in outputs, and beside each other; what is harmless of it is there."""
    outputs = [{"kind": "html", "html": one + "<b>kept</b>"} for one in HOSTILE]
    cells = [
        {"kind": "code", "source": HOSTILE[0], "outputs": [*outputs, {"kind": "html", "html": "".join(HOSTILE)}]},
        *({"kind": "markdown", "source": "", "html": one} for one in HOSTILE),
        *({"kind": "markdown", "source": one} for one in HOSTILE),
        {"kind": "raw", "source": HOSTILE[0]},
        {"kind": HOSTILE[0], "reason": HOSTILE[1]},
        {"kind": "constructor"},
    ]
    async with open_view("notebook", ABOUT, answers=answer(*cells)) as scene:
        await scene.view.until(f"document.querySelectorAll('.cell').length === {len(cells)}")
        assert await scene.view.evaluate("document.querySelectorAll('.out-html b').length") >= len(HOSTILE) - 2
        assert (
            await scene.view.evaluate("Math.max(...[...document.querySelectorAll('td')].map((td) => td.colSpan))")
            <= 1000
        )
        await unharmed(scene)


async def test_images_and_numbers_of_others_do_nothing(open_view: Open) -> None:
    svg = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><script>parent.hacked=1</script></svg>'
    encoded = base64.b64encode(svg.encode()).decode()
    outputs: list[Any] = [
        {"kind": "image", "type": "image/svg+xml", "data": encoded, "width": 40},
        {"kind": "image", "type": "text/html", "data": encoded},
        {"kind": "image", "type": "image/png", "data": "x' onerror='window.hacked=1"},
        {"kind": "image", "type": "image/png;x", "data": "AAAA"},
        {"kind": "html", "html": f"<img src='data:image/svg+xml;base64,{encoded}'>{svg}"},
        {"kind": "text", "text": "\x1b[31;1;38;5;300m<b>x</b>\x1b]8;;javascript:x\x07link\x1b]8;;\x07" + "\x1b[" * 999},
        {"kind": "text", "text": ["no"], "stream": {}},
        {"kind": "error", "name": 5, "value": None},
        None, 7, [], {"kind": "toString"},
    ]  # fmt: skip
    async with open_view("notebook", ABOUT, answers=answer({"kind": "code", "source": 5, "outputs": outputs})) as scene:
        await scene.view.until("document.querySelector('.picture img')?.naturalWidth === 9")
        assert await scene.view.evaluate("document.querySelectorAll('.outs img').length") == 3
        assert "<b>x</b>link" in await scene.view.text(".outs")
        await unharmed(scene)


HUGE = {
    "rows": "<table>" + "<tr><td>1</td><td>2</td></tr>" * 60_000 + "</table>",
    "deep": "<div>" * 3_000 + "x",
    "lists": "<ul><li>" * 3_000 + "x",
    "spans": "<span>a</span>" * 120_000,
    "svg": "<svg>" + "<path d='M0 0'/>" * 100_000 + "</svg>",
}


@pytest.mark.parametrize("name", HUGE)
async def test_what_is_huge_is_cut(open_view: Open, name: str) -> None:
    cell = {"kind": "code", "source": "x", "outputs": [{"kind": "html", "html": HUGE[name], "text": "instead"}]}
    async with open_view("notebook", ABOUT, answers=answer(cell)) as scene:
        await scene.view.until("document.querySelector('.outs')")
        assert await scene.view.evaluate("document.querySelectorAll('*').length") < 50_000
        scene.clean()


async def test_without_images_in_addresses_there_is_a_picture_or_its_words(open_view: Open) -> None:
    """APP-V-05: some hosts have no images of `data:`."""
    policy = STRICT.replace("img-src 'self' data:", "img-src 'self'")
    cells = [*CELLS["cells"], {"kind": "code", "source": "", "outputs": [
        {"kind": "image", "type": "image/svg+xml", "data": "PHN2Zy8+", "alt": "The words of a drawing"}]}]  # fmt: skip
    async with open_view("notebook", ABOUT, policy=policy, answers=answer(*cells)) as scene:
        await scene.view.until("document.querySelector('.picture canvas')?.width === 64")
        await scene.view.until("document.querySelector('main').textContent.includes('The words of a drawing')")
