"""Event types as authors declare them: the function that decides per subscriber, its schemas and its hooks."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime
from itertools import product
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Raw, Struct, ValidationError
from msgspec.json import Decoder, decode, encode
from msgspec.structs import asdict

from mcpd.errors import InvalidParams, RegistrationError
from mcpd.protocol.jsonrpc import MALFORMED, explain, is_object, read_object
from mcpd.protocol.principal import ANONYMOUS, Principal
from mcpd.protocol.types.base import Meta
from mcpd.protocol.types.events import EventType
from mcpd.server.context.exchange import finished
from mcpd.server.functions.annotations import is_coroutine_function
from mcpd.server.functions.hints import readable_output
from mcpd.server.functions.results import dec_hook, output_hook
from mcpd.server.functions.schema import output_schema, plain
from mcpd.server.functions.signature import Callee, bind
from mcpd.server.functions.threads import run_in_thread
from mcpd.server.registry.content import encode_data
from mcpd.server.registry.entries import ActiveExtensions, Entry
from .settings import MODES, Events
from .wire import Event

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

MOST_BYTES = 256 * 1024
# What a webhook's body has beside the data, the name and the id.
_ENVELOPE = 512
_MOST_ARGUMENTS = 16 * 1024
_MOST_DEPTH = 16
_MOST_NAME = 128


class EventContext(Struct, frozen=True, kw_only=True):
    """Who subscribes to events: the parameter that is annotated with this class receives it."""

    principal: Principal = ANONYMOUS
    """The user; ANONYMOUS where nobody has to log in, as on stdio."""
    arguments: Mapping[str, Any] = {}
    """The arguments of the subscription."""
    mode: str = ""
    """How the events are delivered: "poll", "push" or "webhook"."""
    subscription: str = ""
    """The id of a webhook subscription."""

    @property
    def scopes(self) -> frozenset[str]:
        """The scopes of the user's token."""
        return self.principal.scopes

    @property
    def claims(self) -> Mapping[str, object]:
        """Everything else that the user's token says."""
        return self.principal.claims


class Found(Struct, Generic[T], frozen=True):
    """One event that a source has found. Without an `id` the event is known by its payload."""

    payload: T
    id: str | None = None
    timestamp: str | float | datetime | None = None
    cursor: str | None = None
    """Where to go on after this event; None if only the batch has a cursor."""


class Batch(Struct, Generic[T], kw_only=True):
    """What a source has found after a cursor: payloads, or `Found` with the id and time of each."""

    events: list[Any] = []
    cursor: str | None = None
    """Where the next check goes on; None if the source cannot go back."""
    has_more: bool = False
    """Whether there are more events now."""
    truncated: bool = False
    """Whether events after the given cursor are lost."""


class _Caller(Struct):
    # What is kept of a principal with a subscription.
    subject: str
    issuer: str = ""
    client: str = ""
    scopes: list[str] = []
    claims: dict[str, Any] = {}


def claims_of(principal: Principal) -> bytes:
    """Return a principal as JSON, to be kept with a subscription."""
    claims = {name: value for name, value in principal.claims.items() if _is_plain(value)}
    return encode(_Caller(principal.subject, principal.issuer, principal.client, sorted(principal.scopes), claims))


def principal_of(claims: bytes) -> Principal:
    """Return the principal of `claims_of`."""
    if not claims:
        return ANONYMOUS
    kept = decode(claims, type=_Caller)
    return Principal(kept.subject, issuer=kept.issuer, client=kept.client, scopes=kept.scopes, claims=kept.claims)


def _is_plain(value: object) -> bool:
    try:
        encode(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


class Emitter(Protocol):
    """Where events of a type go."""

    settings: Events

    def emit(
        self,
        kind: EventKind,
        payload: Any,
        id: str | None = None,
        timestamp: str | float | datetime | None = None,
        to: Principal | str | None = None,
        subscription: str | None = None,
    ) -> str:
        """Check an event and hand it on. Returns its id."""


class Subscriber(Struct, eq=False):
    """One who gets events of a type: a stream, a poll or a webhook subscription."""

    kind: EventKind
    context: EventContext
    values: dict[str, Any]
    """The arguments of the type's function, with the context if it takes one."""
    to: tuple[str, str] = ("", "")

    def gets(self, event: Event) -> bool:
        """Whether an event is for this subscriber, or for everybody."""
        return (not event.to or event.to in self.to) and (
            not event.subscription or event.subscription == self.context.subscription
        )

    def fit(self, event: Event, payload: Any) -> bytes | None:
        """Return the data of an event for this subscriber; None if it gets none. Raises what the function raises."""
        if not self.gets(event):
            return None
        decide = self.kind.decide
        if decide is None:
            return event.data
        answer = decide(payload, **self.values)
        if answer is True:
            return event.data
        if answer is False or answer is None:
            return None
        return self.kind.written(answer)[0]


class EventKind(Entry):
    """One type of event, as `@server.event` returns it. Calling it calls the function."""

    is_source = False

    def __init__(
        self,
        name: str,
        function: Callable[..., Any] | None,
        *,
        payload: Any = dict[str, Any],
        delivery: Collection[str] = (),
        on: str | Collection[str] = (),
        visible: Callable[[EventContext], Any] | None = None,
        description: str | None = None,
        replay: bool = True,
        channel: bool | Callable[[Any], str] = False,
        private: bool = False,
        meta: Meta = None,
        schemas: tuple[Any, Any] | None = None,
    ) -> None:
        where = f"event {name!r}"
        check_name(name)
        self.key = self.name = name
        self.function = function
        self.hub: Emitter | None = None
        self.modes = tuple(delivery)
        self.on = (on,) if isinstance(on, str) else tuple(on)
        self.shows = visible
        self.replay = replay
        self.channel = channel
        self.private = private
        self.hooks: dict[str, Callable[..., Any]] = {}
        self._schemas = schemas
        if any(mode not in MODES for mode in self.modes):
            raise RegistrationError(f"{where}, delivery: expected some of {', '.join(MODES)}, not {delivery!r}")

        read = None if payload is None else readable_output(payload)
        if read is None:
            raise RegistrationError(f"{where}, payload: {payload!r} is not a type of JSON objects")
        self._decode = Decoder(read, dec_hook=output_hook).decode
        self.callee: Callee | None = None
        self.decide: Callable[..., Any] | None = None
        self._read: Callable[[bytes | Raw], Struct] | None = None
        if function is not None:
            self.callee = callee = bind(_without_first(function, where), context_type=lambda: EventContext)
            self._read = Decoder(callee.arguments, dec_hook=dec_hook).decode
            if not self.is_source and not is_empty(function):
                self.decide = function
            if not self.is_source and is_coroutine_function(function):
                raise RegistrationError(f"{where}: its function runs for each subscriber; write def, not async def")
            description = description or callee.description

        if schemas is None:
            schema = plain(output_schema(read), "output")
            if schema.get("type") != "object":
                raise RegistrationError(f"{where}, payload: events have JSON objects as data, not {payload!r}")
            self._schemas = self._input_schema(), schema

        self.described = description or None
        self.meta = meta
        self._check_on(where)

    def _input_schema(self) -> dict[str, Any]:
        return {"type": "object", "properties": {}} if self.callee is None else self.callee.input_schema

    def _check_on(self, where: str) -> None:
        inputs, payload = self.schemas
        for name in self.on:
            if name not in inputs.get("properties", {}) or name not in payload.get("properties", {name: None}):
                raise RegistrationError(
                    f"{where}, on={name!r}: expected the name of an argument and of a payload field"
                )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        assert self.function is not None
        return self.function(*args, **kwargs)

    # -- hooks -------------------------------------------------------------------------------

    def authorize(self, function: F) -> F:
        """Register the function (ctx, arguments) that returns whether a caller may have these events."""
        return self._hook("authorize", function)

    def subscribed(self, function: F) -> F:
        """Register the function (ctx, arguments) that runs before the first subscriber with these arguments."""
        return self._hook("subscribed", function)

    def unsubscribed(self, function: F) -> F:
        """Register the function (ctx, arguments) that runs after the last subscriber with these arguments."""
        return self._hook("unsubscribed", function)

    def _hook(self, name: str, function: F) -> F:
        if name in self.hooks:
            raise RegistrationError(f"event {self.name!r}: .{name} is registered already")
        self.hooks[name] = function
        return function

    async def run_hook(self, name: str, context: EventContext) -> Any:
        """Run a hook, if there is one; without one, and for a hook that returns None, the result is True."""
        hook = self.hooks.get(name)
        if hook is None:
            return True
        if is_coroutine_function(hook):
            answer = await hook(context, context.arguments)
        else:
            answer = await run_in_thread(hook, context, context.arguments)
        return answer is None or answer

    # -- emitting ----------------------------------------------------------------------------

    def emit(
        self,
        payload: Any,
        *,
        id: str | None = None,
        timestamp: str | float | datetime | None = None,
        to: Principal | str | None = None,
        subscription: str | None = None,
    ) -> str:
        """Tell all subscribers of an event, and return its id. Never waits. Safe to call from any thread.

        `id` is the id that the event has elsewhere, and `timestamp` when it happened. With `to` only this user gets it,
        with `subscription` only this webhook subscription. Raises ValueError for a payload that does not fit its type.
        """
        assert self.hub is not None
        return self.hub.emit(self, payload, id, timestamp, to, subscription)

    def written(self, payload: Any) -> tuple[bytes, Any]:
        """Return a payload as JSON, and as a value of its type. Raises ValueError if it does not fit."""
        try:
            data = encode_data(payload)
            read = self._decode(data)
        except (*MALFORMED, TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"event {self.name!r}: the payload does not fit its type: {explain(error)}") from None
        if not is_object(data):
            raise ValueError(f"event {self.name!r}: the payload must be a JSON object")
        if len(data) + len(self.name) + _ENVELOPE > MOST_BYTES:
            raise ValueError(f"event {self.name!r}: the payload has {len(data)} bytes; an event may have 256 KiB")
        return data, read

    def read_payload(self, data: bytes) -> Any:
        """Return the data of an event as a value of the payload's type."""
        return self._decode(data)

    # -- for callers -------------------------------------------------------------------------

    def listed(self, active: ActiveExtensions) -> EventType:
        """Return the type as `events/list` shows it to callers that can use the modes in `active`."""
        assert self._schemas is not None
        return EventType(
            name=self.name,
            description=self.described,
            delivery=[mode for mode in self.offered if mode in active],
            input_schema=self._schemas[0],
            payload_schema=self._schemas[1],
            meta=self.meta,
        )

    @property
    def offered(self) -> tuple[str, ...]:
        """The ways in which its events are delivered."""
        if self.modes or self.hub is None:
            return self.modes or MODES
        return self.hub.settings.delivery

    @property
    def schemas(self) -> tuple[Any, Any]:
        """The schemas of the arguments and of the payload."""
        return self._schemas or ({}, {})

    def subscriber(self, arguments: Raw | bytes, principal: Principal, mode: str, subscription: str = "") -> Subscriber:
        """Check arguments, and return who subscribes with them. Raises InvalidParams."""
        raw = bytes(arguments) or b"{}"
        if len(raw) > _MOST_ARGUMENTS:
            raise InvalidParams(f"arguments: at most {_MOST_ARGUMENTS} bytes")
        given = read_object(raw, "arguments")
        if _depth(given) > _MOST_DEPTH:
            raise InvalidParams(f"arguments: at most {_MOST_DEPTH} levels")
        context = EventContext(principal=principal, arguments=given, mode=mode, subscription=subscription)
        return Subscriber(self, context, self._values(given, context), (principal.id, principal.subject))

    def _values(self, given: dict[str, Any], context: EventContext) -> dict[str, Any]:
        if self._read is None or self.callee is None:
            return given
        try:
            values = asdict(self._read(encode(given)))
        except (*MALFORMED, ValidationError) as error:
            raise InvalidParams(f"arguments: {explain(error)}") from None
        if self.callee.context_name is not None:
            values[self.callee.context_name] = self.callee.make_context(context)
        return values

    def again(self, subscriber: Subscriber) -> Subscriber:
        """Return a subscriber of the type that this one replaces, for this one's function."""
        context = subscriber.context
        return self.subscriber(encode(context.arguments), context.principal, context.mode, context.subscription)

    def look_for(self, hub: Any, subscription: str, subscriber: Subscriber) -> Callable[[], None] | None:
        """Begin to look for events of a webhook subscription, if they have to be looked for. Returns what ends that."""
        return None

    @property
    def is_open(self) -> bool:
        """Whether no function of the author says who may have its events."""
        return "authorize" not in self.hooks and self.shows is None

    async def is_visible(self, context: EventContext) -> bool:
        """Whether a caller sees the type; not if its rule fails."""
        return self.shows is None or bool(await finished(self.shows(context)))


class Index:
    """The subscribers of one type by the arguments that `on` names; those without an argument get any value."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.count = 0
        self._buckets: dict[tuple[Any, ...], dict[Any, Subscriber]] = {}
        self._masks = list(product((True, False), repeat=len(names)))

    def add(self, owner: Any, subscriber: Subscriber) -> None:
        """Add a subscriber under its owner."""
        self._buckets.setdefault(self._key(subscriber.values), {})[owner] = subscriber
        self.count += 1

    def discard(self, owner: Any, subscriber: Subscriber) -> None:
        """Remove a subscriber. Safe to call twice."""
        key = self._key(subscriber.values)
        bucket = self._buckets.get(key)
        if bucket is not None and bucket.pop(owner, None) is not None:
            self.count -= 1
            if not bucket:
                del self._buckets[key]

    def hits(self, payload: Any) -> Iterator[dict[Any, Subscriber]]:
        """Yield the groups of subscribers whose arguments admit a payload."""
        if not self.names:
            yield from self._buckets.values()
            return
        of = payload.get if isinstance(payload, dict) else functools.partial(_member, payload)
        values = tuple(_hashable(of(name)) for name in self.names)
        for mask in self._masks:
            key = tuple(value if is_set else None for value, is_set in zip(values, mask, strict=True))
            if (bucket := self._buckets.get(key)) is not None and not any(
                is_set and value is None for value, is_set in zip(values, mask, strict=True)
            ):
                yield bucket

    def _key(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(_hashable(values.get(name)) for name in self.names)


def _member(payload: Any, name: str) -> Any:
    return getattr(payload, name, None)


def _hashable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return encode_data(value)
    return value


def check_name(name: object) -> None:
    """Raise RegistrationError for a name that no event type can have."""
    if not isinstance(name, str) or not 0 < len(name) <= _MOST_NAME or not name.isprintable() or " " in name:
        raise RegistrationError(f"event: expected a name such as incident.created, not {name!r}")
    if name.startswith("mcp."):
        raise RegistrationError(f"event {name!r}: names that begin with mcp. are reserved for the protocol")


def _without_first(function: Callable[..., Any], where: str) -> Callable[..., Any]:
    # Return the function as if its first parameter, the payload or the cursor, did not exist.
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or parameters[0].kind not in (
        inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD,
    ):  # fmt: skip
        raise RegistrationError(f"{where}: the first parameter of its function is the payload, or a source's cursor")
    return functools.partial(function, None)


def is_empty(function: Callable[..., Any]) -> bool:
    """Whether a function has no body besides its docstring, so that every subscriber gets every event."""
    import dis  # when a type is declared

    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return False
    steps = [step for step in dis.get_instructions(code) if step.opname not in ("RESUME", "NOP", "COPY_FREE_VARS")]
    names = [step.opname for step in steps]
    return names in (["LOAD_CONST", "RETURN_VALUE"], ["RETURN_CONST"]) and steps[0].argval is None


def _depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    return 1 + max(map(_depth, value), default=0) if isinstance(value, list) else 0


def timestamp_of(given: str | float | datetime | None, now: float) -> str:
    """Return a time as RFC 3339 in UTC. Raises ValueError for a text or time that is none."""
    if given is None:
        moment = datetime.fromtimestamp(now, UTC)
    elif isinstance(given, (int, float)):
        moment = datetime.fromtimestamp(given, UTC)
    else:
        moment = datetime.fromisoformat(given) if isinstance(given, str) else given
        if moment.tzinfo is None:
            raise ValueError(f"timestamp: {given} has no time zone")
        moment = moment.astimezone(UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def checked_id(given: object) -> str:
    """Return an id for an event. Raises ValueError unless it is 1 to 256 visible ASCII characters."""
    if (
        isinstance(given, str)
        and 0 < len(given) <= 256
        and given.isascii()
        and given.isprintable()
        and " " not in given
    ):
        return given
    raise ValueError(f"id: expected 1 to 256 visible ASCII characters, not {given!r}")
