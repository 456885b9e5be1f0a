"""POST, GET and DELETE up to 2025-11-25 over real sockets: sessions, streams, batches, and what stands alone."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from support.clock import Clock, turns, until
from support.http_peer import BOTH, MODERN, Session, call, initialize, post, request, serving
from support.http_stage import Stage

from mcpd.server.http import HttpSettings

OVER_HTTP = ("2025-03-26", "2025-06-18", "2025-11-25")
LEGACY = ("2024-10-07", "2024-11-05", *OVER_HTTP)
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def wait(door: str = "door", id: Any = 1) -> dict[str, Any]:
    return call("tools/call", {"name": "wait", "arguments": {"door": door}}, id)


def count(steps: int, door: str = "", id: Any = 1, token: Any = "t") -> dict[str, Any]:
    params = {"name": "count", "arguments": {"steps": steps, "door": door}, "_meta": {"progressToken": token}}
    return call("tools/call", params, id)


# ----------------------------------------------------------------------------------------- sessions


@pytest.mark.parametrize("version", LEGACY)
async def test_a_session_in_each_version(version: str) -> None:
    """S25-029, S25-032, S25-034, S25-040: initialize gives an id of visible ASCII, with which everything goes on."""
    stage = Stage()
    async with serving(stage.server) as port:
        session = await port.open(version)
        assert len(session.id) >= 32
        assert all(0x21 <= ord(c) <= 0x7E for c in session.id)
        answer = await session.ask("tools/call", {"name": "echo", "arguments": {"text": "✓"}})
        assert (answer.status, answer["content-type"]) == (200, "application/json")
        assert "mcp-session-id" not in answer
        assert (await session.ask("ping", id=2)).json == {"jsonrpc": "2.0", "id": 2, "result": {}}


async def test_session_ids_are_never_the_same() -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        assert len({(await port.open()).id for _ in range(20)}) == 20


@pytest.mark.parametrize("asked", ["1999-01-01", MODERN, "v999"])
async def test_an_unknown_version_is_answered_with_the_newest_legacy_one(asked: str) -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        answer = await port.ask(post(initialize(asked)))
        assert answer.status == 200
        assert answer.json["result"]["protocolVersion"] == "2025-11-25"


async def test_initialize_may_name_a_legacy_version_in_its_header() -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        answer = await port.ask(post(initialize(), {"MCP-Protocol-Version": "2025-11-25", "Mcp-Method": "initialize"}))
        assert answer.status == 200


@pytest.mark.parametrize("params", [{}, {"protocolVersion": "2025-11-25"}, None, 5])
async def test_an_initialize_that_fails_begins_no_session(params: Any) -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        message = {"jsonrpc": "2.0", "id": 9, "method": "initialize", "params": params}
        answer = await port.ask(post(message))
        assert (answer.status, answer.code, answer.json["id"]) == (400, -32602, 9)
        assert "mcp-session-id" not in answer
        assert not port.app.connections


async def test_initialize_comes_once() -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        session = await port.open()
        answer = await session.post(initialize(id=5))
        assert (answer.status, answer.code) == (400, -32600)


async def test_delete_ends_a_session() -> None:
    """S25-041: its id is nobody's from then on, and says 404 to POST, GET and DELETE."""
    stage = Stage()
    async with serving(stage.server) as port:
        session = await port.open()
        stream = await session.listen()
        await stream.event()
        waiting = await session.start(wait())
        await stage.entered.get()
        answer = await port.ask(session.delete())
        assert (answer.status, answer.body) == (204, b"")
        assert await stage.left.get() == "door:cancelled"
        assert await stream.event() is None
        ended = await waiting.answer()
        assert (ended.status, ended.code, ended.json["id"]) == (404, -32600, 1)
        assert "initialize" in ended.error["message"]
        for data in (session.bytes(call("ping", id=2)), session.bytes(INITIALIZED), session.get(), session.delete()):
            answer = await port.ask(data)
            assert answer.status == 404
            assert "initialize" in answer.error["message"]
        assert not stage.server._connections


async def test_every_request_that_runs_when_its_session_ends_is_answered() -> None:
    """Alone, behind what it said before on a stream, and in a batch: none ends without an answer."""
    stage = Stage()
    async with serving(stage.server) as port:
        session = await port.open("2025-03-26")
        streaming = await session.start(count(2, "later", id=2))
        batch = await session.start([wait("a", id=3), call("ping", id=4), wait("b", id=5)])
        assert sorted([await stage.entered.get() for _ in range(3)]) == ["a", "b", "later"]
        assert (await port.ask(session.delete())).status == 204
        told = [message for message in (await streaming.answer()).messages if "id" in message]
        assert [(one["id"], one["error"]["code"]) for one in told] == [(2, -32600)]
        answers = (await batch.answer()).json
        assert {one["id"]: "result" in one for one in answers} == {3: False, 4: True, 5: False}
        assert not stage.server._connections


@pytest.mark.parametrize("id", ["unknown", "", "x" * 500])
async def test_an_unknown_session_is_404(id: str) -> None:
    """S25-041, S25-033."""
    stage = Stage()
    async with serving(stage.server) as port:
        answer = await port.ask(post(call("ping", id=3), {"Mcp-Session-Id": id}))
        assert (answer.status, answer.code, answer.json["id"]) == (404, -32600, 3)
        assert (await port.ask(post(INITIALIZED, {"Mcp-Session-Id": id}))).status == 404


async def test_a_session_belongs_to_the_credential_that_opened_it() -> None:
    """A stranger who learns an id learns nothing from it."""
    stage = Stage()
    async with serving(stage.server) as port:
        session = Session(port, "2025-11-25")
        session.extra = {"Authorization": "Bearer ada"}
        await session.open()
        for other in ({"Authorization": "Bearer eve"}, {"Authorization": None}):
            for data in (
                session.bytes(call("ping", id=2), other),
                post(INITIALIZED, {**session.headers, **other}),
            ):
                assert (await port.ask(data)).status == 404
        eve = Session(port, "2025-11-25")
        eve.id, eve.extra = session.id, {"Authorization": "Bearer eve"}
        assert (await port.ask(eve.get())).status == 404
        assert (await port.ask(eve.delete())).status == 404
        assert (await session.ask("ping", id=3)).status == 200


async def test_identify_decides_whose_a_session_is() -> None:
    """An application that authenticates by itself says who asks; the header's own value may change."""
    stage = Stage()

    def identify(scope: Any) -> str | None:
        return dict(scope["headers"]).get(b"x-user", b"").decode() or None

    async with serving(stage.server, identify=identify) as port:
        session = Session(port, "2025-11-25")
        session.extra = {"X-User": "ada", "Authorization": "Bearer 1"}
        await session.open()
        session.extra["Authorization"] = "Bearer 2"
        assert (await session.ask("ping", id=1)).status == 200
        session.extra["X-User"] = "eve"
        assert (await port.ask(session.bytes(call("ping", id=2)))).status == 404


async def test_idle_sessions_end_by_themselves() -> None:
    """Those with nothing open; a stream that is open keeps its session."""
    stage, clock = Stage(), Clock()
    async with serving(stage.server, HttpSettings(session_idle_timeout=600)) as port:
        idle, listening = await port.open(), await port.open()
        stream = await listening.listen()
        await stream.event()
        assert len(port.app.connections) == 2
        await clock.advance(601)
        assert len(port.app.connections) == 1
        assert (await port.ask(idle.bytes(call("ping")))).status == 404
        assert (await listening.ask("ping")).status == 200
        stream.abort()
        await until(lambda: not any(session.busy for session in port.app.sessions))
        await clock.advance(601)
        assert not port.app.connections
        await until(lambda: not stage.server._connections)


async def test_at_the_limit_the_session_that_was_idle_longest_ends() -> None:
    stage = Stage()
    async with serving(stage.server, HttpSettings(max_sessions=2)) as port:
        first, second = await port.open(), await port.open()
        await first.ask("ping")
        third = await port.open()
        assert (await port.ask(second.bytes(call("ping")))).status == 404
        streams = [await session.listen() for session in (first, third)]
        answer = await port.ask(post(initialize()))
        assert answer.status == 503
        assert "max_sessions" in answer.text
        assert "retry-after" in answer
        streams[0].abort()
        while (await port.ask(post(initialize()))).status != 200:
            await turns()


# ----------------------------------------------------------------------------------------- versions


@pytest.mark.parametrize("version", ["2099-01-01", "rubbish", "", "2025-11-25, 2025-11-25"])
async def test_an_unserved_version_header_is_400(version: str) -> None:
    """S25-042: on every method of HTTP, with a session or without."""
    stage = Stage()
    async with serving(stage.server) as port:
        session = await port.open()
        session.extra = {"MCP-Protocol-Version": version}
        for data in (
            session.bytes(call("ping")),
            session.bytes(INITIALIZED),
            session.get(),
            session.delete(),
            post(call("tools/list"), {"MCP-Protocol-Version": version}),
        ):
            answer = await port.ask(data)
            assert (answer.status, answer.code) == (400, -32022)
        assert "2025-11-25" in answer.error["message"]


@pytest.mark.parametrize("named", [None, *OVER_HTTP])
async def test_the_session_knows_its_version_better_than_the_header(named: str | None) -> None:
    """An absent or older version in the header changes nothing: clients send what they like."""
    stage = Stage()
    async with serving(stage.server) as port:
        session = await port.open("2025-11-25")
        session.extra = {"MCP-Protocol-Version": named}
        answer = await session.ask("tools/call", count(1)["params"])
        assert answer.status == 200
        # A priming event is of 2025-11-25 alone.
        assert answer.text.startswith("id: 1-1\nretry: 1000\ndata: \n\n")


async def test_the_modern_header_on_a_session_is_a_malformed_modern_request() -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        session = await port.open()
        session.extra = {"MCP-Protocol-Version": MODERN}
        answer = await port.ask(session.bytes(call("tools/list")))
        assert (answer.status, answer.code) == (400, -32602)


async def test_an_envelope_makes_it_modern_whatever_the_session() -> None:
    """The body decides: with an envelope, a session's header cannot make it legacy."""
    from support.http_peer import envelope

    stage = Stage()
    async with serving(stage.server) as port:
        session = await port.open()
        for message in (call("tools/list", {"_meta": envelope()}), call("initialize", {"_meta": envelope()})):
            answer = await port.ask(session.bytes(message))
            assert (answer.status, answer.code) == (400, -32020)


# ------------------------------------------------------------------------------- answers and streams


async def test_errors_of_requests_are_answers() -> None:
    """S25-008: status 200, for the transport did its part."""
    stage = Stage()
    async with serving(stage.server) as port:
        session = await port.open()
        for number, (method, params, code) in enumerate(
            [
                ("no/such", None, -32601),
                ("tools/call", {"name": "no-such"}, -32602),
                ("tools/call", {}, -32602),
                ("resources/read", {"uri": "stage://no"}, -32002),
            ]
        ):
            answer = await session.ask(method, params, number)
            assert (answer.status, answer.code) == (200, code)


async def test_messages_are_utf_8() -> None:
    """S25-026: both ways; and what is no UTF-8 is no JSON."""
    stage = Stage()
    async with serving(stage.server) as port:
        session = await port.open()
        answer = await session.ask("tools/call", {"name": "echo", "arguments": {"text": "ü✓😀"}})
        assert "ü✓😀".encode() in answer.body
        broken = json.dumps(call("tools/call", {"name": "echo", "arguments": {"text": "?"}})).encode()
        answer = await port.ask(post(broken.replace(b"?", b"\xff"), session.headers))
        assert (answer.status, answer.code) == (400, -32700)


async def test_one_id_is_not_asked_twice_at_once() -> None:
    """The second is refused on its own connection, the first goes on."""
    stage = Stage()
    async with serving(stage.server) as port:
        session = await port.open()
        first = await session.start(wait(id=5))
        await stage.entered.get()
        second = await session.post(call("ping", id=5))
        assert (second.status, second.code) == (400, -32600)
        stage.open()
        assert (await first.answer()).json["result"]["content"][0]["text"] == "opened"


async def test_ids_are_unique_in_a_session_only() -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        sessions = [await port.open() for _ in range(2)]
        peers = [await session.start(wait(door, id=1)) for session, door in zip(sessions, "ab", strict=True)]
        await stage.entered.get()
        await stage.entered.get()
        stage.open("b")
        assert (await peers[1].answer()).status == 200
        stage.open("a")
        assert (await peers[0].answer()).status == 200


@pytest.mark.parametrize("version", OVER_HTTP)
async def test_progress_takes_the_stream_of_its_call(version: str) -> None:
    """S25-034, S25-037, S25-038: not the GET stream; with ids, and with a priming event in 2025-11-25 alone."""
    stage = Stage()
    async with serving(stage.server) as port:
        session = await port.open(version)
        listening = await session.listen()
        peer = await session.start(count(2, "d", id="x"))
        answer = await peer.head()
        assert answer["content-type"] == "text/event-stream"
        assert answer["x-accel-buffering"] == "no"
        event = await peer.event()
        assert event is not None
        if version == "2025-11-25":
            assert event == {"id": event["id"], "retry": "1000", "data": ""}
            event = await peer.event()
            assert event is not None
        assert json.loads(event["data"])["params"]["progress"] == 1
        ids = [event["id"]]
        await stage.entered.get()
        stage.open("d")
        while (event := await peer.event()) is not None:
            ids.append(event["id"])
            last = json.loads(event["data"])
        assert last["id"] == "x"
        assert len(set(ids)) == 3
        assert len({id.partition("-")[0] for id in ids}) == 1
        # Nothing of it came here.
        stage.change()
        assert (await listening.message())["method"] == "notifications/tools/list_changed"


async def test_a_cancelled_request_ends_without_an_answer() -> None:
    """S25-047: cancelled by a notification on another connection; nothing more is said for it."""
    stage = Stage()
    async with serving(stage.server) as port:
        session = await port.open()
        cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        quiet = await session.start(wait("a", id=1))
        await stage.entered.get()
        assert (await session.post(cancelled)).status == 202
        assert await stage.left.get() == "a:cancelled"
        answer = await quiet.answer()
        assert (answer.status, answer.body) == (202, b"")
        streamed = await session.start(count(2, "d", id=1))
        await streamed.head()
        await streamed.message()
        await stage.entered.get()
        await session.post(cancelled)
        assert await streamed.event() is None
        assert (await session.post(cancelled)).status == 202


async def test_leaving_is_not_cancelling() -> None:
    """2025-11-25 basic/transports: a disconnection should not be taken for giving up."""
    stage = Stage()
    async with serving(stage.server) as port:
        session = await port.open()
        peer = await session.start(wait())
        await stage.entered.get()
        peer.abort()
        await session.ask("ping", id=2)
        assert stage.left.empty()
        stage.open()
        assert await stage.left.get() == "door:opened"


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
async def test_a_question_takes_the_stream_of_its_call(version: str) -> None:
    """S25-003: a request of ours on the POST's own stream; the answer is POSTed, and taken with 202 (S25-032)."""
    stage = Stage()
    async with serving(stage.server) as port:
        session = await port.open(version, capabilities={"elicitation": {}})
        listening = await session.listen()
        peer = await session.start(call("tools/call", {"name": "ask_name"}))
        assert (await peer.head())["content-type"] == "text/event-stream"
        question = await peer.message()
        session.talk.server(question)
        assert question["method"] == "elicitation/create"
        result = {"action": "accept", "content": {"name": "Ada"}}
        answer = await session.post({"jsonrpc": "2.0", "id": question["id"], "result": result})
        assert (answer.status, answer.body) == (202, b"")
        last = await peer.message()
        session.talk.server(last)
        assert last["result"]["content"][0]["text"] == "Hello, Ada!"
        assert await peer.event() is None
        stage.change()
        assert (await listening.message())["method"] == "notifications/tools/list_changed"


async def test_answers_to_nothing_are_taken() -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        session = await port.open()
        for message in (
            {"jsonrpc": "2.0", "id": 77, "result": {}},
            {"jsonrpc": "2.0", "id": "x", "error": {"code": 1, "message": "no"}},
        ):
            assert (await session.post(message)).status == 202


async def test_a_session_ends_its_own_streams_and_waits_for_slow_ones() -> None:
    """The channel by itself: what `drain` and `aclose` mean with nothing, and with something, to wait for."""
    stage = Stage()
    async with serving(stage.server) as port:
        session = await port.open()
        channel = port.app.sessions.find(session.id, "")
        assert channel is not None
        await channel.drain()
        stream = await session.listen()
        await stream.event()
        channel.send(b"{}")
        assert not channel.is_congested
        await channel.drain()
        assert (await stream.event()) is not None
        await channel.aclose()
        assert await stream.event() is None


async def test_a_stream_that_waits_for_too_much_ends_and_can_be_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise its client would wait for ever for what was dropped."""
    monkeypatch.setattr("mcpd.server.http.event_stream._MOST_WAITING", 10)
    stage = Stage()
    async with serving(stage.server) as port:
        session = await port.open()
        channel = port.app.sessions.find(session.id, "")
        assert channel is not None
        stream = await session.listen()
        first = await stream.event()
        assert first is not None
        channel.send(b"1")
        channel.send(b"2")
        assert await stream.event() is None
        resumed = await session.listen(first["id"])
        events = [await resumed.event() for _ in range(2)]
        assert [event and event["data"] for event in events] == ["1", "2"]


async def test_heartbeats_of_a_client_that_has_left_are_not_stored() -> None:
    """They would take the place of an answer that it has missed; they go on once it has returned."""
    stage = Stage()
    stage.server.heartbeat = 0.01
    async with serving(stage.server, HttpSettings(max_stored_events=8)) as port:
        session = await port.open()
        peer = await session.start(call("tools/call", {"name": "poll", "arguments": {"door": "a"}}, 5))
        await peer.head()
        polled = await peer.event()
        assert polled is not None
        stage.open("a")
        params = {"name": "wait", "arguments": {"door": "b"}, "_meta": {"progressToken": "t"}}
        peer = await session.start(call("tools/call", params, 6))
        await peer.head()
        waited = await peer.event()
        assert waited is not None
        channel = port.app.sessions.find(session.id, "")
        assert channel is not None
        peer.abort()
        await until(lambda: channel.is_away(6))
        (running,) = channel.connection.session.in_flight
        due: set[float] = set()

        def were_due() -> bool:
            due.add(running.reported)
            return len(due) > 12

        await until(were_due)
        resumed = await session.listen(polled["id"])
        assert (await resumed.message())["result"]["content"][0]["text"] == "polled"
        again = await session.listen(waited["id"])
        for _ in range(12):
            assert (await again.message())["method"] == "notifications/progress"
        stage.open("b")
        while "result" not in (message := await again.message()):
            pass
        assert message["id"] == 6


async def test_an_answer_without_a_session_is_400() -> None:
    """S25-033."""
    stage = Stage()
    async with serving(stage.server) as port:
        answer = await port.ask(post({"jsonrpc": "2.0", "id": 1, "result": {}}))
        assert (answer.status, answer.code) == (400, -32600)


# --------------------------------------------------------------------------------------------- GET


async def test_get_opens_a_stream_at_once() -> None:
    """S25-035: the head comes before anything is said."""
    stage = Stage()
    async with serving(stage.server) as port:
        for version in OVER_HTTP:
            session = await port.open(version)
            peer = await session.listen()
            if version == "2025-11-25":
                event = await peer.event()
                assert event is not None
                assert (event["data"], event["retry"]) == ("", "1000")
            stage.change()
            message = await peer.message()
            session.talk.server(message)
            assert message["method"] == "notifications/tools/list_changed"


async def test_each_message_takes_one_stream() -> None:
    """S25-037: of several GET streams the newest, and when that is gone the one before it."""
    stage = Stage()
    async with serving(stage.server) as port:
        session = await port.open("2025-06-18")
        older, newer = await session.listen(), await session.listen()
        stage.change()
        assert (await newer.message())["method"] == "notifications/tools/list_changed"
        newer.abort()
        await until(lambda: port.app.sessions.find(session.id, "").busy <= 1)  # type: ignore[union-attr]
        stage.change()
        event = await older.event()
        assert event is not None
        assert event["id"].startswith("2-1") is False
        assert event["id"].endswith("-1")


async def test_what_nobody_listens_for_is_held_once() -> None:
    """Without a GET stream a message waits for one; the same news is not told twice."""
    stage = Stage()
    async with serving(stage.server) as port:
        session = await port.open("2025-06-18")
        stage.change()
        stage.change()
        await session.ask("resources/subscribe", {"uri": "stage://text"})
        stage.server.resource_updated("stage://text")
        await asyncio.sleep(0)
        peer = await session.listen()
        assert (await peer.message())["method"] == "notifications/tools/list_changed"
        assert (await peer.message())["method"] == "notifications/resources/updated"
        stage.change()
        assert (await peer.message())["method"] == "notifications/tools/list_changed"


async def test_there_are_not_endless_streams() -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        session = await port.open("2025-06-18")
        peers = [await session.listen() for _ in range(16)]
        too_many = await session.listen()
        assert await too_many.event() is None
        stage.change()
        assert (await peers[-1].message())["method"] == "notifications/tools/list_changed"


async def test_get_wants_an_event_stream_accepted() -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        session = await port.open()
        session.extra = {"Accept": "application/json"}
        answer = await port.ask(session.get())
        assert (answer.status, answer.code) == (406, -32600)


async def test_get_without_a_session_tells_old_clients_what_to_use() -> None:
    """S25-035: 405; a client of 2024-11-05 begins with a GET."""
    stage = Stage()
    async with serving(stage.server) as port:
        for accept in ("text/event-stream", "text/html,*/*;q=0.8"):
            answer = await port.ask(request("GET", "/mcp", [("Accept", accept)]))
            assert answer.status == 405
            assert answer["allow"] == "POST"
            assert "Streamable HTTP" in answer.text
        assert (await port.ask(request("DELETE", "/mcp"))).status == 400


@pytest.mark.parametrize("path", ["/sse", "/messages", "/", "/mcp/x", "/MCP"])
async def test_elsewhere_is_nothing(path: str) -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        for data in (request("GET", path, [("Accept", "text/event-stream")]), post(call("ping"), path=path)):
            answer = await port.ask(data)
            assert answer.status == 404
            assert "/mcp" in answer.text
            assert "HTTP+SSE" in answer.text


async def test_a_slash_at_the_end_is_the_same_path() -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        assert (await port.ask(post(initialize(), path="/mcp/"))).status == 200
        assert (await port.ask(post(initialize(), path="/mcp?x=1"))).status == 200


# ------------------------------------------------------------------------------------------ batches


async def test_a_batch_is_answered_as_an_array() -> None:
    """2025-03-26 basic/transports: requests and notifications in, their answers out, in one array."""
    stage = Stage()
    async with serving(stage.server) as port:
        session = await port.open("2025-03-26")
        batch = [call("ping", id=1), INITIALIZED, call("tools/list", id="two"), call("no/such", id=3), 7]
        answer = await session.post(batch)
        assert answer.status == 200
        by_id = {message.get("id"): message for message in answer.json}
        assert by_id[1]["result"] == {}
        assert "tools" in by_id["two"]["result"]
        assert by_id[3]["error"]["code"] == -32601
        assert by_id[None]["error"]["code"] == -32600


async def test_a_batch_of_notifications_and_answers_is_taken() -> None:
    """S25-032 as 2025-03-26 has it: 202 for any number of them."""
    stage = Stage()
    async with serving(stage.server) as port:
        session = await port.open("2025-03-26")
        answer = await session.post([INITIALIZED, {"jsonrpc": "2.0", "id": 5, "result": {}}])
        assert (answer.status, answer.body) == (202, b"")


async def test_what_a_batch_says_meanwhile_takes_its_stream() -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        session = await port.open("2025-03-26")
        peer = await session.start([count(2, "d", id=1), call("ping", id=2)])
        answer = await peer.head()
        assert answer["content-type"] == "text/event-stream"
        assert (await peer.message())["params"]["progress"] == 1
        await stage.entered.get()
        stage.open("d")
        assert (await peer.message())["params"]["progress"] == 2
        last = await peer.message()
        assert [message["id"] for message in last] == [2, 1] or [message["id"] for message in last] == [1, 2]
        assert await peer.event() is None


@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", "2025-11-25"])
async def test_no_other_version_has_batches(version: str) -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        session = await port.open(version)
        answer = await port.ask(post([call("ping")], session.headers))
        assert (answer.status, answer.code) == (400, -32600)


@pytest.mark.parametrize("body", [b"[]", b" [ ] "])
async def test_an_empty_batch_is_refused(body: bytes) -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        session = await port.open("2025-03-26")
        assert (await port.ask(post(body, session.headers))).code == -32600


async def test_initialize_is_never_part_of_a_batch() -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        answer = await port.ask(post([initialize(), call("ping", id=2)]))
        assert answer.status == 200
        assert answer.json[0]["error"]["code"] == -32600
        assert "mcp-session-id" not in answer
        assert not port.app.connections


# ------------------------------------------------------------------------- without a session, stateless


async def test_without_header_and_session_a_request_is_of_2025_03_26() -> None:
    """S25-042's other half: no header means 2025-03-26, where batches are."""
    stage = Stage()
    async with serving(stage.server) as port:
        answer = await port.ask(post(call("tools/list")))
        assert answer.status == 200
        tool = answer.json["result"]["tools"][0]
        assert "title" not in tool
        answer = await port.ask(post([call("ping", id=1), call("tools/list", id=2)]))
        assert sorted(message["id"] for message in answer.json) == [1, 2]
        assert (await port.ask(post(INITIALIZED))).status == 202
        assert not port.app.connections


@pytest.mark.parametrize("version", OVER_HTTP)
async def test_who_names_a_version_was_initialized_and_has_a_session(version: str) -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        for message in (call("tools/list"), INITIALIZED, [call("ping")]):
            answer = await port.ask(post(message, {"MCP-Protocol-Version": version}))
            assert (answer.status, answer.code) == (400, -32600)
            assert "Mcp-Session-Id" in answer.error["message"]


SETTINGS = [
    call("logging/setLevel", {"level": "debug"}),
    call("resources/subscribe", {"uri": "stage://text"}),
    call("resources/unsubscribe", {"uri": "stage://text"}),
]


@pytest.mark.parametrize("message", SETTINGS, ids=lambda message: message["method"])
async def test_what_only_a_session_could_keep_is_refused_without_one(message: dict[str, Any]) -> None:
    stage = Stage()
    for settings, headers in (
        (HttpSettings(), {}),
        (HttpSettings(stateless=True), {"MCP-Protocol-Version": "2025-11-25"}),
    ):
        async with serving(stage.server, settings) as port:
            answer = await port.ask(post(message, headers))
            assert answer.code == -32601
            assert "needs a session" in answer.error["message"]


async def test_without_a_session_no_log_messages_come() -> None:
    """They are not offered there, as no level could be kept."""
    stage = Stage()
    async with serving(stage.server) as port:
        answer = await port.ask(post(call("tools/call", {"name": "log", "arguments": {"text": "lost"}})))
        assert answer["content-type"] == "application/json"
        assert answer.json["result"]["content"][0]["text"] == "logged"


async def test_a_request_that_stands_alone_may_stream() -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        peer = await port.connect()
        peer.send(post(count(2, "d")))
        await peer.head()
        first = await peer.event()
        assert first is not None
        assert "id" not in first
        await stage.entered.get()
        stage.open("d")
        assert (await peer.message())["params"]["progress"] == 2
        assert "result" in await peer.message()


@pytest.mark.parametrize("version", OVER_HTTP)
async def test_stateless_keeps_no_sessions(version: str) -> None:
    """By setting: initialize gives no id, every request stands alone in the version its header names."""
    stage = Stage()
    async with serving(stage.server, HttpSettings(stateless=True)) as port:
        answer = await port.ask(post(initialize(version)))
        assert answer.json["result"]["protocolVersion"] == version
        assert "mcp-session-id" not in answer
        # Nothing is offered that only a session could keep.
        capabilities = answer.json["result"]["capabilities"]
        assert "logging" not in capabilities
        assert capabilities["tools"] == capabilities["resources"] == capabilities["prompts"] == {}
        named = {"MCP-Protocol-Version": version}
        assert (await port.ask(post(INITIALIZED, named))).status == 202
        answer = await port.ask(post(call("tools/call", {"name": "regional"}), {**named, "Mcp-Session-Id": "any"}))
        assert answer.status == 200
        listed = (await port.ask(post(call("tools/list"), named))).json["result"]["tools"]
        assert any("_meta" in tool or "title" in tool for tool in listed) is False
        # Nothing can be asked of a client that is not there any more.
        asked = await port.ask(post(call("tools/call", {"name": "ask_name"}), named))
        assert asked.json["result"]["isError"] is True
        for method in ("GET", "DELETE"):
            answer = await port.ask(request(method, "/mcp", [("Mcp-Session-Id", "any"), ("Accept", BOTH)]))
            assert answer.status == 405
            assert answer["allow"] == "POST"
        batch = await port.ask(post([call("ping")], named))
        assert batch.status == (200 if version == "2025-03-26" else 400)
        assert not port.app.connections
        assert not stage.server._connections
