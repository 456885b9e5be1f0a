"""The form that the page of `mcpd preview` makes of a tool's schema, in a real Chromium: what is written into it is sent.

A row of the zoo is a schema, what somebody does to its form, and the arguments that come of it. Each value is then given
to the form as JSON too, and has to come out as it went in.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.browser import Chromium
from support.preview_page_stage import opened, schema_server

TREE = {
    "type": "object",
    "properties": {"root": {"$ref": "#/$defs/Node"}},
    "required": ["root"],
    "$defs": {
        "Node": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
            },
            "required": ["name"],
        }
    },
}
SHAPES = {
    "oneOf": [
        {
            "type": "object",
            "title": "Circle",
            "required": ["kind", "r"],
            "properties": {"kind": {"const": "circle"}, "r": {"type": "number", "minimum": 0}},
        },
        {
            "type": "object",
            "title": "Box",
            "required": ["kind", "w"],
            "properties": {"kind": {"const": "box"}, "w": {"type": "integer"}, "h": {"type": "integer", "default": 1}},
        },
    ]
}


def _object(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required or [])}


NULLABLE = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
MAPPED = {"type": "object", "additionalProperties": {"type": "integer"}}
PATTERNS = {
    "type": "object",
    "patternProperties": {"^x-": {"type": "boolean"}},
    "additionalProperties": {"type": "string"},
}

# name, schema, what is done: [control, value] to write, [control] to press; the arguments that are sent
ZOO: list[tuple[str, dict[str, Any], list[list[Any]], Any]] = [
    ("nothing", _object(), [], {}),
    ("text", _object(["a"], a={"type": "string"}, b={"type": "string"}), [["a", "Oslo\nBergen"]], {"a": "Oslo\nBergen"}),
    ("empty_text", _object(["a"], a={"type": "string"}), [["Send a as empty text"]], {"a": ""}),
    ("default", _object([], a={"type": "string", "default": "x"}, n={"type": "integer", "default": 0}), [], {"a": "x", "n": 0}),
    ("number", _object(["n"], n={"type": "number", "minimum": -1, "maximum": 1}), [["n", "-0.25"]], {"n": -0.25}),
    ("slider", _object(["n"], n={"type": "integer", "minimum": 1, "maximum": 10}), [["n, slider", "7"]], {"n": 7}),
    ("multiple", _object(["n"], n={"type": "number", "multipleOf": 0.1}), [["n", "0.3"]], {"n": 0.3}),
    ("choice", _object([], unit={"enum": ["C", "F", 3, None]}), [["unit", "3"]], {"unit": 3}),
    ("titled", _object(["c"], c={"oneOf": [{"const": 1, "title": "one"}, {"const": 2, "title": "two"}]}), [["c", "two"]], {"c": 2}),
    ("const", _object(["v"], v={"const": "2.0"}), [], {"v": "2.0"}),
    ("yes", _object(["on"], on={"type": "boolean"}, off={"type": "boolean"}), [["on: true"]], {"on": True}),
    ("no", _object([], on={"type": "boolean", "default": True}), [["on: false"]], {"on": False}),
    ("unsent", _object([], on={"type": "boolean", "default": True}), [["on: not sent"]], {}),
    ("date", _object([], d={"type": "string", "format": "date"}), [["d", "2026-02-28"]], {"d": "2026-02-28"}),
    ("time", _object([], t={"type": "string", "format": "time"}), [["t", "14:30:05"]], {"t": "14:30:05Z"}),
    ("moment", _object([], m={"type": "string", "format": "date-time"}), [["m", "2026-02-28T14:30:05"]], {"m": "2026-02-28T14:30:05Z"}),
    ("formats", _object([], e={"type": "string", "format": "email"}, u={"type": "string", "format": "uri"}), [["e", "a@b.c"], ["u", "https://x.y/z"]], {"e": "a@b.c", "u": "https://x.y/z"}),
    ("nested", _object(["who"], who=_object(["name"], name={"type": "string"}, at=_object([], x={"type": "integer"}))), [["name", "Ann"], ["Set at"], ["x", "4"]], {"who": {"name": "Ann", "at": {"x": 4}}}),
    ("left_out", _object([], who=_object([], name={"type": "string"})), [["Set who"], ["name", "Ann"], ["Leave out who"]], {}),
    ("list", _object(["tags"], tags={"type": "array", "items": {"type": "string"}}), [["Add an item to tags"], ["tags, item 1", "a"], ["Add an item to tags"], ["tags, item 2", "b"], ["Move item 2 up"]], {"tags": ["b", "a"]}),
    ("shorter", _object(["n"], n={"type": "array", "items": {"type": "integer"}, "default": [1, 2, 3]}), [["Remove item 2"]], {"n": [1, 3]}),
    ("empty_list", _object([], n={"type": "array", "items": {"type": "integer"}}), [["Set n"]], {"n": []}),
    ("tuple", _object(["p"], p={"type": "array", "prefixItems": [{"type": "string"}, {"type": "number"}], "items": False}), [["p, item 1", "a"], ["p, item 2", "1.5"]], {"p": ["a", 1.5]}),
    ("several", _object(["s"], s={"type": "array", "uniqueItems": True, "items": {"enum": ["a", "b", "c"]}}), [["a"], ["c"]], {"s": ["a", "c"]}),
    ("objects", _object(["l"], l={"type": "array", "items": _object(["k"], k={"type": "string"})}), [["Add an item to l"], ["k", "v"]], {"l": [{"k": "v"}]}),
    ("union", _object(["shape"], shape=SHAPES), [["shape", "Box"], ["w", "2"]], {"shape": {"kind": "box", "w": 2, "h": 1}}),
    ("types", _object(["v"], v={"type": ["integer", "string"]}), [["v", "string"], ["v as string", "x"]], {"v": "x"}),
    ("null", _object(["n"], n=NULLABLE), [["Send n as null"]], {"n": None}),
    ("not_null", _object(["n"], n=NULLABLE), [["n", "5"]], {"n": 5}),
    ("tree", TREE, [["name", "top"], ["Set children"], ["Add an item to children"]], None),
    ("map", _object(["m"], m=MAPPED), [["Add a member to m"], ["Key in m", "a"], ["value of a", "1"]], {"m": {"a": 1}}),
    ("pattern", _object(["m"], m=PATTERNS), [["Add a member to m"], ["Key in m", "x-on"], ["value of x-on: true"]], {"m": {"x-on": True}}),
    ("free", {"type": "object"}, [["Add a member to Arguments"], ["Key in Arguments", "k"], ["value of k", "[1]"]], {"k": [1]}),
    ("any", _object(["v"], v={}), [["v", '{"a": [1, null]}']], {"v": {"a": [1, None]}}),
    ("all_of", _object(["a"], a={"allOf": [{"$ref": "#/$defs/T"}], "title": "Text"}) | {"$defs": {"T": {"type": "string", "maxLength": 9}}}, [["a", "short"]], {"a": "short"}),
    ("proto", _object(["__proto__"], __proto__={"type": "string"}), [["__proto__", "x"]], {"__proto__": "x"}),
]  # fmt: skip

# What a form has to give back as it was given, whatever the schema thinks of it.
ODD: list[tuple[dict[str, Any], Any]] = [
    (_object([], n={"type": "integer"}), {"n": "not a number"}),
    (_object([], n={"type": "integer", "maximum": 3}), {"n": 99}),
    (_object([], d={"type": "string", "format": "date"}), {"d": "tomorrow"}),
    (_object([], d={"type": "string", "format": "date-time"}), {"d": "2026-02-28T14:30:05.123456+02:00"}),
    (_object([], c={"enum": ["a", "b"]}), {"c": "z"}),
    (_object([], s={"type": "string", "format": "uri"}), {"s": "two\nlines\r\n"}),
    (_object([], s={"type": "string"}), {"s": "", "unknown": {"deep": [1, {"x": None}]}}),
    (_object([], u=SHAPES), {"u": {"kind": "hexagon"}}),
    (_object([], u=SHAPES), {"u": {"kind": "circle", "r": 1.5}}),
    (_object([], u={"type": ["integer", "string", "null"]}), {"u": None}),
    (_object([], l={"type": "array", "uniqueItems": True, "items": {"enum": ["a", "b"]}}), {"l": ["b", "a"]}),
    (TREE, {"root": {"name": "a", "children": [{"name": "b", "children": []}, {"name": "c"}]}}),
    (_object([], f={"type": "string", "contentEncoding": "base64"}), {"f": "aGVsbG8="}),
    (_object([], m=PATTERNS), {"m": {"x-a": False, "plain": "text", "y": 3}}),
    (_object([], b={"type": "boolean"}), {"b": None}),
    (_object([], o=_object([], i={"type": "integer"})), {"o": [1, 2]}),
]

ACT = """(schema, steps) => {
  document.getElementById("bench")?.remove();
  const bench = document.body.appendChild(document.createElement("div"));
  bench.id = "bench";
  return import("/form.js").then(({ makeForm }) => {
    const form = makeForm(JSON.parse(schema));
    bench.append(form.node);
    for (const [name, ...value] of steps) {
      if (value.length) find.write(name, value[0], bench);
      else if (find.all(bench).some((node) => find.name(node) === name)) find.press(name, bench);
      else {
        const [group, word] = name.split(": ");
        const inside = [...bench.querySelectorAll("[role=radiogroup]")].find((one) => find.name(one) === group);
        find.press(word, inside);
      }
    }
    const { value, problems } = form.read();
    return { value: JSON.stringify(value), problems: problems.map(({ path, text }) => [path.join("."), text]) };
  });
}"""
THROUGH = """(schema, value) => import("/form.js").then(({ makeForm }) => {
  const form = makeForm(JSON.parse(schema));
  form.write(JSON.parse(value));
  return JSON.stringify(form.read({ quiet: true }).value);
})"""


@pytest.mark.slow
async def test_a_form_gives_what_was_written_into_it(chromium: Chromium) -> None:
    """The zoo, through the controls as they are called; then every value as JSON, in and out."""
    server, _ = schema_server({})
    async with opened(chromium, server) as stage:
        for name, schema, steps, expected in ZOO:
            told = await stage.main.call(ACT, json.dumps(schema), steps)
            if expected is not None:
                assert (json.loads(told["value"]), told["problems"]) == (expected, []), name
                back = json.loads(await stage.main.call(THROUGH, json.dumps(schema), json.dumps(expected)))
                assert back == expected, name
        for schema, value in ODD:
            assert json.loads(await stage.main.call(THROUGH, json.dumps(schema), json.dumps(value))) == value
        assert not stage.page.errors
        assert not stage.page.violations


WRONG: list[tuple[dict[str, Any], list[list[Any]], list[str]]] = [
    (_object(["a"], a={"type": "string"}), [], ["a", "This is required."]),
    (_object([], n={"type": "integer", "maximum": 3}), [["n", "4"]], ["n", "At most 3."]),
    (_object([], n={"type": "integer"}), [["n", "1.5"]], ["n", "This is not a whole number."]),
    (_object([], n={"type": "integer"}), [["n", "9007199254740993"]], ["n", "Too large to be sent exactly."]),
    (_object([], s={"type": "string", "pattern": "^a"}), [["s", "b"]], ["s", "Must fit the pattern ^a"]),
    (_object([], s={"type": "string", "maxLength": 2}), [["s", "abc"]], ["s", "At most 2 characters; this has 3."]),
    (_object([], e={"type": "string", "format": "email"}), [["e", "nobody"]], ["e", "Must be an e-mail address."]),
    (_object(["l"], l={"type": "array", "minItems": 1, "items": {}}), [["Remove item 1"]], ["l", "At least 1 item."]),
    (_object(["v"], v={}), [["v", "{"]], ["v", "Not JSON yet"]),
    (_object(["m"], m=MAPPED), [["Add a member to m"], ["value of the new member", "1"]], ["m.", "A member needs a key."]),
    (_object(["o"], o=_object(["x"], x={"type": "string"})), [], ["o.x", "This is required."]),
]  # fmt: skip


@pytest.mark.slow
async def test_what_is_wrong_is_said_at_its_field(chromium: Chromium) -> None:
    """Each limit in words, at the control that it is about, which is marked invalid; a call takes the focus there."""
    name = _object(["city"], city={"type": "string", "description": "Where"}, days={"type": "integer", "maximum": 5})
    server, called = schema_server({"forecast": name})
    async with opened(chromium, server) as stage:
        for schema, steps, (path, text) in WRONG:
            told = await stage.main.call(ACT, json.dumps(schema), steps)
            (first, *others) = told["problems"]
            assert (first[0], first[1][: len(text)], others) == (path, text, []), (schema, told)
            assert await stage.main.evaluate("[...bench.querySelectorAll('.wrong')].filter(find.shown).length") == 1
        await stage.main.evaluate("bench.remove()")

        await stage.press("Call")
        assert await stage.main.evaluate("find.name(document.activeElement)") == "city"
        assert await stage.main.evaluate("document.activeElement.getAttribute('aria-invalid')") == "true"
        described = "document.activeElement.getAttribute('aria-describedby').split(' ').map((id) => document.getElementById(id).textContent)"
        assert await stage.main.evaluate(described) == ["Where", "This is required."]
        await stage.write("city", "Oslo")
        assert await stage.main.evaluate("document.querySelector('[aria-invalid]')") is None
        await stage.press("Call")
        await stage.says("taken")
        assert called == [("forecast", {"city": "Oslo"})]


@pytest.mark.slow
async def test_json_and_form_keep_what_the_other_was_told(chromium: Chromium) -> None:
    """There and back: spaces of the text, what no schema knows, what is not finished; and it is sent as it stands."""
    server, called = schema_server({"t": _object(["city"], city={"type": "string"}, n={"type": "integer"})})
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
