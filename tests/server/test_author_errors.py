"""What an author's mistakes say, to the author and to clients: errors shown on request, results that are no JSON."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import Child
from support.wires import each_version, memory_wire, process_wire

from mcpd import Context, Server
from mcpd.errors import RegistrationError, as_told
from mcpd.server.context.questions import Answer

HTML = "<!doctype html><title>a</title><p>b"


def failing(**options: Any) -> Server:
    server = Server("t", **options)

    @server.tool
    def dig(deep: int) -> str:
        raise ValueError("stone at 30 cm")

    @server.tool
    async def rake() -> str:
        raise KeyError("rake")

    @server.resource("bed://south")
    def south() -> str:
        raise OSError("no bed")

    @server.resource("bed://{name}")
    async def bed(name: str) -> str:
        raise OSError("no bed")

    @server.prompt
    def plan() -> str:
        raise LookupError("no plan")

    return server


@each_version
async def test_errors_reach_the_model_where_the_author_wants_that(version: str) -> None:
    async with memory_wire(failing(show_errors=True), version) as wire:
        assert (await wire.call("dig", deep=3))["content"][0][
            "text"
        ] == "The tool dig failed: ValueError: stone at 30 cm"
        assert (await wire.call("rake"))["content"][0]["text"] == "The tool rake failed: KeyError: 'rake'"
        for uri in ("bed://south", "bed://north"):
            error = await wire.error("resources/read", {"uri": uri})
            assert (error["code"], error["message"]) == (-32603, "The resource could not be read: OSError: no bed")
        error = await wire.error("prompts/get", {"name": "plan"})
        assert error["message"] == "The prompt could not be made: LookupError: no plan"


async def test_without_that_nothing_of_them_leaves() -> None:
    async with memory_wire(failing(), "2025-11-25") as wire:
        for answer in (
            await wire.call("dig", deep=3),
            await wire.error("resources/read", {"uri": "bed://south"}),
            await wire.error("prompts/get", {"name": "plan"}),
        ):
            assert not any(text in str(answer) for text in ("stone", "no bed", "no plan"))


class Spot(NamedTuple):
    row: int
    column: int


LOOP: list[Any] = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({(1, 2): "a"}, "tuple cannot be a key of a JSON object"),
        ({Spot(1, 2): "a"}, "tuple cannot be a key of a JSON object|list cannot be a key of a JSON object"),
        ({frozenset({1}): "a"}, "frozenset cannot be a key of a JSON object"),
        ({"a": [{"b": {(1,): 2}}]}, "tuple cannot be a key of a JSON object"),
        (LOOP, "it contains itself, or is nested too deep"),
        (object(), "object cannot be written as JSON"),
        ({"beds": [1, {"now": failing}]}, "['beds'][1]['now']: failing is a function, not a value: a call may lack"),
        (Spot, "Spot is a class, not a value"),
        ([str.upper], "[0]: upper is a function, not a value"),
        (logging, "logging is a module, not a value"),
    ],
)  # fmt: skip
async def test_a_result_that_is_no_json(caplog: pytest.LogCaptureFixture, value: object, said: str) -> None:
    """One line that says what of it, in the log; no RecursionError, no traceback of ours."""
    server = Server("t")

    @server.tool
    def beds():  # type: ignore[no-untyped-def]
        return value

    async with memory_wire(server, "2025-11-25") as wire:
        result = await wire.call("beds")
    assert result["isError"] is True
    assert result["content"][0]["text"] == "The tool beds failed: its result cannot be written as JSON"
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert record.exc_info is None
    assert any(text in record.getMessage() for text in said.split("|"))


def test_keys_that_json_can_have_stay() -> None:
    from mcpd.server.registry.content import encode_data

    assert encode_data({1: "a", 2.5: "b", "c": "d"}) == b'{"1":"a","2.5":"b","c":"d"}'


# ----------------------------------------------------------------------------------------- apps


def test_the_html_of_an_app_may_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "chart.html").write_text(HTML)
    server = Server("t")
    assert server.app("chart", tmp_path / "chart.html") == "ui://t/chart"
    assert [entry.html for entry in server._apps.apps.entries] == [HTML]


def test_a_file_that_is_not_there_is_named_with_what_to_write(tmp_path: Path) -> None:
    server = Server("t")
    with pytest.raises(
        RegistrationError, match=r'chart\.html: No such file.*Path\(__file__\)\.with_name\("chart\.html"\)'
    ):
        server.app("chart", tmp_path / "chart.html")
    with pytest.raises(RegistrationError, match=r"'chart\.html' is not HTML; .* pass Path\('chart\.html'\)"):
        server.app("chart", "chart.html")


# -------------------------------------------------------------------------------- the debug log


async def test_each_request_is_in_the_debug_log(child: Child) -> None:
    """On stdio as over HTTP: method, id, how it ended, how long it took; and nothing of what it carried."""
    async with process_wire(child, "--log-level", "debug", version="2025-11-25") as wire:
        assert await wire.text("echo", text="secret words") == "secret words"
        wire.send({"jsonrpc": "2.0", "id": "odd\n", "method": "no/such"})
        await wire.answer("odd\n")
        await wire.said("no/such")
    lines = [line for line in wire.stderr.splitlines() if line.startswith("DEBUG mcpd: ")]
    assert any("tools/call (id " in line and "): answered after " in line and line.endswith(" ms") for line in lines)
    assert any(line.endswith(r"no/such (id odd\n): refused with -32601") for line in lines)
    assert "secret words" not in wire.stderr


async def test_a_call_that_is_cancelled_is_in_the_debug_log(caplog: pytest.LogCaptureFixture) -> None:
    import asyncio

    server = Server("t")
    began = asyncio.Event()

    @server.tool
    async def waits() -> str:
        began.set()
        await asyncio.Event().wait()
        return "never"

    with caplog.at_level(logging.DEBUG, "mcpd"):
        async with memory_wire(server, "2025-11-25") as wire:
            wire.ask("tools/call", {"name": "waits"}, id="w")
            await began.wait()
            wire.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "w"}})
            await wire.quiet()
    assert sum("tools/call (id w): cancelled after" in message for message in caplog.messages) == 1
    assert not any("tools/call (id w): failed" in message for message in caplog.messages)


def test_no_connection_pays_for_a_log_that_is_not_written() -> None:
    import asyncio

    from mcpd.protocol.session import Session

    async def session_of(server: Server) -> type:
        from mcpd.transports.memory import pair

        _, far = pair()
        return type(server.connect(far).session)

    assert asyncio.run(session_of(Server("t"))) is Session


@pytest.mark.parametrize("tool", ["dig", "rake"])
async def test_a_traceback_begins_at_the_code_of_the_author(tool: str, caplog: pytest.LogCaptureFixture) -> None:
    async with memory_wire(failing(), "2025-11-25") as wire:
        await wire.call(tool, **({"deep": 3} if tool == "dig" else {}))
    (record,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert record.exc_info is not None
    assert record.exc_info[2] is not None
    assert record.exc_info[2].tb_frame.f_code.co_name == tool


async def test_resources_and_prompts_have_such_tracebacks_too(caplog: pytest.LogCaptureFixture) -> None:
    async with memory_wire(failing(), "2025-11-25") as wire:
        for uri in ("bed://south", "bed://north"):
            await wire.error("resources/read", {"uri": uri})
        await wire.error("prompts/get", {"name": "plan"})
    places = [record.exc_info[2] for record in caplog.records if record.exc_info]
    assert [place.tb_frame.f_code.co_name for place in places if place] == ["south", "bed", "plan"]


def test_a_mistake_of_ours_is_shown_with_all_its_frames() -> None:
    with pytest.raises(RegistrationError) as caught:
        Server("t").tool("a")
    error = caught.value
    assert error.__traceback__ is not None
    ours = error.__traceback__.tb_next  # below this test all frames are ours
    assert as_told(error.with_traceback(ours))[2] is ours


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("report_progress", "'Context' object has no attribute 'report_progress'; write ctx.progress("),
        ("request_context", "; request_id, meta, client_info"),
        ("set_state", "; keep values between rounds in ctx.state"),
        ("nothing_like_it", "has no attribute 'nothing_like_it'"),
    ],
)
async def test_what_a_context_is_called_elsewhere_says_what_to_write(
    name: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("t", show_errors=True)

    @server.tool
    async def dig(ctx: Context) -> str:
        assert not hasattr(ctx, name)
        return str(getattr(ctx, name))

    async with memory_wire(server, "2025-11-25") as wire:
        assert said in (await wire.call("dig"))["content"][0]["text"]


def test_an_answer_is_taken_by_its_own_names() -> None:
    with pytest.raises(AttributeError, match=r"'Answer' object has no attribute 'data'; write answer.get\(\)"):
        print(Answer("accept", {"a": 1}).data)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ("forgotten", "forgotten.<locals>.later() was not awaited: write await before it, in an async function"),
        ("yielded", "yielded.<locals>.each() is a generator: return a list of what it yields"),
        ("flown", "flown.<locals>.each() is a generator: return a list of what it yields"),
    ],
)
async def test_what_was_never_run_is_no_result(tool: str, said: str, caplog: pytest.LogCaptureFixture) -> None:
    server = Server("t")

    @server.tool
    async def forgotten():  # type: ignore[no-untyped-def]
        async def later() -> None: ...

        return later()

    @server.tool
    def yielded():  # type: ignore[no-untyped-def]
        def each() -> Iterator[int]:
            yield 1

        return {"a": each()}

    @server.tool
    def flown():  # type: ignore[no-untyped-def]
        async def each() -> AsyncIterator[int]:
            yield 1

        return [each()]

    async with memory_wire(server, "2025-11-25") as wire:
        assert (await wire.call(tool))["isError"]
    assert said in caplog.text
