"""Which protocol version a message is served in, on the wire.

Spec: protocol-versions.md 1.1 and 1.2; 2025-11-25 basic/lifecycle; 2026-07-28 basic/index, basic/versioning.
"""

from __future__ import annotations

from typing import Any

import pytest
from support.wire_schema import VERSIONS
from support.wires import (
    CLIENT_INFO,
    LEGACY,
    META,
    MODERN,
    Wire,
    each_legacy,
    each_version,
    envelope,
    initialize,
    memory_wire,
)

from mcpd import Server

NEWEST_LEGACY = LEGACY[-1]
NEWEST_FIRST = list(VERSIONS[::-1])


def make_server() -> Server:
    server = Server("t", version="1.2", title="T", instructions="Be kind.")

    @server.tool
    async def echo(text: str) -> str:
        return text

    return server


def modern(method: str, request_id: Any, params: dict[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "id": request_id,
        "method": method,
        "params": {**(params or {}), "_meta": {**envelope(), **meta}},
    }


def bare(method: str, request_id: Any, params: Any = None) -> dict[str, Any]:
    message = {"jsonrpc": "2.0", "id": request_id, "method": method}
    return message if params is None else {**message, "params": params}


async def exchange(wire: Wire, message: Any) -> Any:
    wire.send(message)
    return await wire.answer(message["id"])


# ------------------------------------------------------------------------------------ initialize


@each_legacy
async def test_a_legacy_version_is_echoed(version: str) -> None:
    """S25-020, S25-021, S25-022."""
    async with memory_wire(make_server()) as wire:
        answer = await exchange(wire, initialize(version, 0))
        assert answer["id"] == 0
        result = answer["result"]
        assert result["protocolVersion"] == version
        assert (result["serverInfo"]["name"], result["serverInfo"]["version"]) == ("t", "1.2")
        assert "tools" in result["capabilities"]
        assert ("title" in result["serverInfo"]) == (version >= "2025-06-18")
        assert ("instructions" in result) == (version != "2024-10-07")


@pytest.mark.parametrize("asked", ["1.0", "1999-01-01", "2026-07-28", "2030-01-01", "", "draft", 1, 20241105, -1])
async def test_an_unserved_version_is_answered_with_the_newest_legacy_one(asked: Any) -> None:
    """S25-023; never an error, and never a modern version (protocol-versions 1.2)."""
    async with memory_wire(make_server()) as wire:
        assert (await exchange(wire, initialize(asked)))["result"]["protocolVersion"] == NEWEST_LEGACY
        # S25-024: that version is in force.
        wire.version = NEWEST_LEGACY
        assert "outputSchema" not in (await wire.result("tools/list"))["tools"][0]
        assert (await wire.error("server/discover"))["code"] == -32601


@pytest.mark.parametrize(
    ("params", "named"),
    [
        (None, "protocolVersion"),
        ({}, "protocolVersion"),
        ([], "object"),
        ("text", "object"),
        ({"protocolVersion": "2025-06-18", "capabilities": {}}, "clientInfo"),
        ({"protocolVersion": "2025-06-18", "clientInfo": CLIENT_INFO}, "capabilities"),
        ({"protocolVersion": None, "capabilities": {}, "clientInfo": CLIENT_INFO}, "protocolVersion"),
        ({"protocolVersion": 1.5, "capabilities": {}, "clientInfo": CLIENT_INFO}, "protocolVersion"),
        ({"protocolVersion": [], "capabilities": {}, "clientInfo": CLIENT_INFO}, "protocolVersion"),
        ({"protocolVersion": "2025-06-18", "capabilities": 5, "clientInfo": CLIENT_INFO}, "capabilities"),
        ({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x"}}, "version"),
        ({"protocolVersion": "2025-06-18", "capabilities": {"roots": 1}, "clientInfo": CLIENT_INFO}, "roots"),
    ],
)
async def test_a_broken_initialize_names_the_field_and_can_be_repeated(params: Any, named: str) -> None:
    async with memory_wire(make_server()) as wire:
        error = (await exchange(wire, bare("initialize", 1, params)))["error"]
        assert error["code"] == -32602
        assert named in error["message"]
        assert (await exchange(wire, initialize("2025-06-18", 2)))["result"]["protocolVersion"] == "2025-06-18"


@each_legacy
async def test_a_second_initialize_is_refused(version: str) -> None:
    async with memory_wire(make_server(), version) as wire:
        assert (await exchange(wire, initialize(version, 9)))["error"]["code"] == -32600
        assert await wire.text("echo", text="still here") == "still here"


async def test_unknown_capabilities_and_members_of_initialize_are_ignored() -> None:
    async with memory_wire(make_server()) as wire:
        message = initialize("2025-06-18", 1, {"new": {"a": 1}, "experimental": {"x": {}}})
        message["params"]["more"] = 1
        assert "result" in await exchange(wire, message)


# ---------------------------------------------------------------------------- before the handshake


async def test_ping_is_answered_before_initialize() -> None:
    async with memory_wire(make_server()) as wire:
        assert (await exchange(wire, bare("ping", 1)))["result"] == {}
        assert (await exchange(wire, bare("ping", "1", {"_meta": {"progressToken": 5}})))["result"] == {}
        assert "result" in await exchange(wire, initialize("2024-11-05", 2))


async def test_a_bare_request_before_initialize_says_what_is_missing() -> None:
    """S26-029: the missing keys are named; and who speaks the older protocol learns what to do."""
    async with memory_wire(make_server()) as wire:
        error = (await exchange(wire, bare("tools/list", 1)))["error"]
        assert error["code"] == -32602
        assert f"{META}protocolVersion" in error["message"]
        assert f"{META}clientCapabilities" in error["message"]
        assert "initialize" in error["message"]
        assert (await exchange(wire, bare("no/such", 2)))["error"]["code"] == -32601
        # Neither has fixed the era.
        assert "result" in await exchange(wire, initialize("2025-03-26", 3))


async def test_notifications_before_initialize_do_nothing() -> None:
    """S25-011."""
    async with memory_wire(make_server()) as wire:
        wire.notify("notifications/initialized")
        wire.notify("notifications/cancelled", {"requestId": 1})
        wire.notify("no/such")
        await wire.quiet()
        assert "result" in await exchange(wire, initialize("2025-03-26"))


# ---------------------------------------------------------------------------------------- modern


async def test_a_modern_request_needs_no_handshake() -> None:
    """S26-001, S26-005, S26-018: version and capabilities come with each request."""
    async with memory_wire(make_server()) as wire:
        answer = await exchange(wire, modern("tools/call", 1, {"name": "echo", "arguments": {"text": "hi"}}))
        assert answer["result"]["content"] == [{"type": "text", "text": "hi"}]
        assert answer["result"]["resultType"] == "complete"
        assert answer["result"]["_meta"][f"{META}serverInfo"] == {"name": "t", "version": "1.2", "title": "T"}


async def test_discover_tells_what_is_served() -> None:
    """S26-037, S26-039, S26-102, S26-128."""
    async with memory_wire(make_server()) as wire:
        result = (await exchange(wire, modern("server/discover", "d")))["result"]
        assert result["supportedVersions"] == NEWEST_FIRST
        assert "tools" in result["capabilities"]
        assert result["instructions"] == "Be kind."
        assert "serverInfo" not in result
        assert isinstance(result["ttlMs"], int)
        assert result["ttlMs"] >= 0


@each_version
async def test_discover_never_pins_the_era(version: str) -> None:
    """protocol-versions 1.1: a client may probe, and then take any version."""
    async with memory_wire(make_server()) as wire:
        for number in range(3):
            assert "result" in await exchange(wire, modern("server/discover", number))
        await wire.open(version)
        assert await wire.text("echo", text="x") == "x"


async def test_a_ping_does_not_pin_the_era() -> None:
    async with memory_wire(make_server()) as wire:
        await exchange(wire, bare("ping", 1))
        assert "result" in await exchange(wire, modern("tools/list", 2))


@each_legacy
async def test_an_envelope_on_a_legacy_connection_is_refused(version: str) -> None:
    async with memory_wire(make_server(), version) as wire:
        for method in ("tools/list", "server/discover", "initialize", "no/such"):
            assert (await exchange(wire, modern(method, method)))["error"]["code"] == -32600
        assert await wire.text("echo", text="x") == "x"


async def test_a_bare_initialize_on_a_modern_connection_is_refused_with_the_versions() -> None:
    """S26-038."""
    async with memory_wire(make_server()) as wire:
        await exchange(wire, modern("tools/list", 1))
        error = (await exchange(wire, initialize("2025-06-18", 2)))["error"]
        assert error["code"] == -32022
        assert error["data"] == {"supported": NEWEST_FIRST, "requested": "2025-06-18"}
        error = (await exchange(wire, bare("initialize", 3)))["error"]
        assert error["code"] == -32022
        assert error["data"]["requested"] == ""
        assert "result" in await exchange(wire, modern("tools/list", 4))


@pytest.mark.parametrize("pin", [False, True])
@pytest.mark.parametrize(
    ("meta", "missing"),
    [
        ({}, ["protocolVersion", "clientCapabilities"]),
        ({f"{META}protocolVersion": MODERN}, ["clientCapabilities"]),
        ({f"{META}clientCapabilities": {}}, ["protocolVersion"]),
        ({f"{META}protocolVersion": MODERN, f"{META}clientCapabilities": None}, ["clientCapabilities"]),
        ({f"{META}protocolVersion": MODERN, f"{META}clientCapabilities": []}, ["clientCapabilities"]),
        ({f"{META}protocolVersion": MODERN, f"{META}clientCapabilities": "x"}, ["clientCapabilities"]),
    ],
)
async def test_missing_keys_of_the_envelope_are_named(meta: dict[str, Any], missing: list[str], pin: bool) -> None:
    """S26-029."""
    async with memory_wire(make_server()) as wire:
        if pin:
            await exchange(wire, modern("tools/list", 0))
        error = (await exchange(wire, bare("tools/list", 1, {"_meta": meta})))["error"]
        assert error["code"] == -32602
        assert error["data"] == {"missing": [META + key for key in missing]}
        assert all(META + key in error["message"] for key in missing)


@pytest.mark.parametrize("value", [None, 5, {}, ["2026-07-28"], True])
async def test_a_version_that_is_no_string_names_its_key(value: Any) -> None:
    async with memory_wire(make_server()) as wire:
        error = (await exchange(wire, modern("tools/list", 1, **{f"{META}protocolVersion": value})))["error"]
        assert error["code"] == -32602
        assert f"{META}protocolVersion" in error["message"]


@pytest.mark.parametrize("asked", ["2025-11-25", "2024-10-07", "2027-01-01", "", "1"])
async def test_an_unserved_version_is_refused_with_those_that_are(asked: str) -> None:
    """S26-038, even for a legacy version; the list agrees with server/discover."""
    async with memory_wire(make_server()) as wire:
        for method in ("tools/list", "server/discover", "no/such"):
            error = (await exchange(wire, modern(method, method, **{f"{META}protocolVersion": asked})))["error"]
            assert error["code"] == -32022
            assert error["data"] == {"supported": NEWEST_FIRST, "requested": asked}
        # It has not fixed the era.
        assert "result" in await exchange(wire, initialize("2025-06-18"))


async def test_faults_are_found_in_the_order_of_the_specification() -> None:
    """Keys of the envelope, version, method, params (protocol-versions 1.1, modern check order)."""
    keys, version, level = f"{META}clientCapabilities", f"{META}protocolVersion", f"{META}logLevel"
    async with memory_wire(make_server()) as wire:
        wrong: dict[str, Any] = {"_meta": {**envelope("1999-01-01"), level: "loud"}, "name": 5}
        del wrong["_meta"][keys]
        assert (await exchange(wire, bare("no/such", 1, wrong)))["error"]["code"] == -32602
        wrong["_meta"][keys] = {}
        assert (await exchange(wire, bare("no/such", 2, wrong)))["error"]["code"] == -32022
        wrong["_meta"][version] = MODERN
        assert (await exchange(wire, bare("no/such", 3, wrong)))["error"]["code"] == -32601
        error = (await exchange(wire, bare("tools/call", 4, wrong)))["error"]
        assert error["code"] == -32602
        assert "name" in error["message"]
        error = (await exchange(wire, bare("tools/call", 5, {**wrong, "name": "echo"})))["error"]
        assert error["code"] == -32602
        assert level in error["message"]


async def test_methods_of_the_handshake_are_gone() -> None:
    """protocol-versions 2: removed in 2026-07-28, so -32601 even with an envelope."""
    async with memory_wire(make_server(), MODERN) as wire:
        for method in ("initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"):
            assert (await wire.error(method))["code"] == -32601


async def test_client_info_is_optional_and_may_even_be_nonsense() -> None:
    async with memory_wire(make_server()) as wire:
        for info in (None, {}, "me", {"name": 5}):
            message = modern("tools/list", str(info), **{f"{META}clientInfo": info})
            assert "result" in await exchange(wire, message)
        message = modern("tools/list", "none")
        del message["params"]["_meta"][f"{META}clientInfo"]
        assert "result" in await exchange(wire, message)


async def test_unknown_keys_of_the_envelope_are_ignored() -> None:
    """S26-026."""
    async with memory_wire(make_server()) as wire:
        message = modern("tools/list", 1, **{f"{META}future": [1], "x": None, "traceparent": 5})
        assert "result" in await exchange(wire, message)


@pytest.mark.parametrize("level", ["loud", "", 5, {}, ["debug"], "DEBUG"])
async def test_an_unknown_log_level_in_the_envelope_is_refused(level: Any) -> None:
    async with memory_wire(make_server()) as wire:
        error = (await exchange(wire, modern("tools/list", 1, **{f"{META}logLevel": level})))["error"]
        assert error["code"] == -32602
        assert f"{META}logLevel" in error["message"]


# ------------------------------------------------------------------------- methods, ids, both eras


@each_version
async def test_an_unknown_method_is_not_found(version: str) -> None:
    async with memory_wire(make_server(), version) as wire:
        for method in ("no/such", "", "tools", "tools/list/", "Tools/List", "tools/list\n"):
            error = await wire.error(method)
            assert error["code"] == -32601
        await wire.quiet()


@each_version
async def test_a_method_whose_capability_is_not_offered_is_not_found(version: str) -> None:
    """S25-025, S25-055, S25-062, S26-103, S26-112."""
    server = Server("empty")
    async with memory_wire(server) as wire:
        capabilities = (await wire.open(version))["capabilities"]
        assert not capabilities.keys() & {"tools", "resources", "prompts", "completions"}
        for method in ("tools/call", "resources/read", "prompts/get"):
            assert (await wire.error(method, {"name": "x", "uri": "x:y"}))["code"] == -32601
        for method, member in (
            ("tools/list", "tools"),
            ("resources/list", "resources"),
            ("resources/templates/list", "resourceTemplates"),
            ("prompts/list", "prompts"),
        ):
            result = await wire.result(method)
            assert result[member] == []
            assert "nextCursor" not in result


@each_version
@pytest.mark.parametrize(
    ("method", "params", "named"),
    [
        ("tools/call", None, "name"),
        ("tools/call", {"arguments": {}}, "name"),
        ("tools/call", {"name": None}, "name"),
        ("tools/call", {"name": 5, "arguments": {}}, "name"),
        ("tools/list", {"cursor": 5}, "cursor"),
        ("tools/list", {"cursor": {}}, "cursor"),
    ],
)
async def test_bad_params_name_the_field(version: str, method: str, params: Any, named: str) -> None:
    async with memory_wire(make_server(), version) as wire:
        error = await wire.error(method, params)
        assert error["code"] == -32602
        assert named in error["message"]


@each_legacy
@pytest.mark.parametrize("params", [[], [1], "text", 5, True])
async def test_params_that_are_no_object_are_bad_params(version: str, params: Any) -> None:
    async with memory_wire(make_server(), version) as wire:
        error = (await exchange(wire, bare("tools/list", 1, params)))["error"]
        assert error["code"] == -32602
        assert "object" in error["message"]


@each_legacy
async def test_null_params_are_none(version: str) -> None:
    """Some clients write absent params as null."""
    async with memory_wire(make_server(), version) as wire:
        wire.send(b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":null}')
        assert "result" in await wire.answer(1)
        wire.send(b'{"jsonrpc":"2.0","id":2,"method":"ping","params":null}')
        assert (await wire.answer(2))["result"] == {}


async def test_a_null_notification_of_initialized_counts() -> None:
    async with memory_wire(make_server()) as wire:
        await exchange(wire, initialize("2025-06-18"))
        wire.send(b'{"jsonrpc":"2.0","method":"notifications/initialized","params":null}')
        await wire.quiet()
        assert wire.connection.session.is_initialized


@each_version
async def test_invalid_utf_8_and_depth_inside_params_are_refused_under_the_id(version: str) -> None:
    """S25-026, S26-043; S25-008: the id is echoed."""
    async with memory_wire(make_server(), version) as wire:
        meta = ""
        if version == MODERN:
            meta = f',"_meta":{{"{META}protocolVersion":"{MODERN}","{META}clientCapabilities":{{}}}}'
        start = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"'
        wire.send(start + b'\xff"' + meta.encode() + b"}}")
        # A request that Python's json cannot read has to be told to the wire by hand.
        wire.talk.client({"id": 7, "method": "tools/call", "params": {}})
        answer = await wire.answer(7)
        assert answer["error"]["code"] in (-32700, -32602)
        deep = b'echo","arguments":{"text":"x"},"more":' + b"[" * 900 + b"]" * 900
        wire.send(start + deep + meta.encode() + b"}}")
        answer = await wire.answer(7)
        assert "result" in answer or answer["error"]["code"] == -32700
        assert await wire.text("echo", text="on") == "on"


@each_version
async def test_ids_are_echoed_with_their_type(version: str) -> None:
    """S25-006, S26-003: 0, "" and huge numbers too, and 1 is not "1"."""
    async with memory_wire(make_server(), version) as wire:
        for request_id in (0, "", "0", -1, 2**53 + 1, 2**70, "é\n", "null", 10**30):
            wire.ask("tools/list", id=request_id)
            message = await wire.receive()
            assert message["id"] == request_id
            assert type(message["id"]) is type(request_id)
            assert "result" in message


@each_version
async def test_malformed_json_is_answered_and_the_connection_goes_on(version: str) -> None:
    """-32700 for what is no JSON, -32600 for what is no message; the id is null up to 2025-06-18 and left out since."""
    async with memory_wire(make_server(), version) as wire:
        for frame, code in (
            (b"{", -32700),
            (b"\xff\xfe", -32700),
            (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":NaN}', -32700),
            (b"{}", -32600),
            (b"17", -32600),
            (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
            (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600),
        ):
            wire.send(frame)
            message = await wire.receive()
            assert message["error"]["code"] == code
            if version <= "2025-06-18":
                assert message["id"] is None
            else:
                assert "id" not in message
        assert await wire.text("echo", text="on") == "on"


async def test_malformed_json_before_the_version_is_known_has_no_id() -> None:
    async with memory_wire(make_server()) as wire:
        wire.send(b"{")
        message = await wire.receive()
        assert message["error"]["code"] == -32700
        assert "id" not in message


@each_version
async def test_notifications_are_never_answered(version: str) -> None:
    """S25-011, S26-016: not even unknown or broken ones."""
    async with memory_wire(make_server(), version) as wire:
        for method in ("no/such", "tools/list", "ping", "initialize", "notifications/initialized"):
            wire.notify(method)
            wire.notify(method, {"a": 1})
        wire.notify("notifications/cancelled")
        wire.notify("notifications/cancelled", {"requestId": {}})
        wire.notify("notifications/progress", {"progressToken": [], "progress": "x"})
        wire.send(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":[1]}')
        await wire.quiet()


@each_version
async def test_answers_that_nobody_asked_for_are_dropped(version: str) -> None:
    async with memory_wire(make_server(), version) as wire:
        wire.send({"jsonrpc": "2.0", "id": 1, "result": {}})
        wire.send({"jsonrpc": "2.0", "id": "x", "error": {"code": -1, "message": ""}})
        wire.send({"jsonrpc": "2.0", "id": None, "error": {"code": -1, "message": ""}})
        wire.send({"jsonrpc": "2.0", "error": {"code": -1, "message": ""}})
        await wire.quiet()


async def test_a_bad_answer_is_never_refused_under_the_id_of_a_request_that_is_open() -> None:
    """S25-008: the id of an answer is one of ours; an error under it would end the peer's own request."""
    import asyncio

    server = make_server()
    go = asyncio.Event()

    @server.tool
    async def slow() -> str:
        await go.wait()
        return "done"

    async with memory_wire(server, "2025-06-18") as wire:
        wire.ask("tools/call", {"name": "slow"}, id=5)
        wire.send({"jsonrpc": "2.0", "id": 5, "result": 1, "error": 1})
        message = await wire.receive()
        assert (message["id"], message["error"]["code"]) == (None, -32600)
        go.set()
        assert (await wire.answer(5))["result"]["content"][0]["text"] == "done"
