"""The backplane of several machines: Redis or Valkey through redis-py (the extra `redis`).

It can be one server, a cluster, or the master that sentinels name. All commands of one iteration of the event loop, and
those that arrive while a response is pending, are sent as one pipeline, in order. Redis 6.2 is enough; each script uses
one key. The bus is a connection of its own, which a loop of ours keeps: redis-py would reconnect silently, and messages
that were lost in between would not be noticed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable
from .base import BackplaneAway, Receive
from .memory import LocalBus, Remote

log = logging.getLogger("mcpd")

# Seconds without a message after which the connection is tested with a ping, which has the same time to return.
_QUIET = 1.5
_CONFIRM = 2.5
_BACK_OFF = (0.1, 2.0)


class RedisBus:
    """The subscriptions of this process. `find` returns the client to connect with, after each loss of the connection
    and when `has_moved` returns True."""

    def __init__(self, find: Callable[[], Awaitable[Redis]], has_moved: Callable[[], Awaitable[bool]]) -> None:
        self.local = LocalBus()
        self._find = find
        self._has_moved = has_moved
        self._pubsub: PubSub | None = None
        self._client: Redis | None = None
        self._reader: asyncio.Task[None] | None = None
        self._confirmed: dict[str, asyncio.Future[None]] = {}

    async def subscribe(self, channel: str, receive: Receive) -> None:
        """Return once Redis has confirmed. Raises BackplaneAway; then the channel is subscribed later."""
        self.local.add(channel, receive)
        loop = asyncio.get_running_loop()
        confirmed = self._confirmed.get(channel)
        if confirmed is None:
            confirmed = self._confirmed[channel] = loop.create_future()
            if self._reader is None:
                self._reader = loop.create_task(self._read_on(), name="mcpd-backplane-bus")
            elif self._pubsub is not None:
                await self._send(self._pubsub.subscribe, channel)

        done, _ = await asyncio.wait([confirmed], timeout=_CONFIRM)
        if not done:
            raise BackplaneAway("the backplane is away")

    async def unsubscribe(self, channel: str, receive: Receive) -> None:
        if self.local.remove(channel, receive):
            self._confirmed.pop(channel, None)
            if self._pubsub is not None:
                await self._send(self._pubsub.unsubscribe, channel)

    async def _send(self, command: Callable[[str], Awaitable[Any]], channel: str) -> None:
        with suppress(OSError, RedisError):  # the reader notices the loss and subscribes to all channels again
            await command(channel)

    async def publish(self, channel: str, data: bytes) -> int:
        """Publish through the client of the subscriptions: in a cluster, other members do not know all subscribers."""
        try:
            async with asyncio.timeout(_CONFIRM):
                client = self._client or await self._find()
                return int(await client.publish(channel, data))
        except (OSError, RedisError) as error:
            raise BackplaneAway(f"the backplane: {printable(error)}") from None

    async def aclose(self) -> None:
        """Close the connection. A later `subscribe` connects again."""
        self._confirmed.clear()
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel()
            await asyncio.wait([reader])

    # -- the loop ----------------------------------------------------------------------------

    async def _read_on(self) -> None:
        # Receive messages until cancelled. After a loss report a gap, once all channels are subscribed again.
        wait, is_first = _BACK_OFF[0], True
        while True:
            pubsub: PubSub | None = None
            try:
                async with asyncio.timeout(_CONFIRM):
                    self._client = await self._find()
                    pubsub = self._client.pubsub()
                    if self.local.channels:
                        await pubsub.subscribe(*self.local.channels)
                self._pubsub = pubsub
                await self._read(pubsub, is_first)
            except (OSError, RedisError) as error:
                log.debug("the bus of the backplane: %s", printable(error))
            finally:
                if self._pubsub is not None:
                    # There was a connection: messages before the next one are lost.
                    is_first, wait = False, _BACK_OFF[0]
                self._pubsub = self._client = None
                if pubsub is not None:
                    await self._close(pubsub)
            await asyncio.sleep(wait)
            wait = min(wait * 2, _BACK_OFF[1])

    async def _close(self, pubsub: PubSub) -> None:
        with suppress(OSError, RedisError):
            await pubsub.aclose()  # type: ignore[no-untyped-call, unused-ignore]

    async def _read(self, pubsub: PubSub, is_first: bool) -> None:
        # Deliver messages. Raises OSError or RedisError when the connection is lost or does not respond.
        loop = asyncio.get_running_loop()
        awaited, check_at = set(self.local.channels), loop.time() + _QUIET
        is_asked = False
        subscribed: set[str] = set()
        while True:
            if not awaited and not is_first:
                is_first = True
                self.local.report_gap()
            if loop.time() >= check_at:
                if await self._has_moved():
                    raise BackplaneAway("the bus has moved to another member")
                check_at = loop.time() + _QUIET
            if not pubsub.subscribed:
                await asyncio.sleep(_QUIET)  # nothing is subscribed now
                continue
            message = await pubsub.get_message(ignore_subscribe_messages=False, timeout=_QUIET)
            if message is None:
                if is_asked:
                    raise BackplaneAway("the connection of the bus does not respond")
                is_asked = True
                await pubsub.ping()
                continue

            is_asked = False
            kind, channel = message["type"], _text(message["channel"] or "")
            if kind == "message":
                self.local.deliver(channel, message["data"])
            elif kind == "unsubscribe":
                subscribed.discard(channel)
            elif kind == "subscribe":
                if channel in subscribed:
                    # redis-py has reconnected and subscribed again: messages in between are lost.
                    raise BackplaneAway("the connection of the bus was lost")
                subscribed.add(channel)
                awaited.discard(channel)
                confirmed = self._confirmed.get(channel)
                if confirmed is not None and not confirmed.done():
                    confirmed.set_result(None)


_CONNECT = 1.0
_ANSWER = 2.0
# Seconds that one pipeline may take in total, so that no caller waits longer than 3.
_WHOLE = 2.5
_MOST_WAITING = 10_000

_SWAP = """
local found = redis.call('GET', KEYS[1])
if ARGV[1] == '0' and found then return 0 end
if ARGV[1] == '1' and found ~= ARGV[2] then return 0 end
redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4])
return 1
"""

_Command: TypeAlias = tuple[tuple[str | bytes | int, ...], asyncio.Future[Any]]


class RedisBackplane(Remote):
    """See `Backplane`. All names begin with `mcpd:` and the namespace. Raises ConfigurationError for a bad URL.

    It connects when the first command is sent: a server starts without it, and reports that it is away.
    """

    def __init__(self, url: str, namespace: str) -> None:
        super().__init__()
        self._prefix = f"mcpd:{namespace}:"
        self._is_closed = False
        self._waiting: list[_Command] = []
        self._sender: asyncio.Task[None] | None = None
        self._url = url
        self._client = _client(url)
        self._bus = RedisBus(self._bus_client, self._has_bus_moved)
        self._bus_of_cluster: Redis | None = None

    async def aclose(self) -> None:
        self._is_closed = True
        await self._bus.aclose()
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.wait([self._sender])

        self._fail(self._waiting, "the backplane is closed")
        pool = getattr(self._client, "connection_pool", None)
        manager = getattr(pool, "sentinel_manager", None)
        sentinels: list[Redis] = [] if manager is None else manager.sentinels
        for client in (self._client, self._bus_of_cluster, *sentinels):
            if client is not None:
                with suppress(OSError, RedisError):  # it was closed before
                    await client.aclose()

        # A later command may run in another event loop: nothing of the old client is kept.
        self._client, self._bus_of_cluster, self._waiting = _client(self._url), None, []
        self.away_since, self._is_closed = None, False

    async def _bus_client(self) -> Redis:
        # Return the client for the bus: in a cluster one member for all nodes, which then knows all subscribers.
        client = self._client
        if isinstance(client, Redis):
            return client
        if self._bus_of_cluster is not None:
            await self._bus_of_cluster.aclose()
            self._bus_of_cluster = None
            await client.aclose()  # after a loss another member may have its slots: read them again

        await client.initialize()
        member = client.get_node_from_key(self._prefix + "bus")
        if member is None:
            raise BackplaneAway("no member of the cluster has the slot of the bus")
        kwargs = {name: value for name, value in member.connection_kwargs.items() if name in _OF_A_MEMBER}
        scheme = "rediss" if "SSL" in member.connection_class.__name__ else "redis"
        self._bus_of_cluster = Redis.from_url(f"{scheme}://{member.host}:{member.port}", **kwargs)
        return self._bus_of_cluster

    async def _has_bus_moved(self) -> bool:
        # Whether another member has the slot of the bus now. Subscribers at the old member still receive messages, but
        # a publisher at the new one would not count them.
        client, listening = self._client, self._bus_of_cluster
        if isinstance(client, Redis) or listening is None:
            return False
        await self._write("EXISTS", self._prefix + "bus")  # a member that lost the slot names the new one
        member = client.get_node_from_key(self._prefix + "bus")
        where = listening.connection_pool.connection_kwargs
        return member is None or (member.host, member.port) != (where["host"], where["port"])

    # -- commands ----------------------------------------------------------------------------

    async def _do(self, *command: str | bytes | int) -> Any:
        # Send a command, and return its response. Raises BackplaneAway, and ResponseError if Redis refuses it.
        loop = asyncio.get_running_loop()
        if self._is_closed:
            raise BackplaneAway("the backplane is closed")
        self.check_reachable(has_room=len(self._waiting) < _MOST_WAITING)
        answer: asyncio.Future[Any] = loop.create_future()
        self._waiting.append((command, answer))
        if self._sender is None or self._sender.done():
            self._sender = loop.create_task(self._send(), name="mcpd-backplane")
        reply = await answer
        if isinstance(reply, ResponseError):
            raise reply
        if isinstance(reply, Exception):
            raise BackplaneAway(f"the backplane: {printable(reply)}") from None
        return reply

    async def _write(self, *command: str | bytes | int) -> Any:
        # Send a command. Raises BackplaneAway also if Redis refuses it: it is full, read-only or loading.
        try:
            return await self._do(*command)
        except ResponseError as error:
            raise BackplaneAway(f"the backplane: {printable(error)}") from None

    async def _send(self) -> None:
        # Send the waiting commands, one pipeline after the other, so that none overtakes another.
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                async with asyncio.timeout(_WHOLE):
                    pipe = self._client.pipeline(transaction=False)
                    for command, _ in batch:
                        pipe.execute_command(*command)
                    answers = await pipe.execute(raise_on_error=False)
            except (OSError, RedisError) as error:  # TimeoutError is an OSError
                self.lost(str(error) or type(error).__name__)
                self._fail(batch, "the backplane is away")
                self._fail(self._waiting, "the backplane is away")
                self._waiting = []
                return
            except asyncio.CancelledError:
                self._fail(batch, "the backplane is closed")
                raise

            self.reached()
            for (_, answer), result in zip(batch, answers, strict=True):
                if not answer.done():
                    answer.set_result(result)

    def _fail(self, commands: list[_Command], why: str) -> None:
        for _, answer in commands:
            if not answer.done():
                answer.set_result(ConnectionError(why))

    # -- values ------------------------------------------------------------------------------

    async def get(self, key: str) -> bytes | None:
        value: bytes | None = await self._write("GET", self._prefix + key)
        return value

    async def set(self, key: str, value: bytes, ttl: float, *, only_new: bool = False) -> bool:
        end = ("PX", _ms(ttl), "NX") if only_new else ("PX", _ms(ttl))
        return bool(await self._write("SET", self._prefix + key, value, *end))

    async def swap(self, key: str, old: bytes | None, new: bytes, ttl: float) -> bool:
        has_old = 0 if old is None else 1
        return bool(await self._write("EVAL", _SWAP, 1, self._prefix + key, has_old, old or b"", new, _ms(ttl)))

    async def delete(self, key: str) -> None:
        await self._write("DEL", self._prefix + key)

    # -- logs --------------------------------------------------------------------------------

    async def append(self, name: str, entries: Sequence[bytes], most: int, ttl: float) -> None:
        key = self._prefix + name
        written = [self._write("XADD", key, "MAXLEN", most, "*", "d", entry) for entry in entries]
        await asyncio.gather(*written, self._write("PEXPIRE", key, _ms(ttl)))

    async def read(self, name: str, after: str = "", limit: int = 1000) -> list[tuple[str, bytes]]:
        start = f"({after}" if after else "-"
        entries = await self._write("XRANGE", self._prefix + name, start, "+", "COUNT", limit)
        return [(_text(number), _data(fields)) for number, fields in entries or ()]

    # -- the bus -----------------------------------------------------------------------------

    async def publish(self, channel: str, data: bytes) -> int:
        if isinstance(self._client, Redis):
            return int(await self._write("PUBLISH", self._prefix + channel, data))
        return await self._bus.publish(self._prefix + channel, data)

    async def subscribe(self, channel: str, receive: Receive) -> None:
        await self._bus.subscribe(self._prefix + channel, receive)

    async def unsubscribe(self, channel: str, receive: Receive) -> None:
        await self._bus.unsubscribe(self._prefix + channel, receive)

    def on_gap(self, callback: Callable[[], object]) -> None:
        self._bus.local.on_gap(callback)


_OF_A_MEMBER = ("username", "password", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_check_hostname",
                "socket_connect_timeout", "socket_timeout")  # fmt: skip


def _client(url: str) -> Redis | RedisCluster:
    # The defaults of redis-py would delay a request by many seconds: 5 s for a response, and ten attempts.
    settings: dict[str, Any] = {
        "socket_connect_timeout": _CONNECT,
        "socket_timeout": _ANSWER,
        "health_check_interval": 0,
        "retry": Retry(NoBackoff(), 1),
    }
    try:
        if "+sentinel://" in url:
            return _of_sentinels(url, settings)
        if "+cluster://" in url:
            client: Redis | RedisCluster = RedisCluster.from_url(url.replace("+cluster", "", 1), **settings)
        else:
            client = Redis.from_url(url, **settings)
    except (ValueError, TypeError, RedisError) as error:
        raise ConfigurationError(f"backplane: {printable(error)}; write redis://HOST:PORT/0") from None

    return client


def _of_sentinels(url: str, settings: dict[str, Any]) -> Redis:
    # Return a client of a service's master, which each new connection looks up. Raises ValueError for a bad URL.
    # The user, the password and the options of the URL are for Redis, `sentinel_password` is for the sentinels, and TLS
    # is for both.
    places = urlsplit(url)
    hosts = [host.rpartition(":") for host in places.netloc.rpartition("@")[2].split(",")]
    service, _, number = places.path.strip("/").partition("/")
    if not service or not (number or "0").isdigit() or not all(host and port.isdigit() for host, _, port in hosts):
        raise ValueError("write redis+sentinel://HOST:26379,HOST:26379/SERVICE/0")

    # Let redis-py parse the rest of the URL as if it named one server.
    scheme = places.scheme.partition("+")[0]
    user = places.netloc.rpartition("@")[0]
    query = dict(parse_qsl(places.query))
    password = query.pop("sentinel_password", None)
    plain = f"{scheme}://{user}{'@' if user else ''}localhost/{number or 0}?{urlencode(query)}"
    options = {**parse_url(plain), **settings}
    for name in ("host", "port", "connection_class"):
        options.pop(name, None)
    tls = {name: value for name, value in options.items() if name.startswith("ssl")}
    if scheme == "rediss":
        options["ssl"] = tls["ssl"] = True
    asked = {**settings, **tls, "password": password}
    where = [(host, int(port)) for host, _, port in hosts]
    sentinel = Sentinel(where, sentinel_kwargs=asked, **options)  # type: ignore[no-untyped-call, unused-ignore]
    client: Redis = sentinel.master_for(service)
    return client


def _ms(ttl: float) -> int:
    return max(1, int(ttl * 1000))


def _text(found: bytes | str) -> str:
    return found.decode() if isinstance(found, bytes) else found


def _data(fields: Any) -> bytes:
    # Return the only field of an entry. Versions of redis-py represent fields differently.
    value: bytes = next(iter(fields.values())) if isinstance(fields, dict) else fields[1]
    return value
