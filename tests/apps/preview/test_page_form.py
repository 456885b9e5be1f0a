"""The form that the page of `mcpd preview` makes of a schema, in a real Chromium: what is written into it is sent.

The zoo is in schema_zoo.json. `typed`: a schema, what somebody does to its form, the arguments that come of it; each
of them is given to the form as JSON too. `odd`: what comes out as it went in, whatever the schema thinks of it.
`wrong`: what is said, and at which field.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from support.browser import Chromium
from support.preview_page_stage import opened, schema_server

from mcpd import Server, SyncFile

ZOO: dict[str, list[Any]] = json.loads(Path(__file__).with_name("schema_zoo.json").read_text(encoding="utf-8"))


@pytest.mark.slow
async def test_a_form_gives_what_was_written_into_it(chromium: Chromium) -> None:
    """The zoo, through the controls as they are called; then every value as JSON, in and out."""
    server, _ = schema_server({})
    async with opened(chromium, server) as stage:
        act, through = "(...all) => bench.act(...all)", "(...all) => bench.through(...all)"
        for row in ZOO["typed"]:
            schema = json.dumps(row["schema"])
            told = await stage.main.call(act, schema, row["steps"])
            assert (json.loads(told["value"]), told["problems"]) == (row["sent"], []), row["name"]
            assert json.loads(await stage.main.call(through, schema, json.dumps(row["sent"]))) == row["sent"]
        for row in ZOO["odd"]:
            value = json.dumps(row["value"])
            assert json.loads(await stage.main.call(through, json.dumps(row["schema"]), value)) == row["value"]
        assert not stage.page.errors
        assert not stage.page.violations


@pytest.mark.slow
async def test_what_is_wrong_is_said_at_its_field(chromium: Chromium) -> None:
    """Each limit in words, at the control that it is about, which is marked invalid; a call takes the focus there."""
    city = {"type": "string", "description": "Where"}
    server, called = schema_server({"forecast": {"type": "object", "properties": {"city": city}, "required": ["city"]}})
    async with opened(chromium, server) as stage:
        for row in ZOO["wrong"]:
            told = await stage.main.call("(...all) => bench.act(...all)", json.dumps(row["schema"]), row["steps"])
            ((where, said),) = told["problems"]
            path, text = row["said"]
            assert (where, said[: len(text)], told["alarms"]) == (path, text, 1), row

        await stage.press("Call")
        assert await stage.main.evaluate("find.name(document.activeElement)") == "city"
        assert await stage.main.evaluate("document.activeElement.getAttribute('aria-invalid')") == "true"
        described = "document.activeElement.ariaDescribedByElements.map((one) => one.textContent)"
        assert await stage.main.evaluate(described) == ["Where", "This is required."]
        await stage.write("city", "Oslo")
        assert await stage.main.evaluate("document.querySelector('[aria-invalid]')") is None
        await stage.press("Call")
        await stage.says("taken")
        assert called == [("forecast", {"city": "Oslo"})]


@pytest.mark.slow
async def test_json_and_form_keep_what_the_other_was_told(chromium: Chromium) -> None:
    """There and back: spaces of the text, what no schema knows, what is not finished; and it is sent as it stands."""
    properties = {"city": {"type": "string"}, "n": {"type": "integer"}}
    server, called = schema_server({"t": {"type": "object", "properties": properties}})
    async with opened(chromium, server) as stage:
        await stage.write("city", "Oslo")
        await stage.press("JSON")
        assert json.loads(await stage.main.evaluate("document.querySelector('.raw').value")) == {"city": "Oslo"}
        text = '{"n": 4,   "city": "Bergen", "more": [1, 2]}'
        await stage.write("Arguments as JSON", text)
        await stage.press("Form")
        assert await stage.main.evaluate("find.one('city').value") == "Bergen"
        await stage.press("JSON")
        assert await stage.main.evaluate("document.querySelector('.raw').value") == text

        await stage.write("Arguments as JSON", '{"n": 4,\n "city" "Bergen"}')
        await stage.press("Form")
        assert await stage.main.evaluate("document.activeElement === document.querySelector('.raw')")
        await stage.says("Not JSON yet, line 2, column 9")
        await stage.write("Arguments as JSON", text)
        await stage.press("Form")
        await stage.write("n", "5")
        await stage.press("Call")
        await stage.says("taken")
        assert called == [("t", {"city": "Bergen", "n": 5, "more": [1, 2]})]


@pytest.mark.slow
async def test_a_schema_without_end_has_a_form_all_the_same(chromium: Chromium) -> None:
    """What refers to itself ten times over, in each way that there is: a form is made, and made soon."""
    ten = [{"$ref": "#"} for _ in range(10)]
    names = {name: {"$ref": "#"} for name in "abcdefghij"}
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(300):
        deep = {"type": "object", "properties": {"in": deep}, "required": ["in"]}
    rows: list[tuple[Any, Any]] = [
        ({"allOf": ten}, {"x": 1}),
        ({"type": "object", "properties": names, "required": list(names)}, {"a": 1}),
        ({"type": "array", "minItems": 20, "items": {"$ref": "#"}}, [1, [2]]),
        ({"anyOf": ten, "required": ["x"]}, {"y": {"y": 1}}),
        ({"type": "object", "properties": {"u": {"oneOf": ten}}, "required": ["u", "v"]}, {"u": {"u": {}}}),
        (deep, {"in": {"in": 1}}),
        ({"type": "object", "properties": {"__proto__": {"type": "string"}, "constructor": {"$ref": "#"}}}, {"a": 1}),
    ]

    server, _ = schema_server({})
    async with opened(chromium, server) as stage, asyncio.timeout(40):
        for schema, value in rows:
            await stage.main.call("(...all) => bench.act(...all)", json.dumps(schema), [])
            told = await stage.main.call("(...all) => bench.through(...all)", json.dumps(schema), json.dumps(value))
            assert json.loads(told) is not None
        assert await stage.main.evaluate("({}).type === undefined")
        assert not stage.page.errors


@pytest.mark.slow
async def test_a_pattern_that_does_not_end_stops_nothing(chromium: Chromium) -> None:
    """It is tried in a worker, for a moment; what it takes too long for is left to the server, all else is told."""
    text = "a" * 40 + "!"
    evil = {"type": "string", "pattern": "^(a+)+$"}
    rows: list[tuple[Any, Any, list[str]]] = [
        ({"x": evil}, {"x": text}, []),
        ({"x": evil, "y": {"type": "string", "pattern": "^(ab)+$"}}, {"x": text, "y": "abc"}, ["y"]),
        ({"x": {"type": "string", "pattern": "^[a-z]+$"}}, {"x": "A"}, ["x"]),
        ({"x": {"type": "string", "pattern": "(?<!a)(b|c){2,}"}}, {"x": "ab"}, ["x"]),
        ({"x": {"type": "string", "pattern": "(?i)none of this language"}}, {"x": "a"}, []),
    ]

    server, _ = schema_server({})
    async with opened(chromium, server) as stage, asyncio.timeout(40):
        for properties, value, wrong in rows:
            schema = json.dumps({"type": "object", "properties": properties})
            steps = [[name, given] for name, given in value.items()]
            told = await stage.main.call("(...all) => bench.act(...all)", schema, steps)
            assert [path for path, _ in told["problems"]] == wrong, schema
            assert json.loads(told["value"]) == value
        assert not stage.page.errors
        assert not stage.page.violations


# A function of the page that chooses a file in the only input for files.
CHOOSE = """(name, text) => {
  const input = document.querySelector("input[type=file]"), chosen = new DataTransfer();
  chosen.items.add(new File([text], name, { type: "text/plain" }));
  input.files = chosen.files;
  input.dispatchEvent(new Event("change", { bubbles: true }));
}"""


@pytest.mark.slow
async def test_a_file_is_chosen(chromium: Chromium) -> None:
    """FIL-12: a parameter that takes a file has an input for it, and the tool gets the bytes and the name."""
    server = Server("files")

    @server.tool
    def describe(report: SyncFile) -> str:
        return f"{report.name} has {report.read().decode()!r}"

    async with opened(chromium, server) as stage:
        await stage.until("document.querySelector('input[type=file]')")
        await stage.main.call(CHOOSE, "a b.txt", "one, two")
        await stage.main.until("document.body.textContent.includes('8 B')")
        await stage.press("Call")
        await stage.says("a b.txt has 'one, two'")
        assert not stage.page.errors
