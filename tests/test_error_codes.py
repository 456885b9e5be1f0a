"""Which code an error has in which version: the table of protocol-versions.md, section 3, "Error codes"."""

from __future__ import annotations

from typing import Any

import pytest
from support.wire_schema import VERSIONS
from support.wires import LEGACY, META, MODERN, each_legacy, each_version, envelope, memory_wire

from mcpd import Server, ToolError, errors


def make_server() -> Server:
    server = Server("t")

    @server.tool
    def echo(text: str) -> str:
        return text

    @server.prompt
    def prompt(needed: str) -> str:
        return needed

    @server.resource("test://files/{name}")
    def file(name: str) -> str:
        if name == "gone":
            raise FileNotFoundError(name)
        raise errors.ResourceNotFound(f"test://files/{name}")

    raised = {
        "not_found": errors.ResourceNotFound("test://x"),
        "url_first": errors.UrlElicitationRequired(
            [{"mode": "url", "elicitationId": "e", "url": "https://e.com", "message": "m"}], "Go"
        ),
        "capability": errors.MissingCapability({"sampling": {}}),
        "version": errors.UnsupportedVersion("x", ["y"]),
        "header": errors.HeaderMismatch("Mcp-Name"),
        "params": errors.InvalidParams("bad", {"why": 1}),
        "request": errors.InvalidRequest("bad"),
        "method": errors.MethodNotFound("bad"),
        "parse": errors.ParseError("bad"),
        "internal": errors.InternalError("bad"),
    }
    for name, error in raised.items():
        server.add_tool(_raising(error), name=name)

    @server.prompt
    def sorry() -> str:
        raise ToolError("No.")

    return server


def _raising(error: Exception) -> Any:
    async def raises() -> None:
        raise error

    return raises


# Situation -> (method, params, code before 2026-07-28, code there).
SITUATIONS: dict[str, tuple[str, dict[str, Any], int, int]] = {
    "resource not found": ("resources/read", {"uri": "test://nowhere"}, -32002, -32602),
    "resource that a template does not find": ("resources/read", {"uri": "test://files/x"}, -32002, -32602),
    "file that a template does not find": ("resources/read", {"uri": "test://files/gone"}, -32002, -32602),
    "unknown tool": ("tools/call", {"name": "nothing"}, -32602, -32602),
    "unknown prompt": ("prompts/get", {"name": "nothing"}, -32602, -32602),
    "missing prompt argument": ("prompts/get", {"name": "prompt"}, -32602, -32602),
    "bad cursor": ("tools/list", {"cursor": "x"}, -32602, -32602),
    "bad cursor of templates": ("resources/templates/list", {"cursor": ""}, -32602, -32602),
    "params of the wrong shape": ("tools/call", {"name": 5}, -32602, -32602),
    "unknown method": ("tools/paint", {}, -32601, -32601),
}


@each_version
@pytest.mark.parametrize("situation", SITUATIONS)
async def test_codes(version: str, situation: str) -> None:
    """S26-014, S26-116, S26-117: -32002 until 2025-11-25, -32602 with the URI since; never empty contents."""
    method, params, before, now = SITUATIONS[situation]
    async with memory_wire(make_server(), version) as wire:
        error = await wire.error(method, params)
        assert error["code"] == (now if version == MODERN else before)
        assert error["message"]
        if method == "resources/read":
            assert error["data"] == {"uri": params["uri"]}


@each_version
async def test_a_bad_log_level(version: str) -> None:
    async with memory_wire(make_server(), version) as wire:
        if version == MODERN:
            error = await wire.error("tools/list", meta=envelope(logLevel="loud"))
        else:
            error = await wire.error("logging/setLevel", {"level": "loud"})
        assert error["code"] == -32602


# What a tool raises -> the versions in which that code exists; elsewhere it is an internal error with the same text.
RAISED: dict[str, tuple[int, tuple[str, ...]]] = {
    "url_first": (-32042, ("2025-11-25",)),
    "capability": (-32021, (MODERN,)),
    "version": (-32022, (MODERN,)),
    "header": (-32020, (MODERN,)),
    "params": (-32602, VERSIONS),
    "request": (-32600, VERSIONS),
    "method": (-32601, VERSIONS),
    "parse": (-32700, VERSIONS),
    "internal": (-32603, VERSIONS),
}


@each_version
@pytest.mark.parametrize("name", RAISED)
async def test_codes_that_code_of_ours_raises(version: str, name: str) -> None:
    """S26-010, S26-011, S26-012, S26-013, S26-014, S26-015: no code in a version that has no meaning for it."""
    code, versions = RAISED[name]
    async with memory_wire(make_server(), version) as wire:
        error = await wire.error("tools/call", {"name": name})
        assert error["code"] == (code if version in versions else -32603)
        assert isinstance(error["code"], int)


@each_version
async def test_a_resource_that_a_tool_does_not_find(version: str) -> None:
    async with memory_wire(make_server(), version) as wire:
        error = await wire.error("tools/call", {"name": "not_found"})
        assert error["code"] == (-32602 if version == MODERN else -32002)


@each_version
async def test_what_an_author_says_outside_of_a_tool(version: str) -> None:
    async with memory_wire(make_server(), version) as wire:
        error = await wire.error("prompts/get", {"name": "sorry"})
        assert (error["code"], error["message"]) == (-32603, "No.")


@each_legacy
async def test_arguments_that_do_not_fit_are_a_failed_tool(version: str) -> None:
    """SEP-1303, S25-058: so that the model sees what was wrong; the earlier versions allow it too."""
    async with memory_wire(make_server(), version) as wire:
        result = await wire.call("echo", text=5.5)
        assert result["isError"] is True
        assert "text" in result["content"][0]["text"]


async def test_errors_of_the_envelope() -> None:
    async with memory_wire(make_server(), MODERN) as wire:
        bare = {"jsonrpc": "2.0", "id": "bare", "method": "tools/list"}
        wire.send(bare)
        assert (await wire.answer("bare"))["error"]["code"] == -32602
        meta = envelope("1999-01-01")
        error = await wire.error("tools/list", meta=meta)
        assert error["code"] == -32022
        assert error["data"]["requested"] == "1999-01-01"
        assert MODERN in error["data"]["supported"]
        assert f"{META}protocolVersion" in meta


def test_all_versions_are_in_the_table() -> None:
    assert (*LEGACY, MODERN) == VERSIONS
