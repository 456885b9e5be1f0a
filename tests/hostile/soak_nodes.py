"""A long day of a service: three nodes behind nginx, of which one after the other is killed, stopped, or cut off from
Redis, while clients of both eras call, follow streams and answer questions.

    make soak-nodes                            twenty minutes
    make soak-nodes SOAK_ARGS="--minutes 0.5"  less

Each request that is sent has one fate: it is answered, fails as it should, or is lost with a node (or refused by what
stands before it) and sent again. At the end these have to add up to what was sent, each call has to be answered once,
and with what it asked for; tools may have run more often than that only where something was lost. Exit code 1 if not.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support import clock
from support.drills import REPEATED, Caller, Journal, drill
from support.http_peer import Answer, Peer, Port, call, envelope, initialize, modern, post
from support.service_stage import Service

REPOSITORY = Path(__file__).resolve().parent.parent.parent
VERSIONS = ("2025-06-18", "2025-11-25", "2025-11-25", "2026-07-28", "2026-07-28", "2026-07-28")
NEVER = 60.0
"""After so many seconds a request counts as never answered."""
ACCEPTED = {"action": "accept", "content": {"name": "Ada"}}
TAKEN_IN = 2.5
"""After so many seconds nginx sends to a node again that was away."""
MOST_MEMORY = 250 * 1024 * 1024

MOST_WRONG = 20
_BROKEN = (OSError, asyncio.IncompleteReadError, ValueError)


class Lost(Exception):
    """What was sent has to be sent again; the text is why."""


class Visitor(Caller):
    """A client that does a bit of everything. `wrong` is what must not be."""

    def __init__(self, port: Port, version: str, numbers: Iterator[int], counts: Counter[str], seed: str) -> None:
        super().__init__(port, version, numbers, counts)
        self.random = random.Random(seed)
        self.wrong: list[str] = []
        self.sent = 0

    async def live(self, until: float) -> None:
        """Call after call, until it is time."""
        while time.monotonic() < until and len(self.wrong) < MOST_WRONG:
            tool = self.random.choice(("work", "work", "work", "fail", "count", "ask"))
            number, steps = next(self.numbers), self.random.randrange(2, 6)
            self.counts["calls"] += 1
            params = {"name": tool, "arguments": {"number": number, **({"steps": steps} if tool == "count" else {})}}
            text = await self._repeat(params)
            expected = {"work": str(number), "fail": f"{number} has failed", "count": f"counted {steps}",
                        "ask": "Hello, Ada!"}[tool]  # fmt: skip
            if expected not in text:
                self.wrong.append(f"{tool} {number} was answered with {text!r}")
            self.counts["calls answered"] += 1

    async def _repeat(self, params: dict[str, Any]) -> str:
        """Send until it is answered, or something is wrong."""
        while len(self.wrong) < MOST_WRONG:
            try:
                async with asyncio.timeout(NEVER):
                    if self.version < "2026":
                        return await self._in_session(params)
                    return await self._in_rounds(params)
            except Lost as lost:
                self.counts[f"lost: {lost}"] += 1
            except TimeoutError:
                self.counts["never answered"] += 1
        return "given up"

    def _answered(self, message: dict[str, Any]) -> str:
        self.counts["failed as it should" if message["result"].get("isError") else "answered"] += 1
        return str(message["result"]["content"][0]["text"])

    # -- modern ------------------------------------------------------------------------------

    async def _in_rounds(self, params: dict[str, Any]) -> str:
        more: dict[str, Any] = {}
        while True:
            meta = envelope({"elicitation": {"form": {}}}, progressToken=params["arguments"]["number"])
            self.counts["sent"] += 1
            messages = await self._stream(modern("tools/call", {**params, **more}, meta=meta))
            result = self._result(messages, params)
            if "requestState" not in result["result"]:
                return self._answered(result)
            self.counts["answered with a question"] += 1
            more = {"requestState": result["result"]["requestState"], "inputResponses": {"name": ACCEPTED}}

    # -- legacy ------------------------------------------------------------------------------

    async def _in_session(self, params: dict[str, Any]) -> str:
        while not self.session:
            await self._begin()
        self.counts["sent"] += 1
        self.sent += 1  # an id is used once: what was lost may still be worked on
        message = call("tools/call", {**params, "_meta": {"progressToken": self.sent}}, self.sent)
        return self._answered(self._result(await self._stream(post(message, self.session_headers)), params))

    async def _begin(self) -> None:
        answer = await self._try(post(initialize(self.version, capabilities={"elicitation": {}})))
        if answer is None:
            return
        if answer.status != 200:
            self.wrong.append(f"initialize: {answer.status} {answer.text}")
        self.session = answer["mcp-session-id"]

    # -- streams -----------------------------------------------------------------------------

    def _result(self, messages: list[dict[str, Any]], params: dict[str, Any]) -> dict[str, Any]:
        """The answer among the messages of a stream; what came before it has to be whole."""
        answers = [message for message in messages if "result" in message or "error" in message]
        steps = [
            message["params"]["progress"] for message in messages if message.get("method", "").endswith("/progress")
        ]
        if steps != list(range(1, len(steps) + 1)):
            self.wrong.append(f"{params}: progress {steps}")
        if not answers:
            raise Lost("the stream ended without an answer")
        if len(answers) != 1 or "result" not in answers[0]:
            self.wrong.append(f"{params}: {answers}")
            raise Lost("wrongly answered")
        if params["name"] == "count" and len(steps) != params["arguments"]["steps"]:
            self.wrong.append(f"{params}: only progress {steps}")
        return answers[0]

    async def _stream(self, data: bytes) -> list[dict[str, Any]]:
        """All messages that come for a request, resumed where its version can; questions are answered."""
        found: list[dict[str, Any]] = []
        last, is_over = await self._read(data, found)
        while not is_over and last and self.version == "2025-11-25":
            self.counts["resumed"] += 1
            headers = [f"{name}: {value}" for name, value in self.session_headers.items()]
            head = ["GET /mcp HTTP/1.1", "Host: localhost", "Accept: text/event-stream", f"Last-Event-ID: {last}"]
            last, is_over = await self._read("\r\n".join([*head, *headers, "", ""]).encode(), found, last=last)
        return found

    async def _read(self, data: bytes, found: list[dict[str, Any]], last: str = "") -> tuple[str, bool]:
        """One answer. Gives the last event's id, and whether there is nothing more to be had."""
        peer: Peer | None = None
        try:
            peer = await self.port.connect()
            peer.send(data)
            answer = await peer.head()
            if answer.status in REPEATED:
                if last:
                    return last, False
                raise Lost(f"refused by {answer.status}")
            if answer.status == 405:
                return last, True
            if answer.status != 200:
                self.wrong.append(f"{answer.status} to {data[-300:]!r}")
                raise Lost("wrongly refused")

            if "content-length" in answer:  # all of it was there at once
                answer.body = await peer.reader.readexactly(int(answer["content-length"]))
                found += answer.messages
                return last, True
            while (event := await peer.event(NEVER)) is not None:
                last = event.get("id", last)
                await self._take(event.get("data", ""), found)
        except _BROKEN:
            if not last:
                raise Lost("the connection ended") from None
            return last, any("result" in message for message in found)
        finally:
            if peer is not None:
                peer.abort()
                self.port._peers.remove(peer)
        return last, any("result" in message for message in found) or data.startswith(b"GET")

    async def _take(self, data: str, found: list[dict[str, Any]]) -> None:
        if not data:
            return
        answer = Answer(200, [("content-type", "application/json")])
        answer.body = data.encode()
        found.append(message := answer.json)
        if "method" not in message or "id" not in message:
            return
        self.counts["questions"] += 1
        accepted = {"jsonrpc": "2.0", "id": message["id"], "result": ACCEPTED}
        while (answered := await self._try(post(accepted, self.session_headers))) is None:
            self.counts["answers to questions: lost and sent again"] += 1
        self.counts[f"answers to questions: {answered.status}"] += 1
        if answered.status == 400:
            raise Lost("nobody waits for the answer to a question")


async def trouble(served: Service, seed: str, counts: Counter[str], until: float) -> None:
    """Now and then something happens to a node, or to Redis; two nodes are there at any time."""
    dice = random.Random(seed)
    while time.monotonic() < until:
        node = dice.choice(served.nodes)
        what = dice.choice(("killed", "killed", "stopped", "Redis paused", "connections cut"))
        if what == "Redis paused":
            served.redis.pause()
        elif what == "connections cut":
            await served.redis.asay("CLIENT", "KILL", "TYPE", dice.choice(("normal", "pubsub")))
        else:
            await asyncio.to_thread(node.kill if what == "killed" else node.stop)

        await _pause(dice.random() * 2)
        if what == "Redis paused":
            served.redis.go_on()
        elif what in ("killed", "stopped"):
            node.start()
            await asyncio.to_thread(node.wait)
            await _pause(TAKEN_IN)
        counts[f"trouble: {what}"] += 1


async def _pause(seconds: float) -> None:
    end = time.monotonic() + seconds
    await clock.until(lambda: time.monotonic() >= end)


async def soak(served: Service, journal: Journal, minutes: float, seed: str) -> list[str]:
    """Run it; gives what is wrong."""
    counts: Counter[str] = Counter()
    numbers = itertools.count(1)
    until = time.monotonic() + minutes * 60
    visitors = [Visitor(served.at(), version, numbers, counts, f"{seed} {at}") for at, version in enumerate(VERSIONS)]
    await asyncio.gather(trouble(served, seed, counts, until), *(visitor.live(until) for visitor in visitors))
    for name, count in sorted(counts.items()):
        print(f"soak: {name}: {count}", flush=True)
    wrong = [each for visitor in visitors for each in visitor.wrong]
    fates = ("answered", "failed as it should", "answered with a question", "never answered")
    lost = sum(count for name, count in counts.items() if name.startswith("lost: "))
    if counts["sent"] != sum(counts[name] for name in fates) + lost or counts["never answered"]:
        wrong.append("what was sent does not add up")
    if counts["calls"] != counts["calls answered"] or not lost:
        wrong.append(f"{counts['calls']} calls, {counts['calls answered']} answered, {lost} lost and sent again")

    ran = sum((journal.times(name) for name in ("work", "fail", "count", "ask")), Counter())
    twice = sum(times - 1 for times in ran.values())
    print(f"soak: {sum(ran.values())} runs of tools for {counts['calls']} calls", flush=True)
    if set(ran) != set(range(1, counts["calls"] + 1)):
        wrong.append("not every call has run")
    if twice > lost + counts["answered with a question"]:
        wrong.append(f"{twice} runs too many, of {lost} requests lost")
    return wrong + await left_over(served)


async def left_over(served: Service) -> list[str]:
    """What is wrong with what stays in Redis and in the nodes."""
    wrong = []
    keys = (await served.redis.asay("KEYS", "*")).split()
    print(f"soak: {len(keys)} keys in Redis", flush=True)
    for key in keys:
        if int(await served.redis.asay("PTTL", key)) == -1:  # -2: its life has just ended
            wrong.append(f"{key} has no end")
    for node in served.nodes:
        resident = int(Path(f"/proc/{node.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
        print(f"soak: a node of {resident / 1e6:.1f} MB", flush=True)
        if resident > MOST_MEMORY:
            wrong.append(f"{resident} bytes in a node")
        log = "".join(node.log)
        if "Traceback" in log or "could not be dealt with" in log:
            wrong.append(log[-3000:])
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", default=str(time.time_ns()))
    options = parser.parse_args()
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MCPD_", "MCP_"))}
    child = SimpleNamespace(python=sys.executable, env={**env, "PYTHONPATH": str(REPOSITORY)})
    print(f"soak: {options.minutes:g} minutes, seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="mcpd-soak-") as folder:
        with drill(child, Path(folder)) as (served, journal):
            wrong = asyncio.run(soak(served, journal, options.minutes, options.seed))
    for text in wrong[:50]:
        print(f"soak: WRONG: {text}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
