"""One service on several nodes: what a client begins on one goes on on any, by bytes over HTTP.

The nodes share a backplane in memory, whose commands are counted, that of a parent process, or Redis; each has an
application of its own.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from functools import partial
from socket import socketpair
from typing import Any

import pytest
from support.clock import Clock, turns, until
from support.http_peer import Port, Session, call, envelope, initialize, modern, post, serving
from support.http_stage import Stage
from support.redis_server import NEEDS_REDIS, RedisServer

from mcpd import Context, Principal
from mcpd.protocol.state_keys import StateKeys
from mcpd.server.backplane import redis as redis_bus
from mcpd.server.backplane.base import Backplane, BackplaneAway
from mcpd.server.backplane.memory import MemoryBackplane
from mcpd.server.backplane.node import Node, open_backplane
from mcpd.server.backplane.shared_memory import SharedBackplane, SharedMemory
from mcpd.server.http import HttpSettings
from mcpd.server.http.sessions import SPARE_AFTER
from mcpd.transports.guards import Access

KEY = "a key for all nodes of a service"
OTHER_KEY = "another key that comes after it"
KINDS = ["memory", "shared", pytest.param("redis", marks=NEEDS_REDIS)]


class Counting(MemoryBackplane):
    """Counts what it is asked about sessions, and can be away; what is said meanwhile is missed."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.is_away = False

    def note(self, command: str, key: str = "") -> None:
        if not key.startswith(("n:", "c:")):  # nodes renew their own keys and read the marks of lists at any time
            self.asked.append(f"{command} {key[-1:]}".rstrip())
        if self.is_away:
            self.away_since = 0.0
            raise BackplaneAway("nobody is there")
        self.away_since = None

    async def get(self, key: str) -> bytes | None:
        self.note("get", key)
        return await super().get(key)

    async def set(self, key: str, value: bytes, ttl: float, *, only_new: bool = False) -> bool:
        self.note("set", key)
        return await super().set(key, value, ttl, only_new=only_new)

    async def swap(self, key: str, old: bytes | None, new: bytes, ttl: float) -> bool:
        self.note("swap", key)
        return await super().swap(key, old, new, ttl)

    async def publish(self, channel: str, data: bytes) -> int:
        self.note("publish")
        return await super().publish(channel, data)

    def come_back(self) -> None:
        self.is_away, self.away_since = False, None
        self.bus.report_gap()


def make_stage(**options: Any) -> Stage:
    stage = Stage(**{"state_key": KEY, **options})

    @stage.server.tool
    async def who(ctx: Context) -> str:
        client, offers = ctx.client_info, ctx.client_capabilities
        return f"{client.name if client else None} {ctx.protocol_version} {offers.roots is not None}"

    @stage.server.tool
    async def say(ctx: Context) -> str:
        await ctx.debug("quiet")
        await ctx.error("loud")
        return "said"

    return stage


@pytest.fixture(scope="module")
def redis() -> Iterator[Callable[[], str]]:
    """Gives the URL of the Redis that all tests of this module share."""
    with ExitStack() as stack:
        found: list[str] = []

        def url() -> str:
            if not found:
                found.append(stack.enter_context(RedisServer()).url)
            return found[0]

        yield url


class Service:
    """So many nodes. `stages` are behind the `ports`."""

    def __init__(self) -> None:
        self.ports: list[Port] = []
        self.stages: list[Stage] = []
        self.memory = Counting()
        self.parent = SharedMemory(self.memory)
        self.stack = AsyncExitStack()

    async def add(self, backplane: Backplane | None, stage: Stage | None = None, **settings: Any) -> Port:
        self.stages.append(stage or make_stage())
        made = HttpSettings(backplane=backplane, **settings)
        self.ports.append(await self.stack.enter_async_context(serving(self.stages[-1].server, made)))
        return self.ports[-1]


@pytest.fixture
def start(redis: Callable[[], str], request: pytest.FixtureRequest) -> Any:
    @asynccontextmanager
    async def start(kind: str, number: int = 2, **settings: Any) -> AsyncIterator[Service]:
        service = Service()
        async with service.stack:
            service.stack.callback(service.parent.close)
            for _ in range(number):
                shared: Backplane = service.memory
                if kind == "redis":
                    shared = open_backplane(redis(), request.node.name)
                elif kind == "shared":
                    ours, its = socketpair()
                    await service.parent.join(ours)
                    shared = SharedBackplane(its)
                await service.add(shared, **settings)
            yield service

    return start


def text(answer: Any) -> str:
    assert answer.status == 200, answer.body
    return str(answer.messages[-1]["result"]["content"][0]["text"])


@pytest.mark.parametrize("kind", KINDS)
class TestSessions:
    @pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18", "2025-11-25"])
    async def test_a_session_goes_on_on_another_node(self, start: Any, kind: str, version: str) -> None:
        """SCALE-03, SCALE-04, SCALE-08: what the client said of itself is in the id."""
        async with start(kind) as service:
            one, other = service.ports
            service.memory.asked.clear()
            session = await one.open(version, capabilities={"roots": {}, "extensions": {"a/b": {"c": [1]}}})
            assert len(session.id) < 300
            assert all(0x21 <= ord(character) <= 0x7E for character in session.id)
            told = text(await session.ask("tools/call", {"name": "who"}))
            assert told.endswith(f"{version} True")
            assert service.memory.asked == []
            for port in (other, other, one, other):
                session.port = port
                assert text(await session.ask("tools/call", {"name": "who"})) == told
            if kind != "redis":
                assert sorted(service.memory.asked) == ["get m", "get x"]

    async def test_what_the_client_set_holds_on_all_nodes(self, start: Any, kind: str) -> None:
        """SCALE-10: also on those that have seen the session before."""
        async with start(kind, 3) as service:
            session = await service.ports[0].open()
            for port in service.ports[:2]:
                session.port = port
                assert (await session.ask("ping")).status == 200
            assert (await session.ask("logging/setLevel", {"level": "error"})).status == 200
            assert (await session.ask("resources/subscribe", {"uri": "stage://text"})).status == 200
            session.port = service.ports[0]
            assert (await session.ask("resources/subscribe", {"uri": "stage://long/1"})).status == 200
            for port in service.ports:
                session.port = port
                answer = await session.ask("tools/call", {"name": "say"})
                assert [message["params"]["data"] for message in answer.messages[:-1]] == ["loud"]
                found = port.app.sessions.find(session.id, "")
                assert found is not None
                assert set(found.connection.session.watched or ()) == {"stage://text", "stage://long/1"}
            assert (await session.ask("resources/unsubscribe", {"uri": "stage://text"})).status == 200
            state = service.ports[0].app.sessions.find(session.id, "").connection.session
            await until(lambda: not state.is_watched("stage://text"))

    async def test_two_nodes_set_something_at_once(self, start: Any, kind: str) -> None:
        async with start(kind) as service:
            session = await service.ports[0].open()
            session.port = service.ports[1]
            assert (await session.ask("ping")).status == 200
            uris = [f"stage://long/{number}" for number in range(12)]
            asked = [
                service.ports[number % 2].ask(session.bytes(call("resources/subscribe", {"uri": uri}, number)))
                for number, uri in enumerate(uris)
            ]
            assert [answer.status for answer in await asyncio.gather(*asked)] == [200] * 12
            for port in service.ports:
                state = port.app.sessions.find(session.id, "").connection.session
                await until(lambda state=state: set(state.watched or ()) == set(uris))  # type: ignore[misc]

    async def test_a_session_ends_on_all_nodes(self, start: Any, kind: str) -> None:
        """SCALE-09, S25-041: also on one that never saw it."""
        async with start(kind, 4) as service:
            session = await service.ports[0].open()
            for port in service.ports[:2]:
                session.port = port
                assert (await session.ask("ping")).status == 200
            peer = await session.listen()
            assert (await service.ports[2].ask(session.delete())).status == 204
            await until(lambda: not any(len(port.app.sessions) for port in service.ports))
            while await peer.event() is not None:
                pass
            for port in service.ports:
                session.port = port
                assert (await session.ask("ping")).status == 404
                assert (await port.ask(session.delete())).status == 404

    async def test_of_requests_that_come_together_one_makes_the_session(self, start: Any, kind: str) -> None:
        async with start(kind) as service:
            session = await service.ports[0].open()
            other = service.ports[1]
            message = call("tools/call", {"name": "echo", "arguments": {"text": "a"}}, 1)
            asked = [other.ask(session.bytes({**message, "id": id})) for id in range(1, 9)]
            assert [text(answer) for answer in await asyncio.gather(*asked)] == ["a"] * 8
            assert len(other.app.sessions) == 1

    async def test_at_the_limit_of_sessions(self, start: Any, kind: str) -> None:
        """One that comes from elsewhere makes room as a new one does; none is lost that its client still waits on."""
        async with start(kind, max_sessions=1) as service:
            one, other = service.ports
            session, mine = await one.open(), await other.open()
            session.port = other
            assert (await session.ask("ping")).status == 200
            assert len(other.app.sessions) == 1
            assert (await mine.ask("ping")).status == 200  # it was only here that it had to go
            peer = await mine.listen()
            assert (await session.ask("ping")).status == 503
            peer.abort()

    async def test_an_id_that_is_no_id_is_not_found(self, start: Any, kind: str) -> None:
        """SCALE-05 to SCALE-07: without asking anything."""
        async with start(kind) as service:
            foreign = await service.add(service.memory, make_stage(state_key=OTHER_KEY))
            stranger = Stage(state_key=KEY)
            stranger.server.identity.name = "another"
            named = await service.add(service.memory, stranger)
            session = await service.ports[0].open()
            good = session.id
            service.memory.asked.clear()
            wrong = [
                good[:-1],
                good + "A",
                good[:-1] + ("B" if good[-1] != "B" else "C"),
                "A" * 64,
                "é" * 64,
                good + "=",
            ]
            wrong += [good[:at] + ("x" if good[at] != "x" else "y") + good[at + 1 :] for at in range(0, len(good), 7)]
            for session.id in wrong:
                session.port = service.ports[1]
                assert (await session.ask("ping")).status == 404, session.id
            session.id = good
            for port in (foreign, named):
                session.port = port
                assert (await session.ask("ping")).status == 404
            session.port = service.ports[1]
            session.extra = {"Authorization": "Bearer eve"}
            assert (await session.ask("ping")).status == 404
            assert (await session.port.ask(session.delete())).status == 404
            assert service.memory.asked == []

    async def test_much_that_a_client_says_is_kept_apart(self, start: Any, kind: str) -> None:
        """SCALE-04."""
        async with start(kind) as service:
            more = {"experimental": {"x": {"y": "z" * 100_000}}}
            session = await service.ports[0].open(capabilities={"roots": {}, **more})
            assert len(session.id) <= 60
            session.port = service.ports[1]
            assert text(await session.ask("tools/call", {"name": "who"})).endswith("True")

    async def test_the_key_is_changed(self, start: Any, kind: str) -> None:
        """SCALE-17: in three roll-outs."""
        async with start(kind, 0) as service:
            made = [f"{KEY},{OTHER_KEY}", f"{OTHER_KEY},{KEY}", KEY, OTHER_KEY]
            old_new, new_old, old, new = [await service.add(service.memory, make_stage(state_key=key)) for key in made]
            for seals, opens, not_opens in ((old, (old_new, new_old), new), (old_new, (old, new_old), new),
                                            (new_old, (old_new, new), old)):  # fmt: skip
                session = await seals.open()
                asking = await seals.modern("tools/call", {"name": "ask_name"}, meta=None)
                for port in opens:
                    session.port = port
                    assert (await session.ask("ping")).status == 200
                session.port = not_opens
                assert (await session.ask("ping")).status == 404
                assert asking.status in (200, 400)


@pytest.mark.parametrize("kind", KINDS)
class TestStreams:
    async def test_a_lost_stream_is_resumed_on_another_node(self, start: Any, kind: str) -> None:
        """SCALE-11: none twice, none lost, and to its end."""
        async with start(kind) as service:
            session = await service.ports[0].open()
            peer = await session.start(call("tools/call", {"name": "count", "arguments": {"steps": 5, "door": "d"},
                                                           "_meta": {"progressToken": 7}}, 5))  # fmt: skip
            await peer.head()
            seen = [await peer.event() for _ in range(4)]
            last = seen[2]
            assert last is not None
            peer.abort()
            await service.stages[0].entered.get()

            session.port = service.ports[1]
            again = await session.listen(last["id"])
            first = await again.event()
            assert first == seen[3]
            service.stages[0].door("d").set()
            rest = []
            while (event := await again.event()) is not None:
                rest.append(json.loads(event["data"]))
            assert [message.get("method", "answer") for message in rest] == ["notifications/progress"] * 2 + ["answer"]
            assert rest[-1]["result"]["content"][0]["text"] == "counted 5"

    async def test_an_answer_that_came_meanwhile_is_there(self, start: Any, kind: str) -> None:
        """SCALE-11: and on the third node too, as nobody says that it was read."""
        async with start(kind, 3) as service:
            session = await service.ports[0].open()
            peer = await session.start(call("tools/call", {"name": "poll"}, 5))
            await peer.head()
            priming = await peer.event()
            assert priming is not None
            assert await peer.event() is None
            service.stages[0].door("door").set()
            for port in service.ports[1:]:
                session.port = port
                again = await session.listen(priming["id"])
                assert (await again.message())["result"]["content"][0]["text"] == "polled"
                assert await again.event() is None

    async def test_what_a_node_that_is_gone_has_left(self, start: Any, kind: str) -> None:
        """SCALE-12, SCALE-13: what was lost before it went is in the log; what it had not said is not awaited."""
        async with start(kind) as service:
            session = await service.ports[0].open()
            peer = await session.start(call("tools/call", {"name": "count", "arguments": {"steps": 3, "door": "d"},
                                                           "_meta": {"progressToken": 7}}, 5))  # fmt: skip
            await peer.head()
            events = [await peer.event() for _ in range(3)]
            first, last = events[0], events[-1]
            assert first is not None
            assert last is not None
            peer.abort()
            await service.stages[0].entered.get()
            streams = service.ports[0].app.sessions.find(session.id, "").streams
            await until(lambda: streams.get(1) is not None and streams.get(1).relay is not None)
            await turns(50)  # what was kept is written
            await _kill(service.ports[0])

            session.port = service.ports[1]
            again = await session.listen(first["id"])
            assert [await again.event(), await again.event()] == events[1:]
            assert await again.event() is None
            answer = await service.ports[1].ask(session.get(last["id"]))
            assert answer.status == 405

    async def test_ids_of_events_that_never_were(self, start: Any, kind: str) -> None:
        async with start(kind) as service:
            session = await service.ports[0].open()
            own = service.ports[0].app.core.sharing.node.id
            for last, status in ((f"{own}.1-1", 400), ("1-1", 400), ("0123456789.1-1", 405), (f"{own}.g9-9", 400),
                                 ("nonsense", 400)):  # fmt: skip
                answer = await session.port.ask(session.get(last))
                assert answer.status == status, last
            session.port = service.ports[1]
            assert (await session.port.ask(session.get(f"{own}.1-1"))).status == 405

    async def test_events_of_another_session_are_not_to_be_had(self, start: Any, kind: str) -> None:
        """S25-039."""
        async with start(kind) as service:
            mine, others = await service.ports[0].open(), await service.ports[0].open()
            peer = await mine.start(call("tools/call", {"name": "poll"}, 5))
            await peer.head()
            priming = await peer.event()
            assert priming is not None
            others.port = service.ports[1]
            assert (await service.ports[1].ask(others.get(priming["id"]))).status == 405
            service.stages[0].door("door").set()

    async def test_a_get_stream_goes_on_on_another_node(self, start: Any, kind: str) -> None:
        """SCALE-15, S25-037: what belongs to no request goes to the newest GET stream, wherever that is."""
        async with start(kind, 3) as service:
            session = await service.ports[0].open()
            first = await session.listen()
            session.port = service.ports[1]
            second = await session.listen()
            await until(lambda: service.ports[0].app.sessions.find(session.id, "").stream_node)
            service.stages[0].change()
            assert (await second.message())["method"] == "notifications/tools/list_changed"
            primed = await first.event()
            assert primed is not None
            first.abort()
            second.abort()
            sessions = [service.ports[at].app.sessions.find(session.id, "") for at in (0, 1)]
            await until(lambda: not any(each.listening for each in sessions))

            # Said while nobody listens: held where the newest stream was, and handed over.
            service.stages[2].change()
            await until(lambda: sessions[1]._held)
            session.port = service.ports[2]
            third = await session.listen(primed["id"])
            assert (await third.message())["method"] == "notifications/tools/list_changed"
            service.stages[0].change()
            assert (await third.message())["method"] == "notifications/tools/list_changed"
            assert sessions[0]._held is None
            session.port = service.ports[0]
            assert (await session.ask("resources/subscribe", {"uri": "stage://text"})).status == 200
            service.stages[1].server.resource_updated("stage://text")
            assert (await third.message())["params"]["uri"] == "stage://text"

    async def test_a_get_stream_whose_node_is_gone(self, start: Any, kind: str) -> None:
        """What may have been missed is said once."""
        async with start(kind) as service:
            session = await service.ports[0].open()
            assert (await session.ask("resources/subscribe", {"uri": "stage://text"})).status == 200
            peer = await session.listen()
            primed = await peer.event()
            assert primed is not None
            service.stages[0].change()
            await peer.message()
            await until(lambda: service.ports[1].app.core.sharing.changes.moved)  # else nobody could know
            session.port = service.ports[1]
            await _kill(service.ports[0])
            again = await session.listen(primed["id"])
            said = [await again.message() for _ in range(2)]
            assert {message["method"] for message in said} == {
                "notifications/tools/list_changed", "notifications/resources/updated",
            }  # fmt: skip

    async def test_listeners_of_both_eras_hear_of_changes_on_all_nodes(self, start: Any, kind: str) -> None:
        """SCALE-16: each once."""
        async with start(kind, 3) as service:
            peers = []
            for port in service.ports:
                peer = await port.connect()
                wanted = {"notifications": {"toolsListChanged": True, "resourceSubscriptions": ["stage://text"]}}
                peer.send(modern("subscriptions/listen", wanted))
                await peer.head()
                assert (await peer.message())["method"] == "notifications/subscriptions/acknowledged"
                peers.append(peer)
            service.stages[1].change()
            service.stages[2].server.resource_updated("stage://text")
            for peer in peers:
                said = [(await peer.message())["method"] for _ in range(2)]
                assert sorted(said) == ["notifications/resources/updated", "notifications/tools/list_changed"]
            service.stages[0].server.resource_updated("stage://text")
            for peer in peers:
                assert (await peer.message())["method"] == "notifications/resources/updated"

    async def test_nodes_that_have_the_same_list_keep_silent(self, start: Any, kind: str) -> None:
        """SCALE-16: one change that comes to all nodes, one after the other, is heard where it was not known yet."""
        async with start(kind, 3) as service:
            first, last = [await listener(service.ports[at]) for at in (0, 2)]
            for stage in service.stages:
                stage.change()
                stage.server.resource_updated("stage://text")  # comes behind what the same node said before
                for each in (first, last):
                    await until(partial(_is_behind, each.heard))
                    each.heard.append("")
            assert first.heard == [LISTED, UPDATED, "", UPDATED, "", UPDATED, ""]
            assert last.heard == [LISTED, UPDATED, "", LISTED, UPDATED, "", LISTED, UPDATED, ""]
            for each in (first, last):
                await each.stop()

    async def test_a_list_that_more_decides_is_never_the_same(self, start: Any, kind: str) -> None:
        """SCALE-16: by rules of who sees what, or as the server says."""
        async with start(kind) as service:
            one, other = [stage.server for stage in service.stages]
            heard = await listener(service.ports[0])
            other.tools_changed()
            await until(lambda: heard.heard == [LISTED])

            @one.visibility
            def all_of_it(entry: Any, ctx: Any) -> bool:
                return True

            await until(lambda: heard.heard == [LISTED] * 2)
            other.catalog.has_external_rules = False
            service.stages[1].change()
            await until(lambda: heard.heard == [LISTED] * 3)
            service.stages[0].change()
            await until(lambda: heard.heard == [LISTED] * 4)
            service.stages[1].server.tools_changed()
            await until(lambda: heard.heard == [LISTED] * 5)
            await heard.stop()


LISTED, UPDATED = "notifications/tools/list_changed", "notifications/resources/updated"


@pytest.mark.medium
async def test_a_stream_of_another_node_ends_with_the_token(start: Any) -> None:
    """As every stream does: what comes later is for a token that is still valid."""

    async def authenticate(headers: Any) -> Principal:
        seconds = 0.5 if headers["authorization"] == "Bearer short" else 3600
        return Principal("ada", expires=time.time() + seconds)

    access = Access(authenticate=authenticate)
    async with start("memory", 0) as service:
        stages = [make_stage(), make_stage()]
        ports = [
            await service.stack.enter_async_context(
                serving(stage.server, HttpSettings(backplane=service.memory), access)
            )
            for stage in stages
        ]
        session = Session(ports[0], "2025-11-25")
        session.extra = {"Authorization": "Bearer long"}
        await session.open()
        peer = await session.start(call("tools/call", {"name": "poll"}, 5))
        await peer.head()
        priming = await peer.event()
        assert priming is not None
        session.port = ports[1]
        session.extra = {"Authorization": "Bearer short"}
        followed = await session.listen(priming["id"])
        assert await followed.event() is None
        stages[0].open()
        session.extra = {"Authorization": "Bearer long"}
        again = await session.listen(priming["id"])
        assert (await again.message())["result"]["content"][0]["text"] == "polled"


def _is_behind(heard: list[str]) -> bool:
    return heard[-1:] == [UPDATED]


class Listener:
    """Who listens at one node, and all that it `heard`."""

    def __init__(self, peer: Any) -> None:
        self.heard: list[str] = []
        self._peer = peer
        self._task = asyncio.create_task(self._hear())

    async def _hear(self) -> None:
        while True:
            self.heard.append((await self._peer.message())["method"])

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        self._peer.abort()


async def listener(port: Port) -> Listener:
    """Listens to tools and one resource, in 2026-07-28."""
    peer = await port.connect()
    wanted = {"notifications": {"toolsListChanged": True, "resourceSubscriptions": ["stage://text"]}}
    peer.send(modern("subscriptions/listen", wanted))
    await peer.head()
    assert (await peer.message())["method"] == "notifications/subscriptions/acknowledged"
    return Listener(peer)


async def test_a_modern_request_asks_the_backplane_for_nothing(start: Any) -> None:
    """SCALE-02: nor does a round, which goes on on another node."""
    async with start("memory") as service:
        one, other = service.ports
        await turns()
        service.memory.asked.clear()
        for port in (one, other):
            assert text(await port.modern("tools/call", {"name": "who"}))
            assert (await port.modern("tools/list")).status == 200
        wanted = {"name": "ask_name", "arguments": {}}
        asked = (await one.modern("tools/call", wanted, meta=envelope({"elicitation": {}}))).messages[-1]["result"]
        answers = {"name": {"action": "accept", "content": {"name": "Ada"}}}
        again = {**wanted, "inputResponses": answers, "requestState": asked["requestState"]}
        assert text(await other.modern("tools/call", again, meta=envelope({"elicitation": {}}))) == "Hello, Ada!"
        assert service.memory.asked == []


@pytest.mark.parametrize("kind", KINDS)
class TestQuestions:
    async def ask(self, session: Session, method: str = "ask_name") -> tuple[Any, Any]:
        peer = await session.start(call("tools/call", {"name": method}, 5))
        await peer.head()
        return peer, await peer.message()

    async def test_an_answer_comes_to_another_node(self, start: Any, kind: str) -> None:
        """SCALE-14."""
        async with start(kind) as service:
            one, other = service.ports
            session = await one.open(capabilities={"elicitation": {}})
            peer, question = await self.ask(session)
            assert question["id"].partition(".")[0] == one.app.core.sharing.node.id
            session.port = other
            result = {"action": "accept", "content": {"name": "Ada"}}
            answer = {"jsonrpc": "2.0", "id": question["id"], "result": result}

            stranger = await other.open(capabilities={"elicitation": {}})
            assert (await stranger.post(answer)).status in (202, 400)
            gone = {**answer, "id": "0123456789.1"}
            assert (await session.port.ask(session.bytes(gone))).status == 400
            assert (await session.post(answer)).status == 202
            assert (await peer.message())["result"]["content"][0]["text"] == "Hello, Ada!"

    async def test_it_does_while_the_one_that_asked_connects_again(self, start: Any, kind: str) -> None:
        """SCALE-14: it gets time, then the client is to send it again; only of one that is gone it is told so."""
        async with start(kind) as service:
            one, other = service.ports
            session = await one.open(capabilities={"elicitation": {}})
            peer, question = await self.ask(session)
            session.port = other
            answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}}

            asking, tells = one.app.core.sharing.node, other.app.core.sharing.node.send
            tries: list[str] = []

            async def is_deaf(node: str, *body: Any) -> int:
                tries.append(node)
                return 0 if len(tries) < 3 else await tells(node, *body)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("mcpd.server.backplane.node._WAITS", (0.0, 0.0))
                patch.setattr(other.app.core.sharing.node, "send", is_deaf)
                assert (await session.post(answer)).status == 202
                assert tries == [asking.id] * 3
                assert (await peer.message())["id"] == 5

                patch.setattr("mcpd.server.backplane.node._WAITS", ())
                tries.clear()
                refused = await session.post(answer)
                assert (refused.status, refused["retry-after"]) == (503, "5")
                tries.clear()
                assert (await session.post({**answer, "id": "0123456789abcdef.1"})).status == 400
                assert len(tries) == 1

    async def test_an_error_does_too(self, start: Any, kind: str) -> None:
        async with start(kind) as service:
            session = await service.ports[0].open(capabilities={"elicitation": {}})
            peer, question = await self.ask(session)
            session.port = service.ports[1]
            refusal = {"jsonrpc": "2.0", "id": question["id"], "error": {"code": -1, "message": "no"}}
            assert (await session.post(refusal)).status == 202
            assert (await peer.message())["result"]["isError"] is True

    async def test_in_a_batch(self, start: Any, kind: str) -> None:
        async with start(kind) as service:
            session = await service.ports[0].open("2025-03-26", capabilities={"sampling": {}})
            peer, question = await self.ask(session, "ask_model")
            session.port = service.ports[1]
            result = {"role": "assistant", "content": {"type": "text", "text": "x"}, "model": "m"}
            answer = {"jsonrpc": "2.0", "id": question["id"], "result": result}
            assert (await session.port.ask(post([answer], session.headers))).status == 202
            assert (await peer.message())["result"]["content"][0]["text"] == "m"

    async def test_a_call_is_given_up_through_another_node(self, start: Any, kind: str) -> None:
        async with start(kind) as service:
            session = await service.ports[0].open()
            await session.start(call("tools/call", {"name": "wait"}, 9))
            await service.stages[0].entered.get()
            session.port = service.ports[1]
            given_up = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}}
            assert (await session.post(given_up)).status == 202
            assert await service.stages[0].left.get() == "door:cancelled"


class TestAway:
    """SCALE-21: the table of what goes on while the backplane is away."""

    async def test_while_it_is_away_and_after(self, start: Any) -> None:
        async with start("memory") as service:
            one, other = service.ports
            known = await one.open()
            known.port = other
            assert (await known.ask("ping")).status == 200
            unseen = await one.open()
            peer = await known.listen()
            await peer.event()
            far = await listener(one)
            await turns()

            service.memory.is_away = True
            assert (await known.ask("ping")).status == 200
            assert (await one.modern("tools/list")).status == 200
            begun = await one.open()
            assert (await begun.ask("ping")).status == 200
            unseen.port = other
            answer = await unseen.port.ask(unseen.bytes(call("ping")))
            assert (answer.status, answer["retry-after"]) == (503, "5")
            for method, params in (("logging/setLevel", {"level": "error"}),
                                   ("resources/subscribe", {"uri": "stage://text"})):  # fmt: skip
                assert (await other.ask(known.bytes(call(method, params)))).status == 503
            state = other.app.sessions.find(known.id, "").connection.session
            assert (state.log_level, len(state.watched or ())) == ("info", 0)
            assert (await other.ask(known.delete())).status == 503
            assert (await known.ask("ping")).status == 200
            elsewhere = {"jsonrpc": "2.0", "id": "0123456789.1", "result": {}}
            assert (await other.ask(known.bytes(elsewhere))).status == 503
            assert (await other.ask(known.get("0123456789.1-1"))).status == 503
            ready = await other.ask(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert ready.status == 200
            assert ready.text.startswith("ok\nbackplane away for ")
            service.stages[1].change()
            assert (await peer.message())["method"] == "notifications/tools/list_changed"

            # What happened on others meanwhile is found out once it is back, and others find out what happened here.
            await MemoryBackplane.set(service.memory, "c:prompts", b"another", 60)
            await MemoryBackplane.set(service.memory, f"{{s:{begun_uid(one, begun)}}}:x", b"", 60)
            service.memory.come_back()
            assert (await peer.message())["method"] == "notifications/prompts/list_changed"
            await until(lambda: far.heard.count(LISTED) == 1)
            await far.stop()
            assert (await begun.ask("ping")).status == 404
            assert (await unseen.ask("ping")).status == 200
            service.memory.asked.clear()
            for _ in range(2):
                assert (await known.ask("ping")).status == 200
            assert [each for each in service.memory.asked if each.startswith("get")] == ["get x", "get m"]
            assert (await known.ask("logging/setLevel", {"level": "error"})).status == 200
            assert (await other.ask(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")).text == "ok\n"

    async def test_strictly(self, start: Any) -> None:
        async with start("memory", 1, strict_ready=True) as service:
            service.memory.is_away = True
            await service.ports[0].open()
            service.memory.away_since = asyncio.get_running_loop().time() - 12
            ready = await service.ports[0].ask(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (ready.status, ready.text) == (503, "backplane away for 12 s\n")

    async def test_a_doubted_session_is_served_if_nobody_can_be_asked(self, start: Any) -> None:
        async with start("memory", 1) as service:
            session = await service.ports[0].open()
            service.memory.come_back()
            service.memory.is_away = True
            assert (await session.ask("ping")).status == 200
            service.memory.is_away = False
            assert (await session.ask("ping")).status == 200

    async def test_much_cannot_be_said_while_it_is_away(self, start: Any) -> None:
        async with start("memory", 1) as service:
            service.memory.is_away = True
            long = initialize(capabilities={"experimental": {"x": {"y": "z" * 10_000}}})
            assert (await service.ports[0].ask(post(long))).status == 503
            assert len(service.ports[0].app.sessions) == 0

    @NEEDS_REDIS
    @pytest.mark.slow
    @pytest.mark.covered
    async def test_redis_restarts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """No answer takes more than 3 s while it is away; 5 s after it is back nothing tells that it was. It was away
        for so long that nodes try again only as rarely as they ever do."""
        monkeypatch.setattr(redis_bus, "_BACK_OFF", (redis_bus._BACK_OFF[1], redis_bus._BACK_OFF[1]))
        with RedisServer() as server:
            service = Service()
            async with service.stack:
                for _ in range(2):
                    await service.add(open_backplane(server.url, "restarts"))
                one, other = service.ports
                session = await one.open()
                session.port = other
                assert (await session.ask("ping")).status == 200
                unseen = await one.open()
                server.kill()
                far = await listener(other)
                unseen.port = other
                for asked, status in (
                    (session.bytes(call("ping")), 200), (modern("tools/list"), 200),
                    (unseen.bytes(call("ping")), 503), (session.delete(), 503),
                ):  # fmt: skip
                    async with asyncio.timeout(3):
                        assert (await other.ask(asked)).status == status
                service.stages[0].change()

                server.start()
                before = time.monotonic()
                async with asyncio.timeout(60):
                    while (await other.ask(unseen.bytes(call("ping")))).status == 503:
                        await turns()
                await until(lambda: all(port.app.core.sharing.trouble == "" for port in service.ports))
                await until(lambda: LISTED in far.heard)  # what changed meanwhile is told
                level = call("logging/setLevel", {"level": "error"})
                assert (await other.ask(session.bytes(level))).status == 200
                assert time.monotonic() - before < 5
                await far.stop()


async def test_a_session_ends_too_while_its_record_is_on_its_way(start: Any) -> None:
    async with start("memory") as service:
        one, other = service.ports
        asked_for, may_answer, get = asyncio.Event(), asyncio.Event(), service.memory.get

        async def slow(key: str) -> bytes | None:
            found: bytes | None = await get(key)
            asked_for.set()
            await may_answer.wait()
            return found

        session = await one.open()
        session.port = other
        service.memory.get = slow
        asking = asyncio.create_task(session.ask("ping"))
        async with asyncio.timeout(60):
            await asked_for.wait()
        assert (await one.ask(session.delete())).status == 204
        await turns()
        may_answer.set()
        assert (await asking).status == 404
        assert len(other.app.sessions) == 0


class TestAlone:
    async def test_with_a_key_alone_a_session_outlives_its_process(self, start: Any) -> None:
        """No backplane: what is numbered by one process is not taken for another's."""
        async with start("memory", 0) as service:
            one, other = await service.add(None), await service.add(None)
            session = await one.open(capabilities={"roots": {}})
            peer = await session.start(call("tools/call", {"name": "poll"}, 5))
            await peer.head()
            priming = await peer.event()
            assert priming is not None
            session.port = other
            assert text(await session.ask("tools/call", {"name": "who"})).endswith("True")
            assert (await other.ask(session.get(priming["id"]))).status == 405
            assert (await other.ask(session.delete())).status == 204
            assert (await session.ask("ping")).status == 404
            service.stages[0].door("door").set()

    async def test_without_a_key_nothing_is_sealed(self, start: Any) -> None:
        async with start("memory", 0) as service:
            port = await service.add(None, make_stage(state_key=None))
            assert port.app.core.sharing is None
            assert len((await port.open()).id) == 32

    async def test_an_idle_session_is_not_over(self, start: Any) -> None:
        """SCALE-23: what it set is remembered."""
        async with start("memory", 1, session_idle_timeout=600) as service:
            clock = Clock()
            session = await service.ports[0].open()
            assert (await session.ask("logging/setLevel", {"level": "error"})).status == 200
            await clock.advance(601)
            await clock.advance(200)
            assert len(service.ports[0].app.sessions) == 0
            answer = await session.ask("tools/call", {"name": "say"})
            assert len(answer.messages) == 2

    async def test_what_any_node_can_make_anew_takes_no_memory(self, start: Any) -> None:
        """SCALE-22, SCALE-23: soon after its last request; not what is worked on, listens, or was not fetched."""
        async with start("memory", 2, session_idle_timeout=0) as service:
            one, clock = service.ports[0], Clock()
            idle = [await one.open() for _ in range(20)]
            listening, calling, lost = [await one.open() for _ in range(3)]
            peer = await listening.listen()
            await calling.start(call("tools/call", {"name": "wait"}, 9))
            polled = await lost.start(call("tools/call", {"name": "poll"}, 5))
            await polled.head()
            priming = await polled.event()
            assert priming is not None
            await service.stages[0].entered.get()
            await clock.advance(SPARE_AFTER + 80)
            await clock.advance(80)
            assert {session.id for session in one.app.sessions} == {listening.id, calling.id, lost.id}
            service.memory.asked.clear()
            for session in idle:
                assert (await session.ask("ping")).status == 200
            assert sorted(service.memory.asked) == ["get m"] * 20 + ["get x"] * 20

            service.memory.is_away = True
            assert (await idle[0].ask("logging/setLevel", {"level": "error"})).status == 503
            await clock.advance(SPARE_AFTER + 80)
            await clock.advance(80)
            assert len(one.app.sessions) == 23  # nobody could make them anew
            service.stages[0].door("door").set()
            peer.abort()

    async def test_an_id_has_an_end(self, start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """SCALE-22, SCALE-24: clocks may differ by a minute."""
        async with start("memory") as service:
            session = await service.ports[0].open()
            begin = time.time()
            session.port = service.ports[1]
            for ahead, status in ((7 * 86400 + 50, 200), (-50, 200)):
                service.ports[1].app.sessions.end_all()
                monkeypatch.setattr("mcpd.server.http.sealed_sessions.time", lambda ahead=ahead: begin + ahead)
                assert (await session.ask("ping")).status == status
            service.ports[1].app.sessions.end_all()
            monkeypatch.setattr("mcpd.server.http.sealed_sessions.time", lambda: begin + 7 * 86400 + 70)
            assert (await session.ask("ping")).status == 404


class TestNode:
    async def heard(
        self, number: int = 2, keys: str = KEY
    ) -> tuple[MemoryBackplane, list[Node], list[tuple[str, Any]]]:
        backplane, found = MemoryBackplane(), []
        nodes = [Node(backplane, StateKeys([keys.encode()])) for _ in range(number)]
        for node in nodes:
            node.on("x", lambda sender, body: found.append((sender, body)))
            await node.start()
        return backplane, nodes, found

    async def test_what_is_forged_old_or_repeated_is_dropped(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """SCALE-18, SCALE-24."""
        backplane, (one, other), found = await self.heard()
        said: list[bytes] = []
        await backplane.subscribe(f"n:{other.id}", said.append)
        assert await one.send(other.id, "x", 1) == 2
        assert await one.send("0123456789", "x", 1) == 0
        await until(lambda: found == [(one.id, [1])])
        forger = Node(backplane, StateKeys([OTHER_KEY.encode()]))
        await forger.send(other.id, "x", 2)
        for data in (said[0], b"", b"x" * 40, said[0][:16] + b"x" + said[0][17:]):
            await backplane.publish(f"n:{other.id}", data)
        await backplane.publish("all", said[0])  # what was said to one is not said to all
        now = time.time()
        for skew in (-121, 62):  # older than a minute whatever its clock says, or from tomorrow
            monkeypatch.setattr("mcpd.server.backplane.node.time", lambda skew=skew: now + skew)
            await one.send(other.id, "x", 3)
            monkeypatch.undo()
            await turns()
        for skew in (-115, 60):
            monkeypatch.setattr("mcpd.server.backplane.node.time", lambda skew=skew: now + skew)
            await one.send(other.id, "x", 4)
            monkeypatch.undo()
        await until(lambda: len(found) == 3)
        assert [body for _, body in found] == [[1], [4], [4]]
        assert other.refused == 1 + 4 + 1 + 2
        await one.broadcast("of a newer version")
        await turns()
        for node in (one, other):
            for _ in range(2):
                await node.aclose()
        assert await backplane.get(f"n:{one.id}") is None

    async def test_two_nodes_never_have_one_id(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """SCALE-19."""
        ids = iter(["aaaaaaaaaa", "aaaaaaaaaa", "bbbbbbbbbb"])
        monkeypatch.setattr("mcpd.server.backplane.node.token_hex", lambda _: next(ids))
        _, (one, other), _ = await self.heard()
        assert (one.id, other.id) == ("aaaaaaaaaa", "bbbbbbbbbb")
        await one.aclose()
        await other.aclose()

    async def test_a_node_shows_that_it_lives(self) -> None:
        backplane, (node,), _ = await self.heard(1)
        clock = Clock()
        await backplane.delete(f"n:{node.id}")
        await clock.advance(6)
        assert await backplane.get(f"n:{node.id}") == b"1"
        await node.aclose()

    async def test_what_cannot_be_said_is_counted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        backplane = Counting()
        node = Node(backplane, StateKeys([KEY.encode()]))
        backplane.is_away = True
        await node.start()
        node.post(node.broadcast("x"))
        await until(lambda: node.dropped == 1)
        monkeypatch.setattr("mcpd.server.backplane.node._MOST_POSTED", 0)
        node.post(node.broadcast("x"))
        assert node.dropped == 2
        await node.aclose()


async def _kill(port: Port) -> None:
    """End a node as a crash does: nothing is said any more, and nothing is heard."""
    assert port.app.core.sharing is not None
    node: Any = port.app.core.sharing.node
    node.post = lambda work: work.close()
    node._renewing.cancel()
    backplane: Any = node.backplane
    if isinstance(backplane._backplane, MemoryBackplane):  # inside of what measures its commands
        for channel in [channel for channel in backplane.bus.channels if channel == f"n:{node.id}"]:
            for receive in list(backplane.bus._receivers[channel]):
                await backplane.unsubscribe(channel, receive)
        port.app.core.sharing = None
    else:
        await backplane.aclose()
    port.app.sessions.end_all()


def begun_uid(port: Port, session: Session) -> str:
    found = port.app.sessions.find(session.id, "")
    assert found is not None
    assert found.sealed is not None
    return found.sealed.uid
