"""The slow path of arguments by itself; what a tool's caller sees of it is in test_signature.py."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest
from msgspec.structs import asdict

from mcpd.errors import ArgumentsError, InvalidParams
from mcpd.server.functions.arguments import ArgumentParser
from mcpd.server.functions.schema import input_schema


class Inner(msgspec.Struct):
    kind: Literal["x", "y"] = "x"
    kinds: dict[str, Literal[1, 2]] = {}


class Outer(msgspec.Struct, forbid_unknown_fields=True):
    n: int
    inner: Inner | None = None
    pair: tuple[int, Literal["p"]] | None = None
    many: list[Inner] = []


def parser(struct: type[msgspec.Struct] = Outer, extra: Any = None) -> ArgumentParser:
    return ArgumentParser(struct, extra, "ctx", lambda: input_schema(struct, {}, extra))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "n: Missing, but required"),
        ({"n": True}, "n: Expected `int`, got `bool`"),
        ({"n": 1, "inner": 3}, "inner: Expected `object | null`, got `int`"),
        ({"n": 1, "inner": {"kind": "z"}}, 'inner.kind: Invalid enum value \'z\'; expected one of "x", "y"'),
        ({"n": 1, "inner": {"kinds": {"a": 3}}}, "inner.kinds[...]: Invalid enum value 3; expected one of 1, 2"),
        ({"n": 1, "many": [{}, {"kind": "z"}]}, 'many[1].kind: Invalid enum value \'z\'; expected one of "x", "y"'),
        ({"n": 1, "pair": [1, "q"]}, "pair[1]: Invalid enum value 'q'; expected one of \"p\""),
        ({"n": 1, "pair": [1]}, "pair: Expected `array` of length 2"),
        ({"n": "x", "pair": [1]}, "n: Expected `int`, got `str`\npair: Expected `array` of length 2"),
    ],
)
def test_texts(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ArgumentsError) as caught:
        parser().from_json(msgspec.json.encode(arguments))
    assert str(caught.value) == text
    assert isinstance(caught.value.__cause__, msgspec.ValidationError)


def test_values() -> None:
    assert parser().from_json(b'{"n":"1","inner":"{\\"kind\\":\\"y\\"}"}') == asdict(Outer(1, Inner("y")))
    assert parser().from_strings({"n": "1"}) == asdict(Outer(1))
    with pytest.raises(InvalidParams, match="n: Missing, but required"):
        parser().from_strings({})


def test_raw_values_on_the_slow_road() -> None:
    class Relay(msgspec.Struct):
        n: int
        payload: msgspec.Raw

    values = parser(Relay).from_json(b'{"n":"1","payload":{"big":1180591620717411303424}}')
    assert values == {"n": 1, "payload": msgspec.Raw(b'{"big":1180591620717411303424}')}


def test_further_values() -> None:
    class Open(msgspec.Struct):
        n: int = 0

    assert parser(Open, list[int]).from_json(b'{"n":1,"a":[1],"b":"[2]"}') == {"n": 1, "a": [1], "b": [2]}
    with pytest.raises(ArgumentsError, match="a: Expected `array`, got `int`"):
        parser(Open, list[int]).from_json(b'{"a":1}')
    with pytest.raises(ArgumentsError, match="ctx: Unknown argument"):
        parser(Open, Any).from_json(b'{"ctx":1}')
