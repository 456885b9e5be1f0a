"""What the bundled views do for whoever looks at them: sort, filter, copy, point, zoom, fill in and send."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.apps_scene import STRICT, Open, Scene
from support.views_stage import FORM_TOOL, data, png, text

ROWS = data(
    {
        "items": [
            {"day": "2026-03-02", "city": "Oslo", "high": 3, "note": '=1+1, "x"'},
            {"day": "2026-03-01", "city": "Åre", "high": None, "note": "-2"},
            {"day": "2026-03-03", "city": "bergen", "high": 10.25, "note": "a\nb"},
            *({"day": "2026-04-01", "city": f"c{number}", "high": number, "note": ""} for number in range(4)),
        ],
        "total": 7,
    }
)
COLUMN = "(at) => [...document.querySelectorAll('tbody tr')].map((row) => row.children[at].textContent)"


async def test_a_table_is_sorted_and_filtered(open_view: Open) -> None:
    async with open_view("table", ROWS) as scene:
        view = scene.view
        assert await view.text(".facts") == "Total7"
        assert (await view.call(COLUMN, 0))[0] == "2 Mar 2026"
        assert (await view.call(COLUMN, 2))[:3] == ["3.00", "–", "10.25"]
        await view.evaluate("document.querySelector('th button[title=city]').focus()")
        await scene.page.press("Enter", 13, text="\r")
        await view.until("document.querySelector('th[aria-sort=ascending]')")
        assert (await view.call(COLUMN, 1))[:2] == ["Åre", "bergen"]
        await scene.page.press("Enter", 13, text="\r")
        await view.until("document.querySelector('th[aria-sort=descending]')")
        assert (await view.call(COLUMN, 1))[0] == "Oslo"
        await scene.page.press("Enter", 13, text="\r")
        await view.until("!document.querySelector('th[aria-sort]')")
        search = "(words) => { const box = document.querySelector('input'); box.value = words; box.dispatchEvent(new Event('input')); }"  # fmt: skip # noqa: E501
        await view.call(search, "3 mar")
        await view.until("document.querySelectorAll('tbody tr').length === 1")
        assert await view.text("[role=status]") == "1 of 7 rows"
        await view.call(search, "nowhere")
        await view.until("document.querySelector('tbody').textContent === 'No row has that.'")
        scene.clean()


async def test_a_table_is_copied_for_spreadsheets(open_view: Open) -> None:
    """Where the clipboard is closed the host gets it as a file; nothing in it is a formula."""
    closed = "navigator.clipboard.writeText = () => Promise.reject(); document.execCommand = () => false;"
    answers = {"ui/download-file": {"result": {}}}
    async with open_view("table", ROWS, answers=answers, capabilities={"downloadFile": {}}) as scene:
        await scene.view.evaluate(f"(() => {{ {closed} }})()")
        copy = "[...document.querySelectorAll('button')].find((one) => one.textContent === 'Copy CSV')"
        await scene.view.evaluate(f"{copy}.click()")
        await scene.host.until("host.of('ui/download-file').length === 1")
        [asked] = await scene.received("ui/download-file")
        [part] = asked["params"]["contents"]
        lines = part["resource"]["text"].split("\r\n")
        assert lines[0] == "day,city,high,note"
        assert lines[1] == '2026-03-02,Oslo,3,"\'=1+1, ""x"""'
        assert lines[2] == "2026-03-01,Åre,,-2"
        await scene.view.until("[...document.querySelectorAll('button')].some((one) => one.textContent === 'Saved')")
        scene.clean()


@pytest.mark.parametrize(
    ("value", "columns", "rows"),
    [
        ([{"a": 1}, {"b": 2}], ["a", "b"], 2),
        ({"a": [1, 2], "b": [3]}, ["a", "b"], 2),
        ({"columns": ["a", "b"], "data": [[1, 2], [3, 4]]}, ["a", "b"], 2),
        ([["city", "high"], ["Oslo", 3]], ["city", "high"], 1),
        ([[1, 2], [3, 4, 5]], ["1", "2", "3"], 2),
        ([1, 2, 3], ["value"], 3),
        ({"ada": {"age": 36}, "bob": {"age": 40}}, ["key", "age"], 2),
        ({"result": [{"a": 1}]}, ["a"], 1),
        ({"rows": [{"a": 1}], "count": 1}, ["a"], 1),
    ],
)
async def test_shapes_of_tables(open_view: Open, value: Any, columns: list[str], rows: int) -> None:
    async with open_view("table", {"content": [{"type": "text", "text": json.dumps(value)}]}) as scene:
        names = await scene.view.evaluate("[...document.querySelectorAll('th button')].map((one) => one.title)")
        assert names == columns
        assert await scene.view.evaluate("document.querySelectorAll('tbody tr').length") == rows


async def test_options_of_a_table(open_view: Open) -> None:
    async with open_view(
        "table", ROWS, options={"columns": ["high", "day"], "rows": "items", "title": "Days"}
    ) as scene:
        assert await scene.view.evaluate("[...document.querySelectorAll('th button')].map((one) => one.title)") == [
            "high",
            "day",
        ]
        assert await scene.view.text("h1") == "Days"


async def test_a_chart_is_read_by_keyboard_and_as_a_table(open_view: Open) -> None:
    rows = [{"day": f"2026-03-0{day}", "high": day * 1000, "low": None if day == 3 else day} for day in range(1, 6)]
    async with open_view("chart", data(rows)) as scene:
        view = scene.view
        await view.until("document.querySelector('.plot svg path')")
        assert await view.evaluate(
            "[...document.querySelectorAll('.legend button')].map((one) => one.textContent)"
        ) == [
            "High",
            "Low",
        ]
        label = await view.evaluate("document.querySelector('.plot svg').getAttribute('aria-label')")
        assert "High from 1000 to 5000" in label
        await view.evaluate("document.querySelector('.plot svg').focus()")
        for _ in range(3):
            await scene.page.press("ArrowRight", 39)
        await view.until("document.querySelector('.tip').textContent.includes('3 Mar 2026')")
        assert await view.text(".seen") == "3 Mar 2026: High 3000, Low none"
        # A gap is a gap: the line of what has a missing value is in two parts.
        moves = "document.querySelector('[data-series=low] path').getAttribute('d').match(/M/g).length"
        assert await view.evaluate(moves) == 2
        await view.evaluate("document.querySelectorAll('.legend button')[0].click()")
        await view.until("!document.querySelector('[data-series=high]')")
        swap = "[...document.querySelectorAll('.button')].find((one) => ['Table', 'Chart'].includes(one.textContent))"
        await view.evaluate(f"{swap}.click()")
        await view.until("document.querySelectorAll('tbody tr').length === 5")
        await view.evaluate(f"{swap}.click()")
        await view.until("document.querySelector('.plot').checkVisibility()")
        scene.clean()


@pytest.mark.parametrize(
    ("value", "options", "series", "bars"),
    [
        ([{"city": "Oslo", "n": 1}, {"city": "Bergen", "n": -2}], {}, ["n"], True),
        ([{"city": "Oslo", "n": 1}, {"city": "Bergen", "n": 2}], {"kind": "area"}, ["n"], False),
        ([{"c": "a", "n": 1, "m": 2}, {"c": "b", "n": 3, "m": 4}], {"stacked": True, "kind": "bar"}, ["n", "m"], True),
        ([{"c": "a", "n": 1, "m": 2}], {"y": ["m"], "x": "c"}, ["m"], True),
        ({"t": [1, 2, 3, 4], "v": [5, 1, 0, 9]}, {}, ["v"], False),
        ([{"n": 5}], {}, ["n"], True),
        ([{"n": 0}, {"n": 0}], {}, ["n"], True),
        ([{"at": "2026-01-01T00:00:00Z", "n": 5}], {"kind": "line"}, ["n"], False),
        ([{"x": "a", **{f"s{number}": number for number in range(12)}}], {}, [f"s{n}" for n in range(8)], True),
        ([{"n": 1e-9}, {"n": 1e12}], {}, ["n"], True),
    ],
)
async def test_shapes_of_charts(open_view: Open, value: Any, options: Any, series: list[str], bars: bool) -> None:
    result = {"content": [], "structuredContent": {"result": value}}
    async with open_view("chart", result, options=options) as scene:
        await scene.view.until("document.querySelector('.plot svg')")
        found = await scene.view.evaluate(
            "[...document.querySelectorAll('[data-series]')].map((g) => [g.dataset.series, g.innerHTML])"
        )
        assert [name for name, _ in found] == series
        assert all("NaN" not in drawn and "Infinity" not in drawn for _, drawn in found)
        assert all(("stroke-linejoin" not in drawn) is bars for _, drawn in found)
        scene.clean()


async def test_markdown_is_rendered(open_view: Open) -> None:
    source = (
        "Title\n=====\n\nA *b **c*** `d`e ~~f~~ g\\*h i_j_k https://x.example/a_b.\nnext  \nbroken\n\n"
        "1. one\n2. two\n\n   still two\n\n- a\n  - b\n- [ ] open\n\n> q\n> r\n\n~~~\n<i>\n~~~\n\n    four\n\n"
        '| a | b |\n|:-:|--:|\n| 1 \\| 2 | **3** |\n\n***\n\n[l](https://x.example/ "t") ![](data:image/png;base64,'
        + png()
        + ")"
    )
    async with open_view("markdown", text(source)) as scene:
        html = await scene.view.evaluate("document.querySelector('.markdown').innerHTML")
        for part in (
            "Title</h1>", "<em>b <strong>c</strong></em>", ">d</code>e", "<del>f</del>", "g*h i_j_k", "next<br>broken",
            ">still two</p>", "<li>a<ul", "<blockquote", "&lt;i&gt;", ">four</code>", ">1 | 2</td>",
            "<strong>3</strong>", "<hr>", '<img src="data:image/png', 'disabled=""',
        ):  # fmt: skip
            assert part in html, part
        links = await scene.view.evaluate("[...document.querySelectorAll('.link')].map((one) => one.title)")
        assert links == ["https://x.example/a_b", "https://x.example/"]
        assert await scene.view.evaluate("getComputedStyle(document.querySelectorAll('td')[1]).textAlign") == "end"
        scene.clean()


async def test_an_image_is_zoomed(open_view: Open) -> None:
    result = {
        "content": [{"type": "image", "data": png(400, 300), "mimeType": "image/png"}, *text("A blue field")["content"]]
    }
    async with open_view("image", result) as scene:
        view = scene.view
        await view.until("document.querySelector('.stage img').naturalWidth === 400")
        assert await view.evaluate("document.querySelector('.stage img').alt") == "A blue field"
        assert await view.text("figcaption") == "A blue field"
        await view.evaluate("document.querySelector('.stage').focus()")
        await scene.page.press("+", 187, text="+")
        await view.until("document.querySelector('[role=status]').textContent === '150 %'")
        assert await view.evaluate("document.querySelector('.stage img').getBoundingClientRect().width") == 600
        await scene.page.press("0", 48, text="0")
        await view.until("document.querySelector('[role=status]').textContent === 'Fits'")
        scene.clean()


async def test_an_image_is_drawn_where_data_addresses_are_blocked(open_view: Open) -> None:
    """As in hosts whose policy has no images of `data:`."""
    result = {"content": [{"type": "image", "data": png(40, 30), "mimeType": "image/png"}]}
    async with open_view("image", result, policy=STRICT.replace("img-src 'self' data:", "img-src 'none'")) as scene:
        await scene.view.until("document.querySelector('.stage canvas')?.width === 40")


@pytest.mark.parametrize("is_offered", [True, False])
async def test_an_image_that_is_a_resource_is_read(open_view: Open, is_offered: bool) -> None:
    block = {"type": "resource_link", "uri": "shop://photo", "name": "photo", "mimeType": "image/png"}
    contents = [{"uri": "shop://photo", "mimeType": "image/png", "blob": png(40, 30)}]
    capabilities = {} if is_offered else {"serverResources": None}
    answers = {
        "resources/read": {"result": {"contents": contents}} if is_offered else {"error": {"code": -1, "message": "no"}}
    }
    async with open_view("image", {"content": [block]}, answers=answers, capabilities=capabilities) as scene:
        if is_offered:
            await scene.view.until("document.querySelector('.stage img').naturalWidth === 40")
        else:
            await scene.view.until("document.querySelector('main').textContent.includes('cannot read shop://photo')")


# -- forms -------------------------------------------------------------------------------------

FIELDS = (
    "[...document.querySelectorAll('[role=form] > *')].map((one) => one.querySelector('label, legend').textContent)"
)
WRONG = "[...document.querySelectorAll('.wrong:not([hidden])')].map((one) => one.textContent)"


async def put(scene: Scene, label: str, value: Any) -> None:
    """Write into the field of that label, as a person would."""
    write = """(label, value) => {
      const labels = [...document.querySelectorAll('.form label')];
      const input = labels.find((one) => one.textContent.replace(' *', '') === label).control;
      if (input.type === 'checkbox') input.checked = value; else input.value = value;
      input.dispatchEvent(new Event('input', { bubbles: true }));
    }"""
    await scene.view.call(write, label, value)


async def sent(scene: Scene) -> Any:
    await scene.host.until("host.of('tools/call').length > 0")
    return (await scene.received("tools/call"))[-1]["params"]


async def test_a_form_is_the_schema_and_calls_its_tool(open_view: Open) -> None:
    answers = {"tools/call": {"result": data([{"a": 1}, {"a": 2}])}, "ui/update-model-context": {"result": {}}}
    arguments = {"city": "Oslo", "tags": ["coast"], "start": "2026-03-01", "more": {"x": [1]}}
    async with open_view("form", text("first"), arguments=arguments, answers=answers) as scene:
        assert await scene.view.evaluate(FIELDS) == [
            "City *", "Days *", "Unit", "Start", "Hourly", "Tags", "Measures", "Place", "More",
        ]  # fmt: skip
        await put(scene, "Days", "7")
        await put(scene, "Unit", "1")
        await put(scene, "Hourly", True)
        await put(scene, "rain", True)
        await scene.view.click(".primary")
        called = await sent(scene)
        assert called["name"] == FORM_TOOL["name"]
        assert called["arguments"] == {
            "city": "Oslo", "days": 7, "unit": "fahrenheit", "start": "2026-03-01", "hourly": True, "tags": ["coast"],
            "measures": ["rain"], "more": {"x": [1]},
        }  # fmt: skip
        await scene.view.until("document.querySelectorAll('.outcome tbody tr').length === 2")
        await scene.host.until("host.of('ui/update-model-context').length === 1")
        scene.clean()


async def test_what_is_wrong_is_said_at_the_field_and_nothing_is_sent(open_view: Open) -> None:
    async with open_view("form", text("first"), arguments={"city": "O", "tags": ["much too long"]}) as scene:
        await put(scene, "Days", "15")
        await put(scene, "Latitude", "x")
        await put(scene, "More", "{")
        await scene.view.click(".primary")
        told = await scene.view.evaluate(WRONG)
        assert told[0] == "At least 2 characters."
        assert told[1] == "At most 14."
        assert told[2].startswith("1: At most 9")
        assert told[3] == "This is no number."
        assert told[4] == "This is needed."
        assert told[5].startswith("This is no JSON")
        assert await scene.view.evaluate("document.activeElement.value") == "O"
        assert await scene.view.evaluate("document.querySelectorAll('[aria-invalid=true]').length") >= 5
        assert await scene.received("tools/call") == []
        scene.clean()


async def test_what_the_tool_says_of_arguments_goes_to_their_fields(open_view: Open) -> None:
    complaint = (
        "city: Missing, but required\nplace.latitude: Expected `float` <= 90\ntags[1]: Expected `str`, got `int`"
    )
    result = {"isError": True, "content": [{"type": "text", "text": complaint}]}
    async with open_view("form", result, await_phase="error") as scene:
        assert await scene.view.evaluate(WRONG) == [
            "Missing, but required", "[1]: Expected `str`, got `int`", "Expected float <= 90",
        ]  # fmt: skip
        assert await scene.view.text(".outcome") == ""
    other = {"isError": True, "content": [{"type": "text", "text": "city: Missing\nthe disk is full"}]}
    async with open_view("form", other, await_phase="error") as scene:
        assert "the disk is full" in await scene.view.text(".outcome")


async def test_a_call_of_a_form_tells_its_progress_and_can_be_stopped(open_view: Open) -> None:
    steps = [{"after": 0, "params": {"progress": 1, "total": 4}}]
    answers = {"tools/call": {"result": text("late"), "progress": steps, "after": 3_600_000}}
    async with open_view("form", text("first"), arguments={"city": "Oslo"}, answers=answers) as scene:
        await scene.view.click(".primary")
        await scene.view.until("document.querySelector('.send').textContent.includes('25 %')")
        assert await scene.view.evaluate("document.querySelector('.primary').disabled")
        await scene.view.evaluate(
            "[...document.querySelectorAll('button')].find((b) => b.textContent === 'Stop').click()"
        )
        await scene.view.until("document.querySelector('.outcome').textContent === 'Stopped'")
        [cancelled] = await scene.received("notifications/cancelled")
        assert cancelled["params"]["requestId"] == (await scene.received("tools/call"))[0]["id"]
        scene.clean()


async def test_a_form_where_no_view_may_call_tools(open_view: Open) -> None:
    async with open_view("form", text("first"), capabilities={"serverTools": None}) as scene:
        assert await scene.view.evaluate("document.querySelector('.primary').disabled")
        assert "lets no view call tools" in await scene.view.text(".send")


async def test_a_form_believes_the_host_about_its_tool(open_view: Open) -> None:
    """Behind a gateway the tool has another name, and the host knows it."""
    tool = {"name": "shop_forecast", "inputSchema": {"type": "object", "properties": {"zip": {"type": "string"}}}}
    answers = {"tools/call": {"result": text("ok")}}
    async with open_view("form", text("x"), context={"toolInfo": {"tool": tool}}, answers=answers) as scene:
        assert await scene.view.evaluate(FIELDS) == ["Zip"]
        await scene.view.click(".primary")
        assert await sent(scene) | {"_meta": None} == {"name": "shop_forecast", "arguments": {}, "_meta": None}


STILL = "This still works after 45 s, as the task t-1. Call task_result with this id to wait for the result, or task_cancel to stop it."  # fmt: skip # noqa: E501
WORKS = {**text("The task still works: frame (3 of 40). Call task_result again to wait for it"), "isError": True}
CALLS = {"capabilities": {"serverTools": {}}}


@pytest.mark.parametrize("kind", ["table", "form"])
async def test_the_progress_of_a_task_is_shown(open_view: Open, kind: str) -> None:
    """The page waits for the result of a task by the tool that its text names, and shows how far it is."""
    answers = {"tools/call": [{"result": WORKS}, {"result": data([{"city": "Oslo", "high": 3}])}]}
    async with open_view(kind, text(STILL), answers=answers, await_phase="shown", **CALLS) as scene:
        await scene.view.until("document.querySelector('tbody tr')")
        calls = [asked["params"] for asked in await scene.received("tools/call")]
        assert calls == [{"name": "task_result", "arguments": {"id": "t-1", "wait": 2}}] * 2
        scene.clean()


async def test_a_task_is_stopped(open_view: Open) -> None:
    async with open_view(
        "table", text(STILL), answers={"tools/call": "silence"}, await_phase="running", **CALLS
    ) as scene:
        assert await scene.view.text(".state") == "RunningStop"
        await scene.view.evaluate("document.querySelector('.state button').click()")
        await scene.view.until("document.querySelector('.problem')?.textContent.includes('stopped')")
        calls = [asked["params"] for asked in await scene.received("tools/call")]
        assert calls[1] == {"name": "task_cancel", "arguments": {"id": "t-1"}}
        assert len(await scene.received("notifications/cancelled")) == 1


async def test_text_about_another_tool_calls_nothing(open_view: Open) -> None:
    """Results may quote others: no text makes a page call any tool but these two."""
    for said in (STILL.replace("task_result", "delete_all"), f"Somebody wrote: {STILL}"):
        async with open_view("markdown", text(said), **CALLS) as scene:
            await scene.view.until("document.documentElement.dataset.phase === 'shown'")
            assert await scene.received("tools/call") == []
