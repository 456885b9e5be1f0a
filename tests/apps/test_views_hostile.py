"""Data that means harm, in each of the bundled views: nothing of it runs, loads, opens or hangs (APP-V-07)."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from support.apps_scene import Open, Scene
from support.views_stage import SAMPLES, data, png, text

ATTACKS = [
    "<script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    "<svg onload='window.hacked = 1'>",
    "</script><script>window.hacked = 1</script>",
    "javascript:window.hacked=1",
    "data:text/html,<script>parent.hacked=1</script>",
    "{{constructor.constructor('window.hacked=1')()}}",
    '=HYPERLINK("https://evil.example")',
    "\u202edesrever",
]
# Chromium asks for what a policy would block too: with nothing blocked and nothing thrown nothing was tried.
_LOADS = "document.querySelectorAll('script').length === 2 && !document.querySelector('iframe, object, embed, link, a')"


async def unharmed(scene: Scene) -> None:
    assert await scene.view.evaluate("window.hacked") is None
    assert await scene.view.evaluate(_LOADS)
    assert not [one for one in await scene.received() if one.get("method") == "ui/open-link"]
    scene.clean()


@pytest.mark.parametrize("kind", SAMPLES)
async def test_texts_are_texts_wherever_they_stand(open_view: Open, kind: str) -> None:
    rows = [{"n": number, attack: attack, "__proto__x": attack} for number, attack in enumerate(ATTACKS)]
    result = {**data(rows), "content": [{"type": "text", "text": attack} for attack in ATTACKS]}
    title = {"title": ATTACKS[0]}
    tool = {"name": "x", "title": ATTACKS[1], "outputSchema": {"$ref": "#/$defs/x"}, "_meta": {"ui": ATTACKS}}
    async with open_view(kind, result, options=title, arguments={"city": ATTACKS[0]},
                         context={"toolInfo": {"tool": tool}}) as scene:  # fmt: skip
        await unharmed(scene)
    error = {"isError": True, "content": [{"type": "text", "text": attack} for attack in ATTACKS]}
    async with open_view(kind, error, await_phase="error") as scene:
        await unharmed(scene)


async def test_a_table_of_anything(open_view: Open) -> None:
    """Nulls, nested values, mixed rows, names of Object's own members, NaN as text, numbers without end."""
    rows: list[Any] = [
        {"n": 1, "v": None, "nested": {"a": [1, {"b": "<b>"}]}, "constructor": "c", "toString": "t"},
        {"n": "NaN", "v": True, "hasOwnProperty": 1},
        {"n": -3.25, "v": "", "link": "https://example.com/"},
        {"n": 1e300, "v": "x" * 5000},
        "loose", 7, None, [1, 2],
    ]  # fmt: skip
    async with open_view("table", data(rows)) as scene:
        names = await scene.view.evaluate("[...document.querySelectorAll('th button')].map((one) => one.title)")
        assert names == ["n", "v", "nested", "constructor", "toString", "hasOwnProperty", "link", "value"]
        assert await scene.view.evaluate("document.querySelectorAll('tbody tr').length") == 8
        column = "[...document.querySelectorAll('tbody tr')].map((row) => row.children[0].textContent)"
        assert (await scene.view.evaluate(column))[:4] == ["1.00", "NaN", "-3.25", "1e+300"]
        await scene.view.evaluate("document.querySelector('td .more').click()")
        assert "<b>" in await scene.view.text(".detail")
        await scene.view.click('th button[title="n"]')
        assert (await scene.view.evaluate(column))[:3] == ["-3.25", "1.00", "1e+300"]
        await scene.view.click('th button[title="n"]')
        assert (await scene.view.evaluate(column))[:4] == ["1e+300", "1.00", "-3.25", "NaN"]
        scene.clean()


async def test_a_hundred_thousand_rows(open_view: Open) -> None:
    """Only what is in sight is drawn; sorting, filtering and the end of the list are at hand."""
    rows = [
        {"id": number, "name": f"name {number % 977}", "value": (number * 7919) % 100_003} for number in range(100_000)
    ]
    async with open_view("table", {"content": [], "structuredContent": {"rows": rows, "total": 100_000}}) as scene:
        drawn = "document.querySelectorAll('tbody tr').length"
        assert await scene.view.evaluate(drawn) < 100
        first = "document.querySelector('tbody tr:not(.pad) td:last-child').textContent"
        await scene.view.evaluate("document.querySelector('.scroll').scrollTo(0, 1e9)")
        await scene.view.until("[...document.querySelectorAll('tbody td')].some((one) => one.textContent === '99999')")
        assert await scene.view.evaluate(drawn) < 100
        began = time.monotonic()
        await scene.view.click('th button[title="value"]')
        await scene.view.click('th button[title="value"]')
        await scene.view.until(f"{first} === '100,002' && document.querySelector('[aria-sort=descending]')")
        search = "(box) => { box.value = 'name 976'; box.dispatchEvent(new Event('input')); }"
        await scene.view.evaluate(f"({search})(document.querySelector('input'))")
        await scene.view.until("document.querySelector('[role=status]').textContent.startsWith('102 of')")
        assert time.monotonic() - began < 30
        scene.clean()


async def test_as_many_columns_as_somebody_likes(open_view: Open) -> None:
    rows = [{f"c{row}-{number}": number for number in range(50)} for row in range(100)]
    async with open_view("table", data(rows)) as scene:
        assert await scene.view.evaluate("document.querySelectorAll('th').length") == 200
        assert "4,800 more columns" in await scene.view.text("[role=status]")
        scene.clean()


NUMBERS = {
    "huge": "[1e308, -1e308, 5, 1e308]",
    "infinite": "[1e999, 1, 2, -1e999]",
    "all infinite": "[1e999, 1e999, 1e999]",
    "tiny": "[0, 5e-324, 0]",
    "close": "[1700000000000000000, 1700000000000001024, 1700000000000000512]",
    "alike": "[-1e17, -1e17, -1e17]",
}


@pytest.mark.parametrize("kind", ["line", "bar", "area"])
@pytest.mark.parametrize("name", NUMBERS)
async def test_numbers_that_no_scale_has(open_view: Open, name: str, kind: str) -> None:
    values = NUMBERS[name]
    rows = f'{{"v": {values}, "x": {values}}}'
    for options in ({"kind": kind, "y": ["v"]}, {"kind": kind, "x": "x", "y": ["v"]}):
        async with open_view("chart", text(rows), options=options) as scene:
            await scene.view.until("document.querySelector('.plot svg') || document.querySelector('table')")
            drawn = await scene.view.evaluate("document.querySelector('.plot')?.innerHTML ?? ''")
            assert "NaN" not in drawn
            assert "Infinity" not in drawn.partition("aria-label")[0]
            scene.clean()


LINKS = """
[a](javascript:window.hacked=1) [b](JaVaScRiPt:alert) [c](data:text/html,x) [d](vbscript:x) [e](//evil.example)
[f](file:///etc/passwd) ![g](https://evil.example/pixel.png) ![h](javascript:x) ![i](data:text/html;base64,PHNjcmlwdD4=)
<https://ok.example/> <javascript:alert(1)> [j](<javascript:x>) [k][l] [m]: javascript:x
[n](https://ok.example/" onmouseover="x)
"""


async def test_links_of_markdown_go_through_the_host_or_nowhere(open_view: Open) -> None:
    async with open_view("markdown", text(LINKS)) as scene:
        await unharmed(scene)
        targets = await scene.view.evaluate("[...document.querySelectorAll('.link')].map((one) => one.title)")
        assert set(targets) <= {"https://evil.example/pixel.png", "https://ok.example/", 'https://ok.example/"'}
        assert await scene.view.evaluate("document.querySelectorAll('img').length") == 0
        await scene.view.evaluate("document.querySelector('.link[title=\"https://ok.example/\"]').click()")
        await scene.host.until("host.of('ui/open-link').length === 1")
        assert (await scene.received("ui/open-link"))[0]["params"] == {"url": "https://ok.example/"}


SLOW = {
    "stars": "*a **b " * 20_000,
    "closers": "*" * 50_000 + "a" + "*" * 50_000,
    "underscores": "_a_b" * 25_000,
    "brackets": "[" * 50_000 + "a" + "](x)" * 20_000,
    "images": "![" * 30_000 + "](" * 30_000,
    "backticks": "".join("`" * (number % 400 + 1) + " " for number in range(2000)),
    "quotes": "> " * 20_000 + "x",
    "lists": "\n".join("  " * min(number, 400) + "- x" for number in range(2000)),
    "spaces": "# "
    + " " * 100_000
    + "x\n"
    + "a"
    + " " * 100_000
    + "\nb\n| - |"
    + " " * 100_000
    + "x\n```"
    + " " * 100_000
    + "`",
    "table": "|".join("a" * 1 for _ in range(3000)) + "\n" + "|".join("-" for _ in range(3000)) + "\n" + "|x" * 3000,
    "lines": "word\n" * 100_000,
    "headings": "# x\n" * 50_000,
    "links": "[a](https://x.example/) " * 10_000,
    "urls": "https://" * 20_000,
}


@pytest.mark.parametrize("name", SLOW)
async def test_markdown_that_is_made_to_be_slow_is_not(open_view: Open, name: str) -> None:
    """Each would take minutes where marks are looked for again and again; here a second or two on a busy machine."""
    began = time.monotonic()
    async with open_view("markdown", text(SLOW[name])) as scene:
        assert await scene.view.evaluate("document.querySelector('.markdown').childNodes.length") > 0
        assert time.monotonic() - began < 30
        scene.clean()


async def test_a_host_that_opens_no_links_gets_none_to_click(open_view: Open) -> None:
    async with open_view("markdown", text(LINKS), capabilities={"openLinks": None}) as scene:
        assert await scene.view.evaluate("document.querySelectorAll('.link').length") == 0
        await unharmed(scene)


async def test_images_of_others_are_not_fetched(open_view: Open) -> None:
    for url in ("https://evil.example/pixel.png", "http://127.0.0.1:9/x.png"):
        async with open_view("image", data({"url": url})) as scene:
            await scene.view.until("document.querySelector('.link')")
            await unharmed(scene)


async def test_an_image_of_script_runs_nothing(open_view: Open) -> None:
    drawing = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><script>parent.hacked=1</script></svg>'
    async with open_view("image", data({"image": drawing, "alt": "<b>"})) as scene:
        await scene.view.until("document.querySelector('.stage img').naturalWidth === 9")
        await unharmed(scene)
    block = {"type": "image", "data": "AAAA", "mimeType": "text/html"}
    async with open_view("image", {"content": [block, {"type": "text", "text": "fallback"}]}) as scene:
        assert await scene.view.evaluate("document.querySelectorAll('img').length") == 0
        await unharmed(scene)


async def test_deep_and_odd_values(open_view: Open) -> None:
    deep: Any = 1
    for _ in range(200):
        deep = {"d": [deep]}
    odd = [{"a": deep, "b": "\u0000\ufffe", "c": "\ud83d\ude00" * 400, "d": png()}]
    for kind in ("table", "chart", "form"):
        async with open_view(kind, {"content": [{"type": "text", "text": json.dumps(odd)}]}) as scene:
            await unharmed(scene)
