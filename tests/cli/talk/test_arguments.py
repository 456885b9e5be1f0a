"""Arguments as they are typed: read by the tool's schema, or refused with what was expected."""

from __future__ import annotations

import io
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from mcpd.cli.talk.arguments import arguments_of, read_schema, read_words, texts_of
from mcpd.cli.talk.words import WrongUse

SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["text"],
    "$defs": {"Bed": {"type": "object", "properties": {"name": {"type": "string"}, "size": {"type": "integer"}}}},
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "share": {"type": "number"},
        "rows": {"type": "integer", "minimum": 1, "maximum": 12},
        "code": {"type": "string", "minLength": 2},
        "really": {"type": "boolean"},
        "season": {"enum": ["spring", "autumn"]},
        "level": {"enum": [1, 2]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "numbers": {"type": "array", "items": {"type": "integer"}},
        "bed": {"$ref": "#/$defs/Bed"},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "either": {"type": ["integer", "string"]},
        "any": {},
        "data": {"type": "string", "contentEncoding": "base64"},
        "a.b": {"type": "integer"},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        "modes": {"type": "array", "items": {"enum": ["fast", "slow"]}},
    },
}


def read(*words: str, schema: dict[str, Any] = SCHEMA) -> dict[str, Any]:
    return arguments_of(read_words(words), read_schema(schema))


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        (["text=hi there"], {"text": "hi there"}),
        (["text="], {"text": ""}),
        (["text=5"], {"text": "5"}),
        (["text=a=b"], {"text": "a=b"}),
        (["text=true"], {"text": "true"}),
        (["text=@@me"], {"text": "@me"}),
        (["count=-5"], {"count": -5}),
        (["count=3.0"], {"count": 3}),
        (["share=5"], {"share": 5}),
        (["share=1e-3"], {"share": 0.001}),
        (["really=TRUE"], {"really": True}),
        (["season=autumn"], {"season": "autumn"}),
        (["level=2"], {"level": 2}),
        (["tags=a"], {"tags": ["a"]}),
        (["tags=a", "tags=b,c"], {"tags": ["a", "b,c"]}),
        (['tags=["a","b"]'], {"tags": ["a", "b"]}),
        (["tags=[]"], {"tags": []}),
        (["numbers=1", "numbers=2"], {"numbers": [1, 2]}),
        (["modes=fast"], {"modes": ["fast"]}),
        (["bed.name=south", "bed.size=3"], {"bed": {"name": "south", "size": 3}}),
        (['bed={"name":"x"}'], {"bed": {"name": "x"}}),
        (['bed:={"name":"x"}', "bed.size=1"], {"bed": {"name": "x", "size": 1}}),
        (["map.x:=1"], {"map": {"x": 1}}),
        (["maybe=3"], {"maybe": 3}),
        (["maybe=null"], {"maybe": None}),
        (["either=5", "either:=6"], None),
        (["either=x"], {"either": "x"}),
        (["any=[1]"], {"any": [1]}),
        (["any=word"], {"any": "word"}),
        (["a.b=1"], {"a.b": 1}),
        (["text:=null"], {"text": None}),
        (['{"text":"a","count":1}', "count=2"], {"text": "a", "count": 2}),
    ],
)  # fmt: skip
def test_values_are_read_by_the_schema(words: list[str], arguments: dict[str, Any] | None) -> None:
    if arguments is None:
        with pytest.raises(WrongUse, match="given twice"):
            read(*words)
    else:
        assert read(*words) == arguments


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("txt=1", "no argument txt; did you mean text?"),
        ("zzz=1", "no argument zzz; the arguments are text, count"),
        ("count=many", "count: 'many' is not of type integer"),
        ("count=1.5", "count: '1.5' is not of type integer"),
        ("rows=13", "rows: '13' must be 1 to 12"),
        ("code=x", "code: 'x' must be at least 2 characters"),
        ("share=nan", "share: 'nan' is not of type number"),
        ("really=perhaps", "really: 'perhaps' is not of type boolean; write true or false"),
        ("season=sprin", "did you mean spring?"),
        ("season=winter", "one of spring, autumn"),
        ("modes=medium", "modes: 'medium' is not allowed; write one of fast, slow"),
        ("numbers=x", "numbers: 'x' is not of type integer"),
        ("bed=x", "bed: 'x' is not of type object"),
        ("bed.nme=x", "no argument bed.nme; did you mean name?"),
        ("count:=many", "count:=many is not JSON: expecting value before 'many'; for a text write count=TEXT"),
        ('count:={"a":1', "is not JSON: expecting ',' delimiter at the end; write names and texts in double quotes"),
        ('{"bed": south}', "is not JSON: expecting value before 'south}'; write names"),
        ("[1]", "write name=value"),
        ("{1}", "is not JSON"),
        ("count:=" + "[" * 30_000, "is not JSON: nested too deeply"),
        ("@nosuch", "nosuch: No such file"),
        ("text=@nosuch", "nosuch: No such file or directory; to pass the text itself, write text=@@nosuch"),
        ('{"txt":1}', "no argument txt; did you mean text?"),
    ],
)
def test_mistakes_say_what_to_write(word: str, said: str) -> None:
    with pytest.raises(WrongUse) as raised:
        read(word)
    assert said in str(raised.value)


def test_a_tool_without_arguments_says_so() -> None:
    with pytest.raises(WrongUse, match="no argument a; there are no arguments"):
        read("a=1", schema={"type": "object", "properties": {}, "additionalProperties": False})


def test_an_open_schema_takes_what_is_near_to_nothing() -> None:
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    assert read("other=1", schema=schema) == {"other": 1}
    assert read("a=1", "b.c=x", schema={}) == {"a": 1, "b": {"c": "x"}}
    with pytest.raises(WrongUse, match="did you mean text"):
        read("texd=1", schema=schema)


def test_files_and_stdin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("line\n")
    Path("a.json").write_text('{"text": "x", "count": 2}')
    Path("n.txt").write_text("7\n")
    Path("raw.bin").write_bytes(b"\xff\x00")

    assert read("text=@a.txt") == {"text": "line\n"}
    assert read("count=@n.txt") == {"count": 7}
    assert read("any:=@a.json") == {"any": {"text": "x", "count": 2}}
    assert read("@a.json") == {"text": "x", "count": 2}
    assert read("data=@raw.bin") == {"data": b64encode(b"\xff\x00").decode()}
    with pytest.raises(WrongUse, match="is not a text file"):
        read("text=@raw.bin")

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"text": "piped"}')))
    assert read("-") == {"text": "piped"}
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"[1]")))
    with pytest.raises(WrongUse, match="write the arguments as a JSON object"):
        read("-")
    with pytest.raises(WrongUse, match="stdin can be read only once"):
        read("-", "text=@-")


def test_what_is_required() -> None:
    schema = read_schema(SCHEMA)
    assert schema.required == ["text"]


def test_arguments_of_prompts_are_texts() -> None:
    assert texts_of(read_words(["a=5", "b=true", '{"c": 1}']), ["a", "b", "c"]) == {"a": "5", "b": "true", "c": "1"}
    with pytest.raises(WrongUse, match="no argument sezon; did you mean season"):
        texts_of(read_words(["sezon=x"]), ["season"])
    with pytest.raises(WrongUse, match="there are no arguments"):
        texts_of(read_words(["a=1"]), [])
