"""Requests of clients, passed on to a mounted server and answered by it: `forward`.

Both sides may be of either era, so there are four ways for a question of the mounted server to reach its client:

    client    mounted server   way
    modern    modern           Its result asks. Its state is sealed into ours; the client's retry brings it back.
    legacy    modern           Its result asks. Each question becomes a request to the client, in the same call.
    legacy    legacy           Its request becomes a request to the client.
    modern    legacy           Its request waits while a result asks the client: see `parking`.

Stamped anew in `_meta`: version, client, progress token and log level. Everything else passes in both directions.
Spec: 2026-07-28 basic/patterns/mrtr, basic/index; 2025-11-25 client/*, basic/utilities/*.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from msgspec import Raw, Struct, ValidationError
from msgspec.json import Decoder, decode

from mcpd.client.callbacks import MAX_ROUNDS, Callbacks, read_input_required
from mcpd.client.limits import ClientLimits
from mcpd.errors import (
    InternalError,
    InvalidParams,
    LocalProtocolError,
    McpdError,
    MethodNotFound,
    MissingCapability,
    ProtocolError,
    RemoteError,
    RequestTimeout,
    ToolError,
)
from mcpd.protocol.envelope import NAMES, SUBSCRIPTION_ID, Envelope, written_identity
from mcpd.protocol.jsonrpc import MALFORMED, encode
from mcpd.protocol.methods import SUBJECTS
from mcpd.protocol.printable import printable
from mcpd.protocol.types.base import LOG_LEVELS, NO_JSON, LogMessageParams, ProgressParams, RawResult, Result
from mcpd.protocol.types.features import Tool
from mcpd.protocol.types.tasks import TASKS
from mcpd.protocol.versions import table
from mcpd.server.context.asking import binding_of
from mcpd.server.context.questions import is_offered
from mcpd.server.extensions.ui.constants import MIME_TYPE, UI
from mcpd.server.registry.tools import failed
from .carried import Watches, for_host_contents, for_model, with_own_id, with_tag
from .parking import Flight, Moved, TaskFlight, opened_state, parking_of
from .settings import HOPS, MOST_HOPS
from .shapes import UpstreamError, must_visit, needs_of, read_members, shaped_error, shaped_question, shaped_result
from .upstream import PATIENCE_SECONDS, Connection, Occupied, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from mcpd.client.connection import ClientConnection
    from mcpd.client.session import ClientRequest, OnProgress, ServerRequest
    from mcpd.protocol.session import Call
    from mcpd.protocol.versions.table import Version
    from mcpd.server.context.exchange import Exchange
    from mcpd.server.context.peer import Peer

log = logging.getLogger("mcpd.mounts")

_MOST_ENVELOPES = 64

# The members of a request's `_meta` that each connection sets itself.
_STAMPED = frozenset((*NAMES.values(), HOPS))
# The members of a request for a resource whose result depends on nothing else.
_OF_READS = {"uri", "_meta"}

_read = Decoder().decode
_read_tool = Decoder(Tool).decode


async def forward(connection: Connection, method: str, params: Mapping[str, Any] | Raw, exchange: Exchange) -> Result:
    """Send a request to a mounted server, and return its result in the shape of the client's version.

    `params` have the names and URIs of that server. Raises ProtocolError for its errors, RequestTimeout, and the errors
    of a lost connection.
    """
    relay = relay_of(connection)
    has_tasks = relay.version.is_modern and (method == "tools/call" or method.startswith("tasks/"))
    if has_tasks and method != "tools/call":
        params = with_own_id(dict(read_members(params) if isinstance(params, Raw) else params), relay.name, exchange)
    try:
        raw = await relay.ask(method, params, exchange)
    except Unavailable:
        raise
    except ToolError as error:
        if method != "tools/call":
            raise InternalError(str(error)) from None
        return failed(str(error))

    if has_tasks:
        raw = with_tag(raw, relay.name, exchange)
    elif method == "resources/read":
        raw = for_host_contents(raw, relay.settings.csp)

    if method in ("tools/call", "tasks/get") and not connection.upstream.admits_apps(exchange.client):
        raw = for_model(raw, partial(relay.has_schema, params)) if method == "tools/call" else for_model(raw)
    return shaped_result(raw, method, exchange.call, relay.version, relay.prefix)


def relay_of(connection: Connection) -> Relay:
    """Return the relay of a connection to a mounted server."""
    carrier = connection.client
    relay = _relays.get(carrier)
    if relay is None:
        relay = _relays[carrier] = Relay(connection, carrier)
    return relay


class Relay:
    """One connection to a mounted server, and the requests that it answers."""

    def __init__(self, connection: Connection, carrier: ClientConnection) -> None:
        version = carrier.session.version
        assert version is not None
        self.connection = connection
        self.name = connection.upstream.name
        self.settings = connection.settings
        self.prefix = connection.prefix
        self.version = version
        self.carrier = carrier
        self.flights: dict[object, Flight] = {}
        # The connection of the last client, for messages that belong to no request.
        self.last_peer: Peer | None = None
        self._parking = parking_of(connection.upstream)
        self._envelopes: dict[tuple[object, ...], Envelope] = {}
        self._level: str | None = None
        # Clients that cannot be told apart share this connection, and the server's questions share one stream.
        is_anonymous = isinstance(connection.key, tuple) and connection.key[:2] == ("principal", "")
        self._is_mixed = is_anonymous and carrier.channel.is_multiplexed
        self._listed: object = None
        self._required: set[str] = set()
        self._is_taken = False
        self._waiters: deque[asyncio.Future[None]] = deque()
        self.watches = Watches(connection.era, self.settings.timeout or None, connection.upstream.reads.changed)
        self.on_lost: Callable[[], object] | None = None
        """Called when the connection has ended."""
        self._pauses: set[asyncio.Task[None]] = set()

        carrier.on_request = self._answer
        carrier.longest = math.inf  # progress may extend a call for days
        self._chain(carrier)

    def _chain(self, carrier: ClientConnection) -> None:
        earlier = carrier.on_notification

        def received(method: str, params: Raw) -> None:
            self.notified(method, params)
            if earlier is not None:
                earlier(method, params)

        carrier.on_notification = received
        was_lost = carrier.on_lost

        def lost(error: McpdError) -> None:
            if was_lost is not None:
                was_lost(error)
            if self.on_lost is not None:
                self.on_lost()

        carrier.on_lost = lost

    # ------------------------------------------------------------------------------ from the client

    async def ask(self, method: str, params: Mapping[str, Any] | Raw, exchange: Exchange) -> Raw:
        """Send a request, let the client answer the server's questions, and return the final result, or the result
        that asks the client.
        """
        call = exchange.call
        members = self._members(params, call)
        if self.version.is_modern:
            return await self._run_rounds(method, members, exchange)
        await self._set_level(call)
        if call.version.is_modern and method in SUBJECTS and self.may_ask(call):
            has_tasks = TASKS in (call.client.capabilities.extensions or {})
            if self.settings.task and has_tasks and exchange.task is not None:
                return await self.send_alone(method, members, TaskFlight(exchange))
            return await self._parking.run(self, method, members, exchange)

        return await self.send(method, members, Flight(exchange))

    def _members(self, params: Mapping[str, Any] | Raw, call: Call) -> dict[str, Any]:
        # Return the params for the mounted server: `_meta` without what belongs to the connection of the client.
        members = dict(read_members(params) if isinstance(params, Raw) else params)
        meta: Any = members.pop("_meta", None)
        members.pop("requestState", None)
        members.pop("inputResponses", None)
        if call.meta is not None and meta is None:
            try:
                meta = read_members(call.raw).get("_meta")
            except MALFORMED:
                meta = None

        kept: dict[str, Any] = {}
        hops: Any = 0
        if meta is not None:
            given: dict[str, Any] = dict(read_members(meta))
            kept = {name: value for name, value in given.items() if name not in _STAMPED}
            hops = _read(given.get(HOPS, b"0"))

        if not isinstance(hops, int) or hops >= MOST_HOPS:
            raise InternalError(f"The request has passed {MOST_HOPS} mounts: they go in a circle")
        members["_meta"] = {**kept, HOPS: hops + 1}
        return members

    def may_ask(self, call: Call) -> bool:
        """Whether the mounted server may ask the client of a call something."""
        offered = call.client.capabilities
        asks = offered.elicitation is not None or offered.sampling is not None or offered.roots is not None
        return asks and self.settings.questions == "ask"

    async def send_alone(self, method: str, members: dict[str, Any], flight: Flight) -> Raw:
        """Like `send`, but one call at a time if it is unknown which call a question of the server belongs to."""
        if not self._is_mixed:
            return await self.send(method, members, flight)
        while self._is_taken:
            loop = asyncio.get_running_loop()
            if self.connection.is_occupied(loop.time()):
                raise Occupied
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiters.append(waiter)
            timer = loop.call_later(PATIENCE_SECONDS, _wake, waiter)
            try:
                await waiter
            finally:
                timer.cancel()

        self._is_taken = True
        try:
            return await self.send(method, members, flight)
        finally:
            self._is_taken = False
            self._wake_next()

    def _wake_next(self) -> None:
        while self._waiters and not _wake(self._waiters.popleft()):
            pass

    def park(self) -> None:
        """Keep the instance for a call whose client has to answer."""
        self.connection.parked += 1
        self.connection.parked_at = asyncio.get_running_loop().time()

    def unpark(self) -> None:
        """The client of a call has answered, or will not."""
        self.connection.parked -= 1

    def release(self) -> None:
        """A call that was parked has ended."""
        self.connection.upstream.release(self.connection)

    async def send(self, method: str, members: dict[str, Any], flight: Flight) -> Raw:
        """Send a request once, and return its result. Raises the error of the server in the client's version."""
        exchange, carrier = flight.exchange, self.carrier
        call = exchange.call
        if method == "tools/call" and "task" not in members and self._needs_task(members.get("name")):
            return await self._run_task(members, flight)
        envelope = self.envelope(call) if self.version.is_modern else None
        request = carrier.begin(method, members, self._progress(flight), envelope)
        self.flights[request.id] = flight
        if not call.version.is_modern and call.session.opening.subscribes:
            self.last_peer = exchange.peer
        try:
            return await carrier.answer(request, self.settings.timeout or None)
        except RemoteError as error:
            raise self._error(error, method, exchange) from None
        finally:
            del self.flights[request.id]

    def has_schema(self, params: Mapping[str, Any] | Raw) -> bool:
        """Whether the tool of a call declares its structured content."""
        name = _read(encode((read_members(params) if isinstance(params, Raw) else params).get("name")))
        listed = self.connection.upstream.lists.get("tools/list")
        tools = [] if listed is None else [_read_tool(raw) for raw in listed.entries if b'"outputSchema"' in bytes(raw)]
        return any(tool.name == name and tool.output_schema is not None for tool in tools)

    def _needs_task(self, name: Any) -> bool:
        # Whether a tool of a legacy server runs as a task only.
        listed = self.connection.upstream.lists.get("tools/list")
        if self.version.is_modern or listed is None:
            return False
        if listed is not self._listed:
            self._listed, self._required = listed, set()
            for entry in listed.entries:
                if b'"required"' in bytes(entry) and (tool := _read_tool(entry)).execution is not None:
                    self._required |= {tool.name} if tool.execution.task_support == "required" else set()
        return bool(self._required) and (_read(name) if isinstance(name, Raw) else name) in self._required

    async def _run_task(self, members: dict[str, Any], flight: Flight) -> Raw:
        # Run a tool as a task of its server, and return the result. Spec: 2025-11-25 basic/utilities/tasks.
        from mcpd.client.tasks import Tasks  # few servers have any

        era: Any = self.connection.era
        timeout = self.settings.timeout or None
        self.flights[flight] = flight
        try:
            raw, on_status = await era.start_task(members, timeout, self._progress(flight))
            tasks = Tasks(self.carrier.request, lambda: era, Callbacks(), ClientLimits(), self.carrier.session.faults)
            return await tasks.finish(raw, on_status)
        except RemoteError as error:
            raise self._error(error, "tools/call", flight.exchange) from None
        finally:
            del self.flights[flight]

    def _error(self, error: RemoteError, method: str, exchange: Exchange) -> McpdError:
        if (visit := must_visit(error, exchange.call)) is not None:
            return visit
        uri = getattr(exchange.call.params, "uri", "")
        return shaped_error(error, method, uri, exchange.call, self.version)

    def envelope(self, call: Call) -> Envelope:
        """Return the description of the client, cut to what can be passed on."""
        client = call.client
        # Only the envelope of a modern client has members that are unknown here.
        stated = written_identity(call.meta) if call.version.is_modern and call.meta is not None else None
        key = (stated or client, call.log_level)
        found = self._envelopes.get(key)
        if found is not None:
            return found

        shape = table.get(self.version.name).shape
        raw = stated[0] if stated is not None else encode(shape(client.capabilities))
        written: dict[str, Any] = dict(read_members(raw))
        if self.settings.questions == "refuse":
            for name in ("elicitation", "sampling", "roots"):
                written.pop(name, None)
        if self.settings.roots is not None:
            written["roots"] = {}
        extensions = _read(encode(written.get("extensions", {})))
        # An unknown extension may have URIs, names or ids, which a prefix would break.
        carried = {
            name: given
            for name, given in extensions.items()
            if (name in CARRIED or not self.prefix.is_used) and (stated is not None or name != TASKS)
        }
        # Lists were fetched with it, and a result must fit the schema in the list.
        carried.setdefault(UI, {"mimeTypes": [MIME_TYPE]})
        written["extensions"] = carried
        info = client.info or self.carrier.session.info
        found = Envelope(self.version.name, info, written)
        if call.log_level is not None and (stated is not None or call.log_level != "info"):
            found.set_log_level(call.log_level)
        if len(self._envelopes) >= _MOST_ENVELOPES:
            self._envelopes.clear()
        self._envelopes[key] = found
        return found

    async def _set_level(self, call: Call) -> None:
        # Ask a legacy server for the log messages that any client on this connection has asked for.
        level = call.log_level
        if level is None or self.carrier.session.server_capabilities.logging is None:
            return
        is_asked = call.version.is_modern or level != "info" or self._level is not None
        if not is_asked or (self._level is not None and _severity(level) >= _severity(self._level)):
            return
        self._level = level
        try:
            await self.carrier.request("logging/setLevel", {"level": level}, timeout=self.settings.timeout or None)
        except (RemoteError, RequestTimeout) as error:
            log.debug("mount %s does not set the log level: %s", self.name, printable(error))

    # ---------------------------------------------------------------------------- the modern server

    async def _run_rounds(self, method: str, members: dict[str, Any], exchange: Exchange) -> Raw:
        # The server asks by its result, which a modern client gets as its own. Older clients are asked here.
        has_rounds = exchange.call.version.is_modern
        if has_rounds:
            self._continue(members, exchange)
        reads, clock = self.connection.upstream.reads, asyncio.get_running_loop().time
        # Spec: 2026-07-28 server/utilities/caching: the result of a retry "MUST NOT be cached".
        is_plain = method == "resources/read" and members.keys() == _OF_READS
        uri, changes = str(_read(encode(members["uri"]))) if is_plain else "", reads.changes
        if is_plain and (kept := reads.get(uri, clock())) is not None:
            return kept
        for number in range(MAX_ROUNDS):
            raw = await self.send(method, members, Flight(exchange))
            asked = read_input_required(raw, method) if b"_required" in bytes(raw) else None
            if asked is None or asked.result_type != "input_required":
                # What was read while resources changed may be stale.
                if is_plain and number == 0 and changes == reads.changes:
                    reads.put(uri, raw, clock())
                return raw
            questions = dict(asked.input_requests or {})
            answers = self._own_answers(questions)
            for question in questions.values():
                self._check_offered(exchange.call, question.method, question.params)
            if has_rounds and (questions or not answers):
                return self._asking(raw, questions, asked.request_state, answers, exchange)
            for key, question in questions.items():
                try:
                    answers[key] = await self.ask_client(exchange, question.method, question.params)
                except ProtocolError as error:
                    raise ToolError(f"The client did not answer {question.method}: {error.message}") from None
            members.pop("requestState", None)
            if answers:
                members["inputResponses"] = answers
            else:
                await asyncio.sleep(min(0.05 * 2**number, 2.0))
            if asked.request_state is not None:
                members["requestState"] = asked.request_state

        raise ToolError(f'mount "{self.name}" asked for input {MAX_ROUNDS} times')

    def _continue(self, members: dict[str, Any], exchange: Exchange) -> None:
        # Add the client's answers, and the state of the server from inside ours.
        kept = opened_state(self, exchange)
        params = exchange.call.params
        answered, given = kept.get("answers") or {}, getattr(params, "input_responses", NO_JSON)
        if "state" in kept:
            members["requestState"] = kept["state"]
        if given is not NO_JSON and bytes(given) != b"null":
            members["inputResponses"] = Raw(given) if not answered else {**read_members(given), **answered}
        elif answered:
            members["inputResponses"] = answered

    def _asking(
        self, raw: Raw, questions: Mapping[str, Any], state: str | None, own: Mapping[str, Any], exchange: Exchange
    ) -> Raw:
        # Return the result that asks the client, with the server's state inside ours.
        result: dict[str, Any] = dict(read_members(raw))
        if own:
            result["inputRequests"] = questions
        if own or state is not None:
            result["requestState"] = self.seal(exchange, {"state": state, "answers": own or None})
        return Raw(encode(result))

    def seal(self, exchange: Exchange, kept: Mapping[str, Any]) -> str:
        """Return a state that opens for the same request of the same caller only."""
        content = {"mount": self.name, **{name: value for name, value in kept.items() if value is not None}}
        return exchange.peer.state_codec.seal(binding_of(exchange.call), {}, content)

    def _own_answers(self, questions: dict[str, Any]) -> dict[str, Any]:
        # Take the questions that the settings of the mount answer.
        if self.settings.roots is None:
            return {}
        own = [key for key, question in questions.items() if question.method == "roots/list"]
        return {key: self.roots() for key in own if questions.pop(key)}

    def roots(self) -> dict[str, Any]:
        """Return the folders of the settings, as a client's answer."""
        from pathlib import Path

        folders = [Path(folder).expanduser().resolve() for folder in self.settings.roots or ()]
        return {"roots": [{"uri": folder.as_uri(), "name": folder.name} for folder in folders]}

    def _check_offered(self, call: Call, method: str, params: Raw) -> None:
        # Raise an error for a question that the client has not offered to answer.
        try:
            needs = needs_of(method, _read(params))
        except (AttributeError, *MALFORMED):
            needs = {}
        if not is_offered(needs, call.client.capabilities):
            text = f'mount "{self.name}" asks for {method}, which this client does not offer'
            raise MissingCapability(needs, text) if call.version.is_modern else ToolError(text)

    # ---------------------------------------------------------------------------- the legacy server

    async def _answer(self, asked: ServerRequest, carried: ClientRequest | None) -> Any:
        # Answer a request of the server: by the client whose call may have caused it.
        method = asked.method
        if method == "roots/list" and self.settings.roots is not None:
            return self.roots()
        try:
            needs = needs_of(method, _read(asked.params))
        except (AttributeError, *MALFORMED):
            raise InvalidParams(f"{method}: the params cannot be read") from None

        while True:
            flights = self._flights_of(carried)
            offering = [flight for flight in flights if is_offered(needs, flight.call.client.capabilities)]
            chosen = next((flight for flight in reversed(offering) if flight.is_waiting), None)
            chosen = chosen or (offering[-1] if offering else None)
            if chosen is None or (self.settings.questions == "refuse" and chosen.call.version.is_modern):
                if flights and method == "elicitation/create":
                    return {"action": "decline"}
                raise MethodNotFound(f"No client that is being served offers {method}")
            try:
                return await chosen.ask(self, asked)
            except Moved:
                carried = None
            except ProtocolError:
                raise
            except McpdError as error:
                raise InternalError(f"The client cannot be asked: {error}") from None

    async def ask_client(self, exchange: Exchange, method: str, params: Raw) -> Raw:
        """Ask the client of a session a question. Raises ProtocolError with its error."""
        call = exchange.call
        try:
            shaped = shaped_question(method, params, call.version, self.version)
            return await exchange.peer.request(method, shaped, call, None)
        except RemoteError as error:
            raise UpstreamError(error.code, error.message, error.data) from None
        except (LocalProtocolError, ValidationError) as error:
            raise InternalError(f"The question cannot be asked in {call.version.name}: {error}") from None

    def _flights_of(self, carried: ClientRequest | None) -> list[Flight]:
        # Return the requests that a message of the server may belong to.
        flight = None if carried is None else self.flights.get(carried.id)
        return list(self.flights.values()) if flight is None else [flight]

    def notified(self, method: str, params: Raw) -> None:
        """Pass a notification of the server on to the client it belongs to."""
        if method == "notifications/resources/updated":
            self.watches.updated(params)
        is_other = not self.prefix.is_used and not table.is_known_notification(method)
        if not is_other and method not in ("notifications/message", "notifications/elicitation/complete"):
            return
        carried = self.carrier.carried_request()
        flights = self._flights_of(carried)
        waiting = next((flight for flight in reversed(flights) if flight.is_waiting), None)
        if is_other and waiting is not None:
            self._notify(waiting.peer, method, params, waiting.call)
        elif is_other or method == "notifications/elicitation/complete":
            peer = self.last_peer if waiting is None else waiting.peer
            if peer is not None:
                self._notify(peer, method, params, None)
        elif waiting is not None:
            if _is_wanted(params, waiting.call.log_level):
                self._notify(waiting.peer, method, _log_params(params, waiting.call.version), waiting.call)
        elif self.last_peer is not None:
            session = getattr(self.last_peer, "session", None)
            if session is not None and _is_wanted(params, session.log_level):
                self._notify(self.last_peer, method, params, None)

    def task_changed(self, exchange: Exchange, method: str, params: Raw) -> None:
        """Pass a notification about a task on to the client that listens to it."""
        if method != "notifications/tasks":
            return
        try:
            tagged = with_tag(params, self.name, exchange)
            if not self.connection.upstream.admits_apps(exchange.client):
                tagged = for_model(tagged)
            shaped = shaped_result(tagged, "tasks/get", exchange.call, self.version, self.prefix)
            assert isinstance(shaped, RawResult)
            members: dict[str, Any] = dict(read_members(shaped.raw))
        except (ProtocolError, *MALFORMED) as error:
            log.warning("mount %s: a notification about a task is left out: %s", self.name, printable(error))
            return

        members["_meta"] = {**_read(members.get("_meta", b"{}")), SUBSCRIPTION_ID: exchange.call.id}
        self._notify(exchange.peer, method, Raw(encode(members)), exchange.call)

    def _progress(self, flight: Flight) -> OnProgress | None:
        meta = flight.call.meta
        if meta is None or meta.progress_token is None:
            return None

        def report(progress: float, total: float | None, message: str | None) -> None:
            call = flight.call
            token = None if call.meta is None else call.meta.progress_token
            params = ProgressParams(progress_token=token or 0, progress=progress, total=total, message=message)
            if not call.is_open:
                flight.late_progress = params
            elif token is not None:
                self._notify(flight.peer, "notifications/progress", params, call)

        return report

    def _notify(self, peer: Peer, method: str, params: Any, call: Call | None) -> None:
        # While the client does not read, notifications of the server are dropped: they cannot wait without limit.
        if peer.channel.is_congested and self._pauses:
            return
        pause = peer.notify_nowait(method, params, call)
        if pause is not None:
            task = asyncio.get_running_loop().create_task(_drained(pause))
            self._pauses.add(task)
            task.add_done_callback(self._pauses.discard)


CARRIED = frozenset((TASKS, "io.modelcontextprotocol/ui", "io.modelcontextprotocol/skills"))
"""The extensions that are passed on through any number of mounts."""

_relays: WeakKeyDictionary[Any, Relay] = WeakKeyDictionary()


def _wake(waiter: asyncio.Future[None]) -> bool:
    # Return whether a call waited.
    if waiter.done():
        return False
    waiter.set_result(None)
    return True


async def _drained(pause: Coroutine[Any, Any, None]) -> None:
    try:
        await pause
    except McpdError:
        pass  # the client has left


class _Leveled(Struct):
    level: str = ""


_read_level = Decoder(_Leveled).decode


def _log_params(params: Raw, version: Version) -> Any:
    # The oldest version has fewer levels.
    return decode(params, type=LogMessageParams) if version.name == table.LEGACY[0] else params


def _severity(level: str) -> int:
    return LOG_LEVELS.index(level) if level in LOG_LEVELS else 0


def _is_wanted(params: Raw, level: str | None) -> bool:
    if level is None:
        return False
    try:
        return _severity(_read_level(params).level) >= _severity(level)
    except MALFORMED:
        return False
