"""Completion on the wire. Spec: server/utilities/completion of every version."""

from __future__ import annotations

import enum
import logging
from typing import Any, Literal

import pytest
from support.wires import MODERN, Wire, each_version, memory_wire

from mcpd import Server
from mcpd.errors import RegistrationError
from mcpd.protocol.types.interaction import Completion


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


def make_server() -> Server:
    server = Server("t")

    @server.prompt
    def travel(
        city: str, by: Literal["train", "tram", "plane"], size: Size, fast: bool, free: str = "", via: str | None = None
    ) -> str:
        return ""

    @server.completion("city", prompt="travel")
    def cities(typed: str) -> list[str]:
        return ["Berlin", "Bern", "Paris", "Lisbon", "Nürnberg", "Bern"]

    @server.completion("via", prompt="travel")
    async def stops(typed: str, others: dict[str, str]) -> list[str]:
        return [f"{others.get('city', 'nowhere')}-{number}" for number in range(3)]

    @server.completion("free", prompt="travel")
    def broken(typed: str) -> list[str]:
        raise RuntimeError("secret")

    @server.resource("files://{folder}/{name}")
    def file(folder: str, name: Literal["a.txt", "b.txt"]) -> str:
        return ""

    @server.completion("folder", template="files://{folder}/{name}")
    def folders(typed: str) -> range:
        return range(1000, 1250)

    @server.resource("fixed://one")
    def fixed() -> str:
        return ""

    @server.prompt
    def by_hand(what: str) -> str:
        return ""

    @server.completion("what", prompt="by_hand")
    def made(typed: str) -> Completion:
        return Completion(values=["as", "it", "stands"], total=30, has_more=True)

    return server


async def complete(wire: Wire, argument: str, value: str, others: dict[str, str] | None = None, **ref: str) -> Any:
    params: dict[str, Any] = {"ref": ref, "argument": {"name": argument, "value": value}}
    if others is not None:
        params["context"] = {"arguments": others}
    return (await wire.result("completion/complete", params))["completion"]


TRAVEL = {"type": "ref/prompt", "name": "travel"}
FILES = {"type": "ref/resource", "uri": "files://{folder}/{name}"}


@each_version
async def test_values_are_matched_and_ranked(version: str) -> None:
    """Those that begin with the text first, then those that contain it; case does not count; each once."""
    async with memory_wire(make_server(), version) as wire:
        for typed, expected in (
            ("be", ["Berlin", "Bern", "Nürnberg"]),
            ("LI", ["Lisbon", "Berlin"]),
            ("", ["Berlin", "Bern", "Paris", "Lisbon", "Nürnberg"]),
            ("NÜRN", ["Nürnberg"]),
            ("x", []),
        ):
            found = await complete(wire, "city", typed, **TRAVEL)
            assert found == {"values": expected, "total": len(expected), "hasMore": False}


async def test_values_that_a_type_lists_complete_by_themselves() -> None:
    async with memory_wire(make_server(), MODERN) as wire:
        assert (await complete(wire, "by", "tra", **TRAVEL))["values"] == ["train", "tram"]
        assert sorted((await complete(wire, "size", "", **TRAVEL))["values"]) == ["large", "small"]
        assert (await complete(wire, "fast", "t", **TRAVEL))["values"] == ["true"]
        assert (await complete(wire, "name", "b", **FILES))["values"] == ["b.txt"]


@each_version
async def test_at_most_a_hundred_values(version: str) -> None:
    """The specification's limit; the total tells how many there are."""
    async with memory_wire(make_server(), version) as wire:
        found = await complete(wire, "folder", "1", **FILES)
        assert found["values"] == [str(number) for number in range(1000, 1100)]
        assert found["total"] == 250
        assert found["hasMore"] is True


@pytest.mark.parametrize(("version", "is_read"), [("2025-03-26", False), ("2025-06-18", True), (MODERN, True)])
async def test_the_other_arguments_are_context(version: str, is_read: bool) -> None:
    """`context.arguments` is read from 2025-06-18 on, and ignored before."""
    async with memory_wire(make_server(), version) as wire:
        found = await complete(wire, "via", "", {"city": "Bern"}, **TRAVEL)
        city = "Bern" if is_read else "nowhere"
        assert found["values"] == [f"{city}-0", f"{city}-1", f"{city}-2"]
        assert (await complete(wire, "via", "", **TRAVEL))["values"][0] == "nowhere-0"
        assert (await complete(wire, "via", "", {}, **TRAVEL))["values"][0] == "nowhere-0"


async def test_a_completion_made_by_hand_stands_as_it_is() -> None:
    async with memory_wire(make_server(), MODERN) as wire:
        found = await complete(wire, "what", "zzz", type="ref/prompt", name="by_hand")
        assert found == {"values": ["as", "it", "stands"], "total": 30, "hasMore": True}


@each_version
async def test_a_completer_that_fails_suggests_nothing(version: str, caplog: pytest.LogCaptureFixture) -> None:
    """S25-075, S26-137: nothing of the failure reaches the client."""
    async with memory_wire(make_server(), version) as wire:
        with caplog.at_level(logging.ERROR, "mcpd"):
            assert (await complete(wire, "free", "", **TRAVEL))["values"] == []
        assert "secret" in caplog.text


@each_version
@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"ref": {"type": "ref/prompt", "name": "no"}, "argument": {"name": "city", "value": ""}}, "no"),
        ({"ref": {"type": "ref/resource", "uri": "no://{x}"}, "argument": {"name": "x", "value": ""}}, "no://{x}"),
        ({"ref": TRAVEL, "argument": {"name": "colour", "value": ""}}, "colour"),
        ({"ref": TRAVEL, "argument": {"name": "city"}}, "value"),
        ({"ref": TRAVEL, "argument": {"name": "city", "value": 5}}, "value"),
        ({"ref": TRAVEL}, "argument"),
        ({"ref": {"type": "ref/tool", "name": "x"}, "argument": {"name": "x", "value": ""}}, "ref"),
        ({"argument": {"name": "x", "value": ""}}, "ref"),
    ],
)
async def test_what_cannot_be_completed_is_named(version: str, params: Any, named: str) -> None:
    """S25-072, S26-134: inputs of a completion are validated."""
    async with memory_wire(make_server(), version) as wire:
        error = await wire.error("completion/complete", params)
    assert error["code"] == -32602
    assert named in error["message"]


async def test_a_resource_without_variables_has_nothing_to_complete() -> None:
    async with memory_wire(make_server(), MODERN) as wire:
        for uri in ("fixed://one", "files://docs/a.txt"):
            assert (await complete(wire, "x", "", type="ref/resource", uri=uri))["values"] == []


@each_version
async def test_the_capability_is_offered_where_something_can_be_completed(version: str) -> None:
    """S25-071, S26-133."""
    nothing = Server("t")

    @nothing.tool
    def tool() -> str:
        return ""

    async with memory_wire(nothing) as wire:
        assert "completions" not in (await wire.open(version))["capabilities"]
        error = await wire.error("completion/complete", {"ref": TRAVEL, "argument": {"name": "city", "value": ""}})
        assert error["code"] == -32601
    async with memory_wire(make_server()) as wire:
        capabilities = (await wire.open(version))["capabilities"]
        assert ("completions" in capabilities) == (version >= "2025-03-26")


def test_a_completer_belongs_to_a_prompt_or_to_a_template() -> None:
    server = Server("t")
    with pytest.raises(RegistrationError, match=r"prompt= or template="):
        server.completion("x")
    with pytest.raises(RegistrationError, match=r"prompt= or template="):
        server.completion("x", prompt="p", template="t://{x}")
