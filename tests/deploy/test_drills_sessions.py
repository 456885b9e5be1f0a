"""Drills: the ids of sessions in the wrong hands, their end in the midst of requests, new keys, and wrong clocks."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from conftest import Child
from support.clock import until
from support.drills import Journal, Load, drill, hang_up, loaded, result_text
from support.http_peer import Answer, Peer, Port, Session, call, envelope, modern
from support.redis_server import NEEDS_REDIS
from support.service_stage import KEY, Service, missing

pytestmark = [
    pytest.mark.nightly,
    NEEDS_REDIS,
    pytest.mark.skipif(bool(missing("nginx")), reason="nginx is not installed"),
]
NEW_KEY = "the key that comes after it"
ACCEPTED = {"action": "accept", "content": {"name": "Ada"}}
TOKENS = """
[ada]
token = "ada-ada-ada-ada-ada-ada-ada-ada"

[eve]
token = "eve-eve-eve-eve-eve-eve-eve-eve"
"""
ADA, EVE = ({"Authorization": f"Bearer {'-'.join([name] * 8)}"} for name in ("ada", "eve"))


async def every_way(session: Session, event: str, question: str) -> Counter[int]:
    """The status of each request that can be made with a session's id."""
    port = session.port
    answer = {"jsonrpc": "2.0", "id": question, "result": ACCEPTED}
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}}
    asked = [
        session.bytes(call("ping")),
        session.bytes(call("tools/call", {"name": "pid"})),
        session.bytes(call("logging/setLevel", {"level": "error"})),
        session.bytes(answer),
        session.bytes(cancelled),
        session.get(),
        session.get(event),
        session.delete(),
    ]
    return Counter([(await port.ask(data)).status for data in asked])


async def test_an_id_in_other_hands(child: Child, tmp_path: Path) -> None:
    """SCALE-06, SCALE-07: a captured id is worth nothing to another user, nor at another service of the same key and
    Redis; whose it is notices nothing of that."""
    (tmp_path / "tokens.toml").write_text(TOKENS)
    (tmp_path / "tokens.toml").chmod(0o600)
    (tmp_path / "other").mkdir()
    options = ["--tokens-file", str(tmp_path / "tokens.toml")]
    with drill(child, tmp_path, options=options) as (served, _):
        other = {"options": options, "env": {"DRILL_NAME": "another"}, "number": 1, "proxies": ()}
        with drill(child, tmp_path / "other", backplane=served.redis.url, **other) as (stranger, _):
            session = Session(served.at(), "2025-11-25")
            session.extra = dict(ADA)
            await session.open(capabilities={"elicitation": {}})
            peer = await session.start(call("tools/call", {"name": "ask", "arguments": {"number": 1}}, 5))
            assert (await peer.head()).status == 200
            first, question = await peer.event(), await peer.message()
            assert first is not None
            for _ in range(3):  # all nodes have seen it
                assert (await session.ask("ping")).status == 200

            captured = Session(served.at(), "2025-11-25")
            captured.id = session.id
            for captured.extra in (dict(EVE), {}):
                for captured.port in (served.node(0), served.node(1), served.node(2)):
                    tried = await every_way(captured, first["id"], question["id"])
                    assert tried == {404 if captured.extra else 401: 8}
            unseen = Session(served.node(0), "2025-11-25")
            unseen.extra = dict(ADA)
            await unseen.open()
            captured.extra, captured.id = dict(EVE), unseen.id
            for captured.port in (served.node(1), served.node(2)):
                assert await every_way(captured, first["id"], question["id"]) == {404: 8}
            captured.extra, captured.port, captured.id = dict(ADA), stranger.node(0), session.id
            assert await every_way(captured, first["id"], question["id"]) == {404: 8}

            answer = {"jsonrpc": "2.0", "id": question["id"], "result": ACCEPTED}
            assert (await session.post(answer)).status == 202
            assert (await peer.message())["result"]["content"][0]["text"] == "Hello, Ada!"
            hang_up(session.port)


async def test_a_session_ends_amidst_a_hundred_requests(child: Child, tmp_path: Path) -> None:
    """SCALE-09, S25-041: each is answered, by 200 or by 404; what is sent once DELETE is answered finds nothing on any
    node, nor on one that was started anew."""
    with drill(child, tmp_path) as (served, journal):
        port = served.at()
        for number in range(1, 4):
            session = await port.open()
            arguments = {"name": "work", "arguments": {"number": number, "behind": "never"}}
            lasting = [await session.start(call("tools/call", arguments, 500 + each)) for each in range(3)]
            await until(lambda number=number: journal.times("work")[number] == 3)  # type: ignore[misc]

            race = [asyncio.ensure_future(port.ask(session.bytes(call("ping", id=id)))) for id in range(50)]
            ending = asyncio.ensure_future(port.ask(session.delete()))
            race += [asyncio.ensure_future(port.ask(session.bytes(call("ping", id=id)))) for id in range(50, 100)]
            assert (await ending).status == 204
            statuses = Counter(answer.status for answer in await asyncio.gather(*race))
            assert statuses.total() == 100
            assert set(statuses) <= {200, 404}, statuses

            # The calls that ran have ended with it, on whichever node: by then all nodes have heard.
            assert {(await peer.answer()).status for peer in lasting} == {404}
            assert not journal.times("worked")
            for index in range(3):
                session.port = served.node(index)
                assert (await session.ask("ping")).status == 404
                assert (await session.port.ask(session.delete())).status == 404

        served.nodes[0].kill()
        served.nodes[0].start()
        await asyncio.to_thread(served.nodes[0].wait)
        session.port = served.node(0)
        assert (await session.ask("ping")).status == 404
        hang_up(port)


async def test_the_key_is_exchanged_under_load(child: Child, tmp_path: Path) -> None:
    """SCALE-17: in three roll-outs, node by node; what one node has sealed opens on the others at each moment, and they
    hear each other. Nothing of the old key opens in the end."""
    with drill(child, tmp_path, number=2) as (served, journal):
        async with loaded(served.at(), pauses=True) as load:
            old = await served.at().open()
            await roll_out(served, load, journal, f"{KEY},{NEW_KEY}")
            await roll_out(served, load, journal, f"{NEW_KEY},{KEY}")
            assert (await old.ask("ping")).status == 200
        assert load.repeats == 0, load.counts

        # What was sealed by the old key is over by now: 7 days have passed.
        async with loaded(served.at(), pauses=True) as load:
            await roll_out(served, load, journal, NEW_KEY)
        assert load.repeats == 0, load.counts
        assert {(await old.ask("ping")).status for _ in range(4)} == {404}


async def roll_out(served: Service, load: Load, journal: Journal, key: str) -> None:
    """One node after the other gets another key; in between both kinds know each other's seals and words."""
    for node in served.nodes:
        node.env["MCPD_STATE_KEY"] = key
        await asyncio.to_thread(node.stop)
        await load.more(20)
        node.start()
        await asyncio.to_thread(node.wait)
        await journal.has_of(node.pid)
        for here, there in ((0, 1), (1, 0)):
            await between(served.node(here), served.node(there))


async def between(one: Port, other: Port) -> None:
    """A round and a question begun here and answered there, and a change there that is heard here."""
    offers = envelope({"elicitation": {"form": {}}})
    params = {"name": "ask", "arguments": {"number": 1}}
    asked = await one.modern("tools/call", params, meta=offers)
    state = asked.messages[-1]["result"]["requestState"]
    answers = {"inputResponses": {"name": ACCEPTED}, "requestState": state}
    assert result_text(await other.modern("tools/call", {**params, **answers}, meta=offers)) == "Hello, Ada!"

    session = await one.open(capabilities={"elicitation": {}})
    peer = await session.start(call("tools/call", params, 5))
    assert (await peer.head()).status == 200
    question = await peer.message()
    session.port = other
    assert (await session.post({"jsonrpc": "2.0", "id": question["id"], "result": ACCEPTED})).status == 202
    assert (await peer.message())["result"]["content"][0]["text"] == "Hello, Ada!"

    hearing = await listen(one)
    assert result_text(await other.modern("tools/call", {"name": "touch"})) == "touched"
    assert (await hearing.message())["method"] == "notifications/resources/updated"
    peer.abort()
    hearing.abort()


async def listen(port: Port) -> Peer:
    peer = await port.connect()
    peer.send(modern("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["drill://text"]}}))
    assert (await peer.head()).status == 200
    assert (await peer.message())["method"] == "notifications/subscriptions/acknowledged"
    return peer


CLOCK = """
import os, time
_time, _ahead = time.time, float(os.environ.get("DRILL_AHEAD") or 0)
time.time = lambda: _time() + _ahead
"""


async def test_clocks_differ_by_a_minute(child: Child, tmp_path: Path) -> None:
    """SCALE-24: sessions, rounds, answers and changes pass between nodes in both directions."""
    (tmp_path / "clock").mkdir()
    (tmp_path / "clock" / "sitecustomize.py").write_text(CLOCK)
    env = {**child.env, "PYTHONPATH": f"{tmp_path / 'clock'}:{child.env['PYTHONPATH']}"}
    with drill(child, tmp_path, number=2, proxies=(), env=env) as (served, _):
        for ahead in ("60", "-60"):
            node = served.nodes[1]
            await asyncio.to_thread(node.stop)
            node.env = {**node.env, "DRILL_AHEAD": ahead}
            node.start()
            await asyncio.to_thread(node.wait)
            for here, there in ((0, 1), (1, 0)):
                await between(served.node(here), served.node(there))
                session = await served.node(here).open()
                session.port = served.node(there)
                assert (await ended(session)).status == 404


async def ended(session: Session) -> Answer:
    """What a session that was just ended says."""
    assert (await session.ask("logging/setLevel", {"level": "error"})).status == 200
    assert (await session.port.ask(session.delete())).status == 204
    return await session.ask("ping")
