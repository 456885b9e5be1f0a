"""One process on a backplane: its messages to other processes, and changes of lists and resources; opens backplanes.

Messages are sealed with the service's key, so that nobody else with access to the backplane can send any. Requests are
never sent to other processes.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import re
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from inspect import iscoroutinefunction
from secrets import token_bytes, token_hex
from time import perf_counter, time
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit
from weakref import WeakSet

from msgspec import DecodeError, ValidationError
from msgspec.msgpack import Decoder, Encoder

from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable
from mcpd.protocol.state_keys import StateKeys
from mcpd.server.dispatcher.observing import HookedObserver
from .base import Backplane, BackplaneAway, Kind, Subscriber
from .memory import MemoryBackplane

if TYPE_CHECKING:
    from mcpd.server.http_backend import Backend

log = logging.getLogger("mcpd")

NODE_ID_LENGTH = 10
_ALL = "all"
_LEASE, _RENEW_EVERY = 15.0, 5.0
# Seconds between attempts to reach a node that does not receive; the total must stay below 3.
_WAITS = (0.1, 0.3, 0.6)
_OLDEST = 60.0
# Seconds by which the clocks of nodes may differ.
_SKEW = 60.0
_MAC = 16
_MOST_POSTED = 10_000
_MOST_SENDERS = 10_000

Take: TypeAlias = Callable[[str, Any], object]
"""Handles a message of another node: the sender's id, and the body. Its exceptions are logged."""


class Node:
    """This process on a backplane. `on` registers handlers of messages; `start` subscribes, once an event loop runs.

    `refused` counts messages that were forged, too old or repeated; `dropped` those that could not be sent.
    """

    def __init__(self, backplane: Backplane, keys: StateKeys) -> None:
        self.id = token_hex(NODE_ID_LENGTH // 2)
        self.backplane = backplane
        self.refused = 0
        self.dropped = 0
        self._keys = keys.of("bus")
        self._takes: dict[str, Take] = {}
        self._gaps: list[Callable[[], object]] = []
        self._sent = 0
        self._newest: dict[tuple[str, str], int] = {}
        self._posted: set[asyncio.Task[None]] = set()
        self._starting: asyncio.Future[None] | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._subscribed: list[tuple[str, Callable[[bytes], None]]] = []
        backplane.on_gap(self._report_gap)

    # -- its life ----------------------------------------------------------------------------

    async def start(self) -> None:
        """Subscribe to messages; safe to call again. If the backplane is away, this happens once it is back."""
        if self._starting is None:
            self._starting = asyncio.ensure_future(self._start())
        await asyncio.shield(self._starting)

    async def _start(self) -> None:
        with suppress(BackplaneAway):  # the id is random, so it is unique anyway
            while not await self.backplane.set(f"n:{self.id}", b"1", _LEASE, only_new=True):
                self.id = token_hex(NODE_ID_LENGTH // 2)  # another node has that id

        self._subscribed = [(channel, partial(self._receive, channel)) for channel in (_ALL, f"n:{self.id}")]
        subscribing = (self.backplane.subscribe(*each) for each in self._subscribed)
        for found in await asyncio.gather(*subscribing, return_exceptions=True):
            if isinstance(found, BackplaneAway):
                log.warning("serving without the backplane until it can be reached: %s", printable(found))
            elif found is not None:
                raise found

        self._renewing = asyncio.create_task(self._renew(), name="mcpd-node")

    async def _renew(self) -> None:
        # Renew the key that shows that this node is alive.
        while True:
            await asyncio.sleep(_RENEW_EVERY)
            with suppress(BackplaneAway):
                await self.backplane.set(f"n:{self.id}", b"1", _LEASE)

    async def aclose(self) -> None:
        """Send posted messages, and unsubscribe. Safe to call twice; `start` subscribes again."""
        self._starting = None
        if self._renewing is not None:
            self._renewing.cancel()
            self._renewing = None
            for channel, receive in self._subscribed:
                await self.backplane.unsubscribe(channel, receive)
            with suppress(BackplaneAway):
                await self.backplane.delete(f"n:{self.id}")

        if self._posted:
            await asyncio.wait(self._posted, timeout=1)
        await self.backplane.aclose()

    def on(self, kind: str, take: Take) -> None:
        """Register the handler of one kind of message."""
        self._takes[kind] = take

    def on_gap(self, callback: Callable[[], object]) -> None:
        """Call `callback` when messages may have been lost, once all channels are subscribed again."""
        self._gaps.append(callback)

    def _report_gap(self) -> None:
        for callback in self._gaps:
            callback()

    # -- sending -----------------------------------------------------------------------------

    async def send(self, node: str, kind: str, *body: Any) -> int:
        """Send a message to one node. Returns 0 if the node is gone. Raises BackplaneAway."""
        return await self._publish(f"n:{node}", kind, body)

    async def send_reliably(self, node: str, kind: str, *body: Any) -> bool:
        """Send a message to one node, with retries. Returns False if the node is gone.

        A node that is alive but does not receive is reconnecting to the backplane, or crashed up to 15 s ago. Raises
        BackplaneAway, also if the node still does not receive after the last attempt.
        """
        for wait in (*_WAITS, None):
            if await self.send(node, kind, *body):
                return True
            if await self.backplane.get(f"n:{node}") is None:
                return False
            if wait is not None:
                await asyncio.sleep(wait)

        raise BackplaneAway("that node does not receive messages")

    async def broadcast(self, kind: str, *body: Any) -> None:
        """Send a message to all other nodes. Raises BackplaneAway."""
        await self._publish(_ALL, kind, body)

    def post(self, work: Coroutine[Any, Any, object]) -> None:
        """Send in the background. Messages that cannot be sent are lost, and counted in `dropped`."""
        if len(self._posted) >= _MOST_POSTED:
            self.dropped += 1
            work.close()
            return
        task = asyncio.ensure_future(self._do_quietly(work))
        self._posted.add(task)
        task.add_done_callback(self._posted.discard)

    async def _do_quietly(self, work: Coroutine[Any, Any, object]) -> None:
        try:
            await work
        except BackplaneAway:
            self.dropped += 1

    async def _publish(self, channel: str, kind: str, body: Any) -> int:
        # Numbered and handed over without a pause: the messages of one node arrive in order.
        self._sent += 1
        message = _encode((time(), self.id, self._sent, kind, body))
        return await self.backplane.publish(channel, _mac(self._keys[0], channel, message) + message)

    # -- receiving ---------------------------------------------------------------------------

    def _receive(self, channel: str, data: bytes) -> None:
        mac, message = data[:_MAC], data[_MAC:]
        if not any(hmac.compare_digest(mac, _mac(key, channel, message)) for key in self._keys):
            self.refused += 1
            return

        try:
            at, sender, number, kind, body = _decode(message)
        except (DecodeError, ValidationError):
            self.refused += 1
            return

        if sender == self.id:
            return
        source = (sender, channel)
        if not -_SKEW - 1 <= time() - at <= _OLDEST + _SKEW or number <= self._newest.get(source, 0):
            self.refused += 1
            return

        if len(self._newest) >= _MOST_SENDERS:
            self._newest.clear()
        self._newest[source] = number
        take = self._takes.get(kind)
        if take is not None:  # otherwise a newer version of mcpd has sent it
            take(sender, body)


def _mac(key: bytes, channel: str, message: bytes) -> bytes:
    return hmac.digest(key, channel.encode() + b"\0" + message, "sha256")[:_MAC]


_encode = Encoder().encode
_decode = Decoder(tuple[float, str, int, str, list[Any]]).decode

_LIFE = 7 * 24 * 3600.0
_KINDS: tuple[Kind, ...] = ("tools", "prompts", "resources")
# Random bytes at the beginning of a mark. The digest of the list follows, if there is one.
_MARK = 6

ListDigest: TypeAlias = Callable[[Kind], bytes]
"""Returns a digest that is the same for equal lists on every node, or b"" without a digest. Never raises."""


class NodeChanges:
    """A `ChangeBus` over a backplane.

    Besides the messages it stores a mark of each kind's last change, so that a node that was disconnected can find out
    whether it missed one. Nodes whose files change at the same time end up with the same list. With `list_digest` a
    node ignores the change of another node to a list that it has already: its clients were notified before.
    """

    def __init__(self, node: Node, list_digest: ListDigest | None = None) -> None:
        self._node = node
        self._list_digest = list_digest
        self._due: dict[tuple[Kind, str | None], None] = {}
        # Marks of changes of this node that other nodes may not have received.
        self._unsent_marks: dict[Kind, bytes] = {}
        self._subscribers: WeakSet[Subscriber] = WeakSet()
        self._marks: dict[Kind, bytes | None] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        node.on("changed", self._on_changed)
        node.on_gap(lambda: node.post(self._catch_up()))

    def start(self) -> None:
        """Publish changes from now on, in the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._node.post(self._read_marks(notifies=False))

    def subscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.add(subscriber)

    def unsubscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.discard(subscriber)

    def publish(self, kind: Kind, uri: str | None, by: Subscriber) -> None:
        if self._loop is None:
            return  # before serving begins, registering an entry is not a change
        with suppress(RuntimeError):  # it is closed
            self._loop.call_soon_threadsafe(self._changed, kind, uri)

    def _changed(self, kind: Kind, uri: str | None) -> None:
        if not self._due:
            asyncio.get_running_loop().call_soon(self._send_due)  # once for all changes of this iteration
        self._due[kind, uri] = None

    def _send_due(self) -> None:
        due, self._due = self._due, {}
        for kind, uri in due:
            if uri is None:
                self._send_change(kind)
            else:
                self._node.post(self._node.broadcast("changed", kind, uri, b""))

    def _send_change(self, kind: Kind) -> None:
        digest = b"" if self._list_digest is None else self._list_digest(kind)
        mark = self._unsent_marks[kind] = token_bytes(_MARK) + digest
        self._node.post(self._send_mark(kind, mark))

    async def _send_mark(self, kind: Kind, mark: bytes) -> None:
        keeping = asyncio.ensure_future(self._keep(kind, mark))
        try:
            await self._node.broadcast("changed", kind, None, mark)
        finally:
            await keeping
        if self._unsent_marks.get(kind) == mark:
            del self._unsent_marks[kind]

    async def _keep(self, kind: Kind, mark: bytes) -> None:
        await self._node.backplane.set(f"c:{kind}", mark, _LIFE)
        self._marks[kind] = mark

    def _on_changed(self, _: str, body: Any) -> None:
        kind, uri, mark = body
        if uri is None:
            self._marks[kind] = mark
            if self._has(kind, mark):
                return
        self._notify(kind, uri)

    def _has(self, kind: Kind, mark: bytes) -> bool:
        # Whether this node has the list that the mark describes.
        return len(mark) > _MARK and self._list_digest is not None and self._list_digest(kind) == mark[_MARK:]

    def _notify(self, kind: Kind, uri: str | None) -> None:
        for subscriber in list(self._subscribers):
            subscriber.notify(kind, uri)

    async def _catch_up(self) -> None:
        await self._read_marks(notifies=True)
        # After reading the marks: writing one would hide the marks of other nodes.
        for kind in list(self._unsent_marks):
            self._send_change(kind)

    async def _read_marks(self, *, notifies: bool) -> None:
        # Read the marks. With `notifies` call subscribers of each kind whose mark and list are different.
        marks = await asyncio.gather(*(self._node.backplane.get(f"c:{kind}") for kind in _KINDS))
        for kind, mark in zip(_KINDS, marks, strict=True):
            if mark is not None and mark != self._marks.get(kind):
                self._marks[kind] = mark
                if notifies and not self._has(kind, mark):
                    self._notify(kind, None)

    @property
    def moved(self) -> list[Kind]:
        """The kinds that have ever changed, as far as this node knows."""
        return [kind for kind in _KINDS if self._marks.get(kind) is not None]


SCHEMES = ("memory", "sqlite", "redis", "rediss", "unix", "redis+cluster", "rediss+cluster",
           "redis+sentinel", "rediss+sentinel")  # fmt: skip
SHARED = "shared://"
"""Internal scheme of a worker process, followed by the number of the descriptor that leads to its parent."""


def open_backplane(url: str, server_name: str) -> Backplane:
    """Return the backplane of a URL, not connected yet. Raises ConfigurationError, without the URL's password.

    memory://                           this process alone
    sqlite:///path                      this machine; survives restarts
    redis://HOST:PORT/0                 all machines; rediss:// for TLS, unix:///path for a socket of this machine
    redis+cluster://HOST:PORT           a cluster, by the address of one member
    redis+sentinel://HOST:PORT,HOST:PORT/SERVICE/0   the server that the sentinels name as master of that service

    `?namespace=NAME` separates services that share one Redis; by default the server's name does.
    """
    if url.startswith(SHARED) and url[len(SHARED) :].isdecimal():
        import socket

        from .shared_memory import SharedBackplane

        return SharedBackplane(socket.socket(fileno=int(url[len(SHARED) :])))

    scheme, colon, _ = url.partition("://")
    if not colon or scheme not in SCHEMES:
        known = ", ".join(f"{each}://" for each in SCHEMES)
        raise ConfigurationError(f"backplane: expected a URL that begins with one of {known}")

    if scheme == "memory":
        return MemoryBackplane()
    if scheme == "sqlite":
        from .sqlite import SqliteBackplane

        return SqliteBackplane(_path_of(url))

    try:
        from .redis import RedisBackplane
    except ImportError:
        raise ConfigurationError(f"backplane {scheme}://: pip install 'mcpd-server[redis]'") from None

    plain, namespace = _without_namespace(url)
    return RedisBackplane(plain, namespace or namespace_of(server_name))


def check_backplane(url: str) -> None:
    """Raise ConfigurationError for a URL that cannot be opened here. Nothing is created or connected to."""
    if url.startswith("sqlite://"):
        _path_of(url)
    else:
        open_backplane(url, "")  # connects when the first command is sent


def _path_of(url: str) -> str:
    path = unquote(url[len("sqlite://") :])
    if not path.startswith("/"):
        raise ConfigurationError(f"backplane {url}: write sqlite:///path/to/file, with an absolute path")
    return path


def namespace_of(server_name: str) -> str:
    """Return the prefix of a server's keys: the readable part of its name, and a digest that makes it unique."""
    readable = re.sub(r"[^A-Za-z0-9_.-]+", "-", server_name)[:32].strip("-")
    return f"{readable}-{sha256(server_name.encode()).hexdigest()[:8]}"


def _without_namespace(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    namespace = next((value for name, value in query if name == "namespace"), "")
    if namespace and re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", namespace) is None:
        raise ConfigurationError("backplane: ?namespace= takes up to 64 letters, digits, _, . and -")
    others = [(name, value) for name, value in query if name != "namespace"]
    return urlunsplit(parts._replace(query=urlencode(others))), namespace


def timed_backplane(backplane: Backplane, counters: Sequence[Callable[[str, float, str], object]]) -> Backplane:
    """Return a backplane that sends every command to `backplane` and reports it to `counters`.

    A counter receives the name of the command, its duration in seconds, and `away` or the class of the exception that
    was raised, or "".
    """
    return cast("Backplane", _TimedBackplane(backplane, counters))


class _TimedBackplane:
    def __init__(self, backplane: Backplane, counters: Sequence[Callable[[str, float, str], object]]) -> None:
        self._backplane = backplane
        self._counters = counters

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._backplane, name)
        if name == "aclose" or not iscoroutinefunction(member):
            return member
        return lambda *arguments, **options: self._timed(name, member(*arguments, **options))

    async def _timed(self, command: str, work: Coroutine[Any, Any, Any]) -> Any:
        began, error = perf_counter(), ""
        try:
            return await work
        except BackplaneAway:
            error = "away"
            raise
        except BaseException as raised:
            error = type(raised).__name__
            raise
        finally:
            seconds = perf_counter() - began
            for counter in self._counters:
                counter(command, seconds, error)


class Sharing:
    """The application as one node of a service. Without `is_shared` it is the only node, and subscribes to nothing.

    Raises ConfigurationError for an invalid backplane.
    """

    def __init__(self, server: Backend, backplane: str | Backplane | None) -> None:
        self.is_shared = backplane is not None
        name = server.identity.name
        if isinstance(backplane, str):
            if not server.keys and not backplane.startswith("memory:"):
                raise ConfigurationError(
                    "a backplane needs a secret that all processes share: set MCPD_STATE_KEY to 16 bytes or more, "
                    "for example by openssl rand -base64 32"
                )
            backplane = open_backplane(backplane, name)

        if backplane is None:
            backplane = MemoryBackplane()  # with a state key alone, sessions outlive a restart of the process
        else:
            observers = [observer for observer in server.observers if isinstance(observer, HookedObserver)]
            backplane = timed_backplane(backplane, [observer.backplane_answered for observer in observers])

        self.server_name = name
        self.keys = server.keys or StateKeys([os.urandom(32)])
        self.node = Node(backplane, self.keys)
        self.changes = NodeChanges(self.node, server.list_digest if self.is_shared else None)
        if self.is_shared:
            server.announcer.join(self.changes)
            self.node.on_gap(server.announcer.missed)

    async def start(self) -> None:
        """Connect to the other nodes; safe to call again."""
        if self.is_shared:
            await self.node.start()
            self.changes.start()

    async def aclose(self) -> None:
        """Disconnect from the other nodes."""
        if self.is_shared:
            await self.node.aclose()

    @property
    def trouble(self) -> str:
        """The problem of the backplane as text; empty if it can be reached."""
        since = self.node.backplane.away_since
        if since is None:
            return ""
        return f"backplane away for {asyncio.get_running_loop().time() - since:.0f} s"
