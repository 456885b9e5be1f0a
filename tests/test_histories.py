"""Random histories, legal and illegal: a legacy session and a 2026-07-28 connection as state machines.

Each machine is a client with a model of what it has said. After every step the model knows exactly which
messages have to come, and which calls and questions the server still holds open; more, less or other is a
failure, and so is any message that does not fit the schema of its version (the wire sees to that).

S25-001, S25-024, S25-045, S25-047, S26-001, S26-018, S26-049, S26-091, S26-092, S26-095, S26-097.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

from hypothesis import settings, strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, precondition, rule
from msgspec import Struct
from support.wire_schema import VERSIONS
from support.wires import LEGACY, META, Wire, _Ear, envelope

from mcpd import Context, Server
from mcpd.protocol.types.base import LOG_LEVELS
from mcpd.transports.memory import pair

NEWEST_LEGACY = LEGACY[-1]
FOUR = dict(zip(LOG_LEVELS, ["debug", "info", "info", "warning", "error", "error", "error", "error"], strict=True))
URIS = ["test://a", "test://b", "test://c"]
KINDS = ["tools", "prompts", "resources"]
SAID = {"role": "assistant", "content": {"type": "text", "text": "so"}, "model": "m", "stopReason": "endTurn"}

# Ids that are easily mistaken for one another.
FRESH = st.sampled_from([0, 1, -1, 2**53, "", "0", "1", "a", "\u2028"])


class Yes(Struct):
    ok: bool


def told(message: Any) -> Any:
    """What counts of a message: enough to tell it from all others that may come here."""
    if "method" in message:
        params = message.get("params", {})
        subscription = params.get("_meta", {}).get(f"{META}subscriptionId")
        detail = params.get("uri") or params.get("requestId") or params.get("level") or params.get("progress")
        return (message["method"], detail, repr(subscription))
    if "error" in message:
        return ("error", repr(message.get("id")), message["error"]["code"])
    result = message["result"]
    kind = result.get("resultType", "") if isinstance(result, dict) else ""
    return ("result", repr(message["id"]), "failed" if result.get("isError") else kind)


class Machine(RuleBasedStateMachine):
    """A client on a loop of its own, that steps the loop until nothing more happens."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.events: dict[str, asyncio.Event] = {}
        self.open: dict[Any, str] = {}
        self.burned: set[str] = set()
        """Ids that were used up by a cancellation; the wire's own bookkeeping cannot tell their next use apart."""
        self.count = 0
        self.names: Counter[str] = Counter()
        self.server = self.make_server()
        self.wire = self.loop.run_until_complete(self.connect())

    def make_server(self) -> Server:
        server = Server("t")
        events = self.events

        @server.tool
        async def now() -> str:
            return "now"

        @server.tool
        async def wait(name: str, ctx: Context) -> str:
            events[name] = asyncio.Event()
            await ctx.progress(0.5)
            await events[name].wait()
            return name

        @server.tool
        async def ask(ctx: Context) -> str:
            return (await ctx.sample("?", timeout=None, key="thought")).text

        @server.tool
        async def confirm(ctx: Context, what: str = "") -> bool:
            return (await ctx.elicit("?", Yes, key="yes")).get().ok

        @server.tool
        async def log(ctx: Context, level: str) -> None:
            await ctx.log(level, "x")  # type: ignore[arg-type]

        @server.prompt
        def prompt() -> str:
            return ""

        for uri in URIS:
            server.add_text(uri, "", name="r")
        return server

    async def connect(self) -> Wire:
        near, far = pair()
        wire = Wire(near.send)
        wire.connection = self.server.connect(far)
        near.start(_Ear(wire))
        far.start(wire.connection)
        return wire

    # -- what every rule does ----------------------------------------------------------------

    def new_id(self, wished: Any) -> Any:
        """The id that was wished for if it is free to use, else one that never was."""
        if repr(wished) in self.burned or any(repr(wished) == repr(one) for one in self.open):
            self.count += 1
            return f"id-{self.count}"
        return wished

    def request(self, request_id: Any, method: str, params: Any = None) -> None:
        message = {"jsonrpc": "2.0", "id": request_id, "method": method}
        self.wire.send(message if params is None else {**message, "params": params})

    def heard(self) -> list[Any]:
        """All that the server says until nothing more happens."""
        messages = []
        for _ in range(12):
            self.loop.run_until_complete(asyncio.sleep(0))
            while not self.wire._inbox.empty():
                messages.append(self.wire._inbox.get_nowait())
                self.wire.check()
        return messages

    def expect(self, *expected: Any) -> list[Any]:
        """That exactly these come, in any order; gives them as they came."""
        messages = self.heard()
        got = Counter(map(told, messages))
        assert got == Counter(expected), f"expected {expected}, got {messages}"
        return messages

    def change(self, kind: str) -> None:
        self.names[kind] += 1
        name = f"n{self.names[kind]}"
        if kind == "tools":
            self.server.add_tool(_nothing, name=name)
        elif kind == "prompts":
            self.server.add_prompt(_nothing, name=name)
        else:
            self.server.add_text(f"test://new/{name}", "", name=name)

    def is_open(self, wished: Any) -> Any:
        """One of the open ids, chosen by a number; None if there is none."""
        return list(self.open)[wished % len(self.open)] if self.open else None

    @invariant()
    def both_sides_agree_on_what_is_open(self) -> None:
        held = [repr(one) for one in self.wire.connection.session.in_flight.by_id]
        assert sorted(held) == sorted(map(repr, self.open)), (held, self.open)

    def teardown(self) -> None:
        self.at_the_end()
        self.wire.connection.abort()
        self.loop.run_until_complete(asyncio.sleep(0))
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()

    def at_the_end(self) -> None:
        """What has to come when the server ends."""


def _nothing() -> str:
    """Nothing."""
    return ""


class Legacy(Machine):
    """A session of 2024-10-07 to 2025-11-25, and whatever comes before it is one."""

    questions = Bundle("questions")

    def __init__(self) -> None:
        super().__init__()
        self.version: str | None = None
        self.is_ready = False
        self.can_sample = False
        self.level = "info"
        self.watched: set[str] = set()
        self.asked: dict[int, Any] = {}
        """Questions of the server that are open -> the call they belong to."""

    @property
    def position(self) -> int:
        return VERSIONS.index(self.version) if self.version else -1

    def ok(self, request_id: Any, kind: str = "") -> tuple[str, str, str]:
        return ("result", repr(request_id), kind)

    def bad(self, request_id: Any, code: int) -> tuple[str, str, int]:
        return ("error", repr(request_id), code)

    # -- the handshake -----------------------------------------------------------------------

    @rule(wished=FRESH, version=st.sampled_from([*VERSIONS, "1999-01-01", "", 1]), can_sample=st.booleans())
    def initialize(self, wished: Any, version: Any, can_sample: bool) -> None:
        request_id = self.new_id(wished)
        params = {
            "protocolVersion": version,
            "capabilities": {"sampling": {}} if can_sample else {},
            "clientInfo": {"name": "m", "version": "1"},
        }
        self.request(request_id, "initialize", params)
        if self.version is not None:
            self.expect(self.bad(request_id, -32600))
            return
        (answer,) = self.expect(self.ok(request_id))
        self.version = version if version in LEGACY else NEWEST_LEGACY
        assert answer["result"]["protocolVersion"] == self.version
        self.can_sample = can_sample

    @rule()
    def initialized(self) -> None:
        self.wire.notify("notifications/initialized")
        self.is_ready = self.is_ready or self.version is not None
        self.expect()

    @rule(wished=FRESH)
    def ping(self, wished: Any) -> None:
        request_id = self.new_id(wished)
        self.request(request_id, "ping")
        (answer,) = self.expect(self.ok(request_id))
        assert answer["result"] == {}

    # -- calls -------------------------------------------------------------------------------

    @rule(wished=FRESH)
    def call(self, wished: Any) -> None:
        request_id = self.new_id(wished)
        self.request(request_id, "tools/call", {"name": "now"})
        self.expect(self.ok(request_id) if self.version else self.bad(request_id, -32602))

    @rule(wished=FRESH, token=st.none() | FRESH)
    def call_that_waits(self, wished: Any, token: Any) -> None:
        request_id = self.new_id(wished)
        self.count += 1
        params: dict[str, Any] = {"name": "wait", "arguments": {"name": f"w{self.count}"}}
        if token is not None:
            params["_meta"] = {"progressToken": token}
        self.request(request_id, "tools/call", params)
        if self.version is None:
            self.expect(self.bad(request_id, -32602))
            return
        self.open[request_id] = f"w{self.count}"
        self.expect(*([] if token is None else [("notifications/progress", 0.5, "None")]))

    @precondition(lambda self: self.open)
    @rule(number=st.integers(0, 100))
    def let_a_call_end(self, number: int) -> None:
        request_id = self.is_open(number)
        name = self.open[request_id]
        if name.startswith("w"):
            del self.open[request_id]
            self.events.pop(name).set()
            self.expect(self.ok(request_id))

    @precondition(lambda self: self.open)
    @rule(number=st.integers(0, 100), method=st.sampled_from(["tools/call", "ping", "no/such", "initialize"]))
    def use_an_id_twice(self, number: int, method: str) -> None:
        request_id = self.is_open(number)
        self.request(request_id, method, {"name": "now"})
        self.expect(self.bad(request_id, -32600))

    @precondition(lambda self: self.open)
    @rule(number=st.integers(0, 100))
    def cancel(self, number: int) -> None:
        request_id = self.is_open(number)
        self.wire.cancel(request_id)
        if self.position == 0:  # that version has no such notification
            self.expect()
            return
        name = self.open.pop(request_id)
        self.burned.add(repr(request_id))
        taken_back = [question for question, call in self.asked.items() if repr(call) == repr(request_id)]
        for question in taken_back:
            del self.asked[question]
        assert name.startswith("w") or taken_back
        self.expect(*[("notifications/cancelled", question, "None") for question in taken_back])

    @rule(request_id=FRESH | st.none() | st.floats() | st.just([]))
    def cancel_what_is_not_open(self, request_id: Any) -> None:
        if not any(repr(request_id) == repr(one) for one in self.open) and request_id != 2**53:
            self.wire.cancel(request_id) if _is_json(request_id) else None
            self.expect()

    # -- being asked -------------------------------------------------------------------------

    @rule(target=questions, wished=FRESH)
    def call_that_asks(self, wished: Any) -> Any:
        request_id = self.new_id(wished)
        self.request(request_id, "tools/call", {"name": "ask"})
        if self.version is None:
            self.expect(self.bad(request_id, -32602))
        elif not self.can_sample:
            self.expect(self.ok(request_id, "failed"))
        else:
            (question,) = self.expect(("sampling/createMessage", None, "None"))
            assert question["id"] not in self.asked
            self.asked[question["id"]] = request_id
            self.open[request_id] = "asks"
            return question["id"]
        return -1

    @rule(question=consumes(questions), kind=st.sampled_from(["right", "error", "unusable", "rubbish"]))
    def answer(self, question: int, kind: str) -> None:
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": question}
        if kind == "error":
            reply["error"] = {"code": -1, "message": "no"}
        else:
            reply["result"] = {"right": SAID, "unusable": {"role": "x"}, "rubbish": None}[kind]
        self.wire.send(reply)
        if question not in self.asked:
            self.expect()
            return
        call = self.asked.pop(question)
        del self.open[call]
        self.expect(self.ok(call, "" if kind == "right" else "failed"))

    @rule(request_id=st.sampled_from([999, "01", "x"]))
    def answer_what_nobody_asked(self, request_id: Any) -> None:
        self.wire.send({"jsonrpc": "2.0", "id": request_id, "result": SAID})
        self.expect()

    # -- what a session remembers ------------------------------------------------------------

    @rule(wished=FRESH, level=st.sampled_from([*LOG_LEVELS, "loud"]))
    def set_level(self, wished: Any, level: str) -> None:
        request_id = self.new_id(wished)
        self.request(request_id, "logging/setLevel", {"level": level})
        if self.version is None or level == "loud":
            self.expect(self.bad(request_id, -32602))
            return
        self.level = level
        self.expect(self.ok(request_id))

    @precondition(lambda self: self.version)
    @rule(wished=FRESH, level=st.sampled_from(LOG_LEVELS))
    def log(self, wished: Any, level: str) -> None:
        request_id = self.new_id(wished)
        self.request(request_id, "tools/call", {"name": "log", "arguments": {"level": level}})
        shown = level if self.position else FOUR[level]
        is_wanted = LOG_LEVELS.index(level) >= LOG_LEVELS.index(self.level)  # type: ignore[arg-type]
        self.expect(self.ok(request_id), *([("notifications/message", shown, "None")] if is_wanted else []))

    @precondition(lambda self: self.version)
    @rule(wished=FRESH, uri=st.sampled_from([*URIS, "test://nowhere"]), is_on=st.booleans())
    def watch(self, wished: Any, uri: str, is_on: bool) -> None:
        request_id = self.new_id(wished)
        self.request(request_id, "resources/subscribe" if is_on else "resources/unsubscribe", {"uri": uri})
        if is_on and uri == "test://nowhere":
            self.expect(self.bad(request_id, -32002))
            return
        (self.watched.add if is_on else self.watched.discard)(uri)
        self.expect(self.ok(request_id))

    @rule(uri=st.sampled_from(URIS), times=st.integers(1, 3))
    def a_resource_is_updated(self, uri: str, times: int) -> None:
        for _ in range(times):
            self.server.resource_updated(uri)
        is_told = self.is_ready and uri in self.watched
        self.expect(*([("notifications/resources/updated", uri, "None")] if is_told else []))

    @rule(kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=4))
    def lists_change(self, kinds: list[str]) -> None:
        for kind in kinds:
            self.change(kind)
        told = {(f"notifications/{kind}/list_changed", None, "None") for kind in kinds}
        self.expect(*(told if self.is_ready else ()))

    # -- whatever is wrong -------------------------------------------------------------------

    @rule(frame=st.sampled_from([b"{", b"\xff", b"nonsense", b"[" * 2000]))
    def no_json(self, frame: bytes) -> None:
        self.wire.send(frame)
        self.expect(self.bad(None, -32700))

    @rule(message=st.sampled_from([5, "ping", {}, {"id": 1}, {"jsonrpc": "2.0", "id": None, "method": "ping"}, []]))
    def no_message(self, message: Any) -> None:
        self.wire._send(json.dumps(message).encode())
        self.wire.talk._open.setdefault((int, 1), []).append(("", NEWEST_LEGACY, None)) if message == {
            "id": 1
        } else None
        request_id = 1 if message == {"id": 1} else None
        self.expect(self.bad(request_id, -32600))

    @rule(wished=FRESH)
    def no_such_method(self, wished: Any) -> None:
        request_id = self.new_id(wished)
        self.request(request_id, "no/such/method", {})
        self.expect(self.bad(request_id, -32601))
        self.wire.notify("no/such/notification", {})
        self.expect()

    @precondition(lambda self: self.version)
    @rule(wished=FRESH, method=st.sampled_from(["tools/list", "tools/call", "server/discover", "subscriptions/listen"]))
    def a_request_of_the_other_era(self, wished: Any, method: str) -> None:
        request_id = self.new_id(wished)
        params = {"_meta": envelope(), "name": "now", "notifications": {}}
        self.wire._send(json.dumps({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}).encode())
        self.wire.talk._open.setdefault((type(request_id), request_id), []).append(("", self.version or "", None))
        self.expect(self.bad(request_id, -32600))

    @invariant()
    def both_sides_agree_on_what_was_asked(self) -> None:
        outgoing = self.wire.connection._outgoing
        waiting = set() if outgoing is None else {request.id for request in outgoing.pending}
        assert waiting == self.asked.keys()

    def at_the_end(self) -> None:
        self.loop.run_until_complete(self.wire.connection.finish(0))
        expected = [self.bad(request_id, -32603) for request_id in self.open]
        if self.position > 0:
            expected += [("notifications/cancelled", question, "None") for question in self.asked]  # type: ignore[misc]
        self.open.clear()
        self.asked.clear()
        self.expect(*expected)


def _is_json(value: Any) -> bool:
    return value == value and value not in (float("inf"), float("-inf"))


class Modern(Machine):
    """A connection of 2026-07-28, where every request stands for itself."""

    states = Bundle("states")
    listeners = Bundle("listeners")

    def __init__(self) -> None:
        super().__init__()
        self.listening: dict[Any, dict[str, Any]] = {}

    def ok(self, request_id: Any, kind: str = "complete") -> tuple[str, str, str]:
        return ("result", repr(request_id), kind)

    def bad(self, request_id: Any, code: int) -> tuple[str, str, int]:
        return ("error", repr(request_id), code)

    def modern(self, request_id: Any, method: str, params: Any = None, meta: Any = None, **capabilities: Any) -> None:
        meta = {**envelope(capabilities=capabilities), **(meta or {})}
        self.request(request_id, method, {**(params or {}), "_meta": meta})

    @initialize()
    def begin(self) -> None:
        self.modern("begin", "tools/call", {"name": "now"})
        self.expect(self.ok("begin"))

    @rule(wished=FRESH, method=st.sampled_from(["server/discover", "tools/list", "prompts/list", "resources/list"]))
    def look(self, wished: Any, method: str) -> None:
        request_id = self.new_id(wished)
        self.modern(request_id, method)
        self.expect(self.ok(request_id))

    @rule(wished=FRESH, level=st.none() | st.sampled_from([*LOG_LEVELS, "loud"]), said=st.sampled_from(LOG_LEVELS))
    def call_with_a_log_level(self, wished: Any, level: str | None, said: str) -> None:
        request_id = self.new_id(wished)
        meta = {} if level is None else {f"{META}logLevel": level}
        self.modern(request_id, "tools/call", {"name": "log", "arguments": {"level": said}}, meta)
        if level == "loud":
            self.expect(self.bad(request_id, -32602))
            return
        is_wanted = level is not None and LOG_LEVELS.index(said) >= LOG_LEVELS.index(level)  # type: ignore[arg-type]
        self.expect(self.ok(request_id), *([("notifications/message", said, "None")] if is_wanted else []))

    @rule(wished=FRESH, token=st.none() | FRESH)
    def call_that_waits(self, wished: Any, token: Any) -> None:
        request_id = self.new_id(wished)
        self.count += 1
        meta = {} if token is None else {"progressToken": token}
        self.modern(request_id, "tools/call", {"name": "wait", "arguments": {"name": f"w{self.count}"}}, meta)
        self.open[request_id] = f"w{self.count}"
        self.expect(*([] if token is None else [("notifications/progress", 0.5, "None")]))

    @precondition(lambda self: self.open)
    @rule(number=st.integers(0, 100))
    def let_a_call_end(self, number: int) -> None:
        request_id = self.is_open(number)
        name = self.open[request_id]
        if name.startswith("w"):
            del self.open[request_id]
            self.events.pop(name).set()
            self.expect(self.ok(request_id))

    @precondition(lambda self: self.open)
    @rule(number=st.integers(0, 100))
    def cancel(self, number: int) -> None:
        request_id = self.is_open(number)
        self.wire.cancel(request_id)
        del self.open[request_id]
        self.listening.pop(request_id, None)
        self.burned.add(repr(request_id))
        self.expect()

    @precondition(lambda self: self.open)
    @rule(number=st.integers(0, 100))
    def use_an_id_twice(self, number: int) -> None:
        request_id = self.is_open(number)
        self.modern(request_id, "tools/list")
        self.expect(self.bad(request_id, -32600))

    # -- rounds ------------------------------------------------------------------------------

    @rule(target=states, wished=FRESH, capability=st.sampled_from([None, {}, {"form": {}}, {"url": {}}]))
    def call_that_asks(self, wished: Any, capability: Any) -> Any:
        request_id = self.new_id(wished)
        capabilities = {} if capability is None else {"elicitation": capability}
        self.modern(request_id, "tools/call", {"name": "confirm"}, **capabilities)
        if capability is None or capability == {"url": {}}:
            self.expect(self.bad(request_id, -32021))
            return "made up"
        (answer,) = self.expect(self.ok(request_id, "input_required"))
        return answer["result"]["requestState"]

    @rule(
        wished=FRESH,
        state=st.none() | states,
        response=st.sampled_from([None, "accept", "decline", "unusable"]),
        what=st.sampled_from(["", "else"]),
    )
    def call_again(self, wished: Any, state: Any, response: str | None, what: str) -> None:
        request_id = self.new_id(wished)
        params: dict[str, Any] = {"name": "confirm", "arguments": {"what": what} if what else {}}
        if state is not None:
            params["requestState"] = state
        if response is not None:
            content = {"content": {"ok": True}} if response == "accept" else {}
            params["inputResponses"] = {"yes": {"action": response, **content}}
        self.modern(request_id, "tools/call", params, elicitation={})
        if state is not None and (state == "made up" or what):
            self.expect(self.bad(request_id, -32602))
        elif response is None:
            self.expect(self.ok(request_id, "input_required"))
        elif response == "unusable":
            self.expect(self.bad(request_id, -32602))
        else:
            self.expect(self.ok(request_id, "complete" if response == "accept" else "failed"))

    # -- subscriptions -----------------------------------------------------------------------

    @rule(wished=FRESH, lists=st.sets(st.sampled_from(KINDS)), uris=st.sets(st.sampled_from(URIS)))
    def listen(self, wished: Any, lists: set[str], uris: set[str]) -> None:
        request_id = self.new_id(wished)
        wanted: dict[str, Any] = {f"{kind}ListChanged": True for kind in lists}
        if uris:
            wanted["resourceSubscriptions"] = sorted(uris)
        self.modern(request_id, "subscriptions/listen", {"notifications": wanted})
        (answer,) = self.expect(("notifications/subscriptions/acknowledged", None, repr(request_id)))
        assert answer["params"]["notifications"] == wanted
        self.open[request_id] = "listens"
        self.listening[request_id] = {"lists": lists, "uris": uris}

    @rule(kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=4))
    def lists_change(self, kinds: list[str]) -> None:
        for kind in kinds:
            self.change(kind)
        self.expect(
            *(
                (f"notifications/{kind}/list_changed", None, repr(request_id))
                for request_id, wanted in self.listening.items()
                for kind in set(kinds) & wanted["lists"]
            )
        )

    @rule(uri=st.sampled_from(URIS), times=st.integers(1, 3))
    def a_resource_is_updated(self, uri: str, times: int) -> None:
        for _ in range(times):
            self.server.resource_updated(uri)
        self.expect(
            *(
                ("notifications/resources/updated", uri, repr(request_id))
                for request_id, wanted in self.listening.items()
                if uri in wanted["uris"]
            )
        )

    # -- whatever is wrong -------------------------------------------------------------------

    @rule(wished=FRESH, missing=st.sampled_from(["protocolVersion", "clientCapabilities"]))
    def an_envelope_with_something_missing(self, wished: Any, missing: str) -> None:
        request_id = self.new_id(wished)
        meta = {key: value for key, value in envelope().items() if not key.endswith(missing)}
        self.request(request_id, "tools/list", {"_meta": meta})
        self.expect(self.bad(request_id, -32602))

    @rule(wished=FRESH, version=st.sampled_from([*LEGACY, "x"]))
    def a_version_that_is_not_served_so(self, wished: Any, version: str) -> None:
        request_id = self.new_id(wished)
        self.request(request_id, "tools/list", {"_meta": envelope(version)})
        self.expect(self.bad(request_id, -32022))

    @rule(wished=FRESH, method=st.sampled_from(["initialize", "ping", "logging/setLevel", "resources/subscribe", "x"]))
    def a_method_that_is_gone(self, wished: Any, method: str) -> None:
        request_id = self.new_id(wished)
        self.modern(request_id, method)
        self.expect(self.bad(request_id, -32601))

    @rule(wished=FRESH)
    def a_handshake(self, wished: Any) -> None:
        request_id = self.new_id(wished)
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "m", "version": "1"}}
        self.request(request_id, "initialize", params)
        self.expect(self.bad(request_id, -32022))

    @rule(frame=st.sampled_from([b"{", b"[]", b"5", b'{"jsonrpc":"2.0","id":null,"method":"x"}']))
    def rubbish(self, frame: bytes) -> None:
        self.wire._send(frame)
        self.expect(self.bad(None, -32700 if frame == b"{" else -32600))

    @rule(message=st.sampled_from(["notifications/initialized", "notifications/roots/list_changed", "x"]))
    def a_notification_that_means_nothing(self, message: str) -> None:
        self.wire.notify(message)
        self.expect()

    def at_the_end(self) -> None:
        self.loop.run_until_complete(self.wire.connection.finish(0))
        expected: list[Any] = []
        for request_id, kind in self.open.items():
            if kind == "listens":
                expected.append(("result", repr(request_id), "complete"))
                detail = request_id or None  # an id of 0 or "" is no detail
                expected.append(("notifications/cancelled", detail, "None"))
            else:
                expected.append(self.bad(request_id, -32603))
        self.open.clear()
        self.expect(*expected)


TestLegacy = Legacy.TestCase
TestModern = Modern.TestCase
TestLegacy.settings = TestModern.settings = settings(max_examples=40, stateful_step_count=30)
