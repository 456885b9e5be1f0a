"""Values of template variables that would lead a path out of its folder, as attackers write them."""

from __future__ import annotations

import ntpath
import posixpath
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, unquote

import pytest
from hypothesis import given, strategies as st
from support.ui_stage import each_wire as each_http_wire
from support.wires import LEGACY, MODERN, OpenWire, each_version, memory_wire

from mcpd import Server
from mcpd.errors import RegistrationError
from mcpd.server.registry.uri_template import MAX_URI_CHARS, MOST_ENCODINGS, path_problem

HOSTILE = {
    "..": "'..'",
    "../etc/passwd": "'..'",
    "a/../../b": "'..'",
    "a/..": "'..'",
    "a/.. /b": "'..'",
    "/etc/passwd": "absolute",
    "//host/share": "absolute",
    "..\\windows": "backslash",
    "a\\b": "backslash",
    "\\\\host\\share": "backslash",
    "C:/windows": "drive",
    "c:windows": "drive",
    "a\0.txt": "NUL",
    "\0": "NUL",
}
HARMLESS = (
    "a", "a/b/c.txt", "...", "a..b", "..a/b", "a../b", "./a", ".hidden", "100%", "50%25", "xy:y:z", "ab:cd", "a b", "é",
    "%ff", "%zz", "~", "a/", "10:30", "2026-07-28T10:00:00Z", "q=1&r=2",
)  # fmt: skip


def again(text: str, times: int) -> str:
    """Percent-encoded so many times, each character of it."""
    for _ in range(times):
        text = "".join(f"%{byte:02x}" for byte in text.encode())
    return text


@pytest.mark.parametrize("value", HARMLESS)
def test_what_leads_nowhere_else_is_taken(value: str) -> None:
    assert path_problem(value) == ""


@pytest.mark.parametrize("times", [0, 1, 2, 3])
@pytest.mark.parametrize(("value", "why"), HOSTILE.items())
def test_what_leads_elsewhere_is_not_in_any_encoding(value: str, why: str, times: int) -> None:
    problem = path_problem(again(value, times))
    assert why in problem
    assert ("percent-encoded" in problem) == (times > 0)


@pytest.mark.parametrize(
    "value",
    ["%c0%ae%c0%ae/x", "%C1%9C", "%e0%80%ae", "%f0%80%80%ae", "%25c0%25ae", "a%2fb%2f%2e%2E%2fc", "..%2f", "%2e."],
)
def test_odd_encodings_are_refused(value: str) -> None:
    assert path_problem(value)


def test_more_encodings_than_anybody_needs_are_refused_soon() -> None:
    deep = "%" + "25" * ((MAX_URI_CHARS - 3) // 2) + "41"
    assert "too often" in path_problem(deep)
    assert "too often" in path_problem("%" + "25" * MOST_ENCODINGS + "41")
    assert path_problem("%" + "25" * (MOST_ENCODINGS - 1) + "41") == ""


@given(
    st.lists(
        st.sampled_from(["..", ".", "a", "/", "\\", "%", "2e", "2f", "5c", "25", "00", "C:", "\0", " "]), max_size=12
    )
)
def test_what_passes_stays_below_its_folder(parts: list[str]) -> None:
    """Held against what the library does: joined, and decoded as often as it can be, on both kinds of system."""
    value = "".join(parts)
    if path_problem(value):
        return
    for _ in range(20):
        for system, base in ((posixpath, "/srv/data"), (ntpath, "D:\\srv\\data")):
            joined = system.normpath(system.join(base, value))
            assert joined == system.normpath(base) or joined.startswith(system.normpath(base) + system.sep)
        assert "\0" not in value
        value = unquote(value)


@given(st.text(st.characters(codec="utf-8")))
def test_any_text_has_an_answer(value: str) -> None:
    assert isinstance(path_problem(value), str)
    assert path_problem(quote(value, safe="")) == "" or path_problem(value)


def make_server(seen: list[Any], **options: Any) -> Server:
    server = Server("files")

    @server.resource("file:///{+path}", **options)
    async def file(path: str) -> str:
        seen.append(path)
        return path

    @server.resource("plain:///{+path}", **options)
    def plain_file(path: str) -> str:
        seen.append(path)
        return path

    @server.resource("{+anything}")
    def anything(anything: str) -> str:
        seen.append(anything)
        return anything

    return server


@pytest.mark.parametrize("scheme", ["file", "plain"])
@each_version
async def test_the_function_does_not_see_it_and_the_client_hears_why(version: str, scheme: str) -> None:
    seen: list[str] = []
    async with memory_wire(make_server(seen), version) as wire:
        for value in HOSTILE:
            uri = f"{scheme}:///{quote(value, safe='')}"
            error = await wire.error("resources/read", {"uri": uri})
            assert error["code"] == -32602
            assert error["message"].startswith("uri: the value of 'path' ")
            assert error["data"] == {"uri": uri}
        # The third template takes any text: it does not get what the first one refused.
        assert seen == []
        await wire.result("resources/read", {"uri": f"{scheme}:///a/b.txt"})
        assert seen == ["a/b.txt"]


async def test_it_cannot_be_watched_either() -> None:
    async with memory_wire(make_server([]), LEGACY[-1]) as wire:
        error = await wire.error("resources/subscribe", {"uri": "file:///a/../../b"})
        assert error["code"] == -32602


@pytest.mark.parametrize("option", [True, {"path"}, ["path"], "path"])
@each_version
async def test_an_author_may_take_it(version: str, option: Any) -> None:
    seen: list[str] = []
    async with memory_wire(make_server(seen, unsafe_paths=option), version) as wire:
        for value in HOSTILE:
            await wire.result("resources/read", {"uri": f"file:///{quote(value, safe='')}"})
        assert seen == list(HOSTILE)


async def test_of_several_variables_those_that_are_not_named_are_screened() -> None:
    server = Server("files")

    @server.resource("search://{+folder}{?pattern}", unsafe_paths={"pattern"})
    def search(folder: str, pattern: str = "") -> str:
        return f"{folder} {pattern}"

    async with memory_wire(server, MODERN) as wire:
        await wire.result("resources/read", {"uri": r"search://a?pattern=%5Cd"})
        assert "'folder'" in (await wire.error("resources/read", {"uri": "search://a/..?pattern=b"}))["message"]


@each_http_wire
@pytest.mark.parametrize("version", [LEGACY[-1], MODERN])
async def test_over_every_transport(open_wire: OpenWire, version: str) -> None:
    seen: list[str] = []
    async with open_wire(make_server(seen), version) as wire:
        error = await wire.error("resources/read", {"uri": "file:///%252e%252e/etc"})
        assert "percent-encoded twice or more" in error["message"]
        assert not seen


def nothing(a: str) -> str:
    return a


@pytest.mark.parametrize(
    ("option", "why"), [({"b"}, "no variable 'b'"), (3, "True, or names of variables"), ([1], "no variable 1")]
)
def test_an_option_that_names_nothing_is_refused(option: Any, why: str) -> None:
    register: Callable[[Any], Any] = Server("t").resource("x://{a}", unsafe_paths=option)
    with pytest.raises(RegistrationError, match=why):
        register(nothing)


def test_a_resource_without_variables_has_nothing_to_take() -> None:
    with pytest.raises(RegistrationError, match="no variables"):
        Server("t").resource("x://a", unsafe_paths=True)(lambda: "")
