"""What every backplane holds: its five primitives, seen from two nodes. And what each does when it is cut off."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, closing
from pathlib import Path
from socket import socketpair
from typing import Any

import pytest
from support.clock import turns, until
from support.redis_server import NEEDS_REDIS, RedisServer

from mcpd.errors import ConfigurationError
from mcpd.server.backplane.base import Backplane, BackplaneAway
from mcpd.server.backplane.memory import MemoryBackplane
from mcpd.server.backplane.node import namespace_of, open_backplane
from mcpd.server.backplane.shared_memory import SharedBackplane, SharedMemory

KINDS = [
    "memory",
    "shared",
    "sqlite",
    pytest.param("redis", marks=NEEDS_REDIS),
]
SHORT = 0.05


@pytest.fixture(scope="module")
def servers() -> Iterator[Callable[[str], str]]:
    """Gives the URL of a Redis, which all tests of this module share."""
    running: dict[str, str] = {}
    with ExitStack() as stack:

        def url_of(kind: str) -> str:
            if kind not in running:
                running[kind] = stack.enter_context(RedisServer()).url
            return running[kind]

        yield url_of


URLS: list[Callable[[str], str]] = []


@pytest.fixture(autouse=True)
def _servers(servers: Callable[[str], str]) -> None:
    URLS[:] = [servers]


@asynccontextmanager
async def nodes(kind: str, folder: Path) -> AsyncIterator[tuple[Backplane, Backplane]]:
    """One backplane, as two nodes have it."""
    async with AsyncExitStack() as stack:
        if kind == "memory":
            one = other = open_backplane("memory://", "server")
        elif kind == "shared":
            memory = stack.enter_context(closing(SharedMemory()))
            one, other = [open_backplane(await worker_of(memory), "server") for _ in range(2)]
        else:
            url = f"sqlite://{folder}/state.db" if kind == "sqlite" else URLS[0](kind)
            one, other = open_backplane(url, str(folder)), open_backplane(url, str(folder))
        for each in (one, other):
            stack.push_async_callback(each.aclose)
        yield one, other


async def worker_of(memory: SharedMemory) -> str:
    """The URL of one more worker's end."""
    ours, its = socketpair()
    await memory.join(ours)
    return f"shared://{its.detach()}"


async def until_so(look: Callable[[], Awaitable[object]]) -> None:
    """Wait until a look gives something true."""
    async with asyncio.timeout(60):
        while not await look():
            await turns()


@pytest.mark.parametrize("kind", KINDS)
class TestContract:
    """SCALE-28."""

    async def test_values(self, kind: str, tmp_path: Path) -> None:
        async with nodes(kind, tmp_path) as (one, other):
            assert await one.get("{s:1}:x") is None
            assert await one.set("{s:1}:x", b"\x00\xff", 60)
            assert await other.get("{s:1}:x") == b"\x00\xff"
            assert not await other.set("{s:1}:x", b"2", 60, only_new=True)
            assert await other.set("b", b"", 60, only_new=True)
            assert (await one.get("{s:1}:x"), await one.get("b")) == (b"\x00\xff", b"")
            for _ in range(2):
                await one.delete("{s:1}:x")
            assert await other.get("{s:1}:x") is None
            assert one.away_since is None

    async def test_one_of_many_swaps(self, kind: str, tmp_path: Path) -> None:
        async with nodes(kind, tmp_path) as (one, other):
            assert not await one.swap("k", b"not there", b"1", 60)
            won = await asyncio.gather(*(each.swap("k", None, b"0", 60) for each in (one, other) * 4))
            assert sum(won) == 1

            async def count_up(backplane: Backplane) -> None:
                for _ in range(10):
                    while True:
                        old = await backplane.get("k")
                        assert old is not None
                        if await backplane.swap("k", old, b"%d" % (int(old) + 1), 60):
                            break

            await asyncio.gather(*(count_up(each) for each in (one, other) * 2))
            assert await one.get("k") == b"40"

    async def test_everything_has_a_life_which_begins_anew(self, kind: str, tmp_path: Path) -> None:
        """SCALE-22."""
        async with nodes(kind, tmp_path) as (one, other):
            await one.set("a", b"1", SHORT)
            await one.set("b", b"1", SHORT)
            await one.set("b", b"1", 600)
            await one.set("c", b"1", SHORT)
            await one.swap("c", b"1", b"2", 600)
            await one.append("log", [b"old"], 9, SHORT)
            for look in (lambda: other.get("a"), lambda: other.read("log")):
                await until_so(lambda look=look: _is_nothing(look()))  # type: ignore[misc]
            assert (await other.get("b"), await other.get("c")) == (b"1", b"2")

            assert not await one.swap("a", b"1", b"2", 60)
            await one.append("log", [b"new"], 9, 60)
            assert [entry for _, entry in await other.read("log")] == [b"new"]

    async def test_a_log_is_read_on_from_any_entry(self, kind: str, tmp_path: Path) -> None:
        async with nodes(kind, tmp_path) as (one, other):
            assert await other.read("{s:1}:e") == []
            await one.append("{s:1}:e", [b"1", b"2"], 100, 60)
            await other.append("{s:1}:e", [b"3"], 100, 60)
            await one.append("another", [b"x"], 100, 60)
            found = await one.read("{s:1}:e")
            assert [entry for _, entry in found] == [b"1", b"2", b"3"]
            assert await other.read("{s:1}:e", found[0][0]) == found[1:]
            assert await other.read("{s:1}:e", found[-1][0]) == []
            assert await other.read("{s:1}:e", limit=2) == found[:2]

    async def test_a_log_keeps_the_newest(self, kind: str, tmp_path: Path) -> None:
        """SCALE-23."""
        async with nodes(kind, tmp_path) as (one, _):
            for start in range(0, 60, 20):
                await one.append("log", [b"%d" % number for number in range(start, start + 20)], 7, 60)
            assert [entry for _, entry in await one.read("log")] == [b"%d" % number for number in range(53, 60)]

    async def test_all_who_listen_hear_it_once_and_in_order(self, kind: str, tmp_path: Path) -> None:
        async with nodes(kind, tmp_path) as (one, other):
            here = one if kind == "sqlite" else other  # what is said in a file's process stays there
            mine: list[bytes] = []
            more: list[bytes] = []
            others: list[bytes] = []
            assert await one.publish("n:1", b"nobody") == 0
            await one.subscribe("n:1", mine.append)
            await here.subscribe("n:1", more.append)
            await here.subscribe("n:2", others.append)

            said = [b"%d\x00\xff" % number for number in range(50)]
            for each in said:
                assert await one.publish("n:1", each) >= 1
            await until(lambda: len(mine) >= 50 and len(more) >= 50)
            assert mine == more == said
            assert others == []

            for _ in range(2):
                await here.unsubscribe("n:1", more.append)
            await one.publish("n:1", b"last")
            await until(lambda: mine[-1] == b"last")
            assert b"last" not in more
            await one.unsubscribe("n:1", mine.append)
            await until_so(lambda: _is_unheard(one))

    async def test_who_fails_to_listen_disturbs_nobody(
        self, kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with nodes(kind, tmp_path) as (one, _):
            heard: list[bytes] = []

            def fail(_: bytes) -> None:
                raise KeyError("no")

            await one.subscribe("n", fail)
            await one.subscribe("n", heard.append)
            await one.publish("n", b"1")
            await until(lambda: heard == [b"1"])
            assert "could not be handled" in caplog.text

    async def test_it_can_be_closed_twice_and_used_again(self, kind: str, tmp_path: Path) -> None:
        async with nodes(kind, tmp_path) as (one, _):
            await one.set("a", b"1", 60)
            for _ in range(2):
                await one.aclose()
            if kind == "shared":  # what led to the parent's memory is gone
                with pytest.raises(BackplaneAway):
                    await one.get("a")
                return

            heard: list[bytes] = []
            assert await one.get("a") == b"1"  # it is open again
            await one.subscribe("again", heard.append)
            await one.publish("again", b"x")
            async with asyncio.timeout(60):
                while heard != [b"x"]:
                    await asyncio.sleep(0)


async def _is_nothing(found: Awaitable[object]) -> bool:
    return not await found


async def _is_unheard(backplane: Backplane) -> bool:
    return await backplane.publish("n:1", b"x") == 0


class TestMemory:
    async def test_it_is_bounded(self) -> None:
        """SCALE-23."""
        backplane = MemoryBackplane(most_bytes=10_000)
        for number in range(1000):
            await backplane.set(str(number), b"x" * 100, 60 + number)
            await backplane.append("log", [b"x" * 10], 5, 600)
        assert len(backplane) < 60
        assert await backplane.get("999") is not None
        await backplane.set("huge", b"x" * 20_000, 60)
        assert await backplane.get("huge") is not None
        for name in range(2000):
            await backplane.set("same", b"%d" % name, 600)
        assert len(backplane._lives._heap) < 500

    async def test_what_is_over_takes_no_room(self) -> None:
        """SCALE-22."""
        backplane = MemoryBackplane()
        for number in range(2000):
            await backplane.set(f"{number}", b"x", 1e-6)
            await backplane.append(f"{number}", [b"x"], 5, 1e-6)
        await backplane.set("last", b"x", 600)
        await backplane.delete("last")
        await until(lambda: len(backplane) == 0)
        assert backplane._bytes == 0


class TestShared:
    """The memory is another process's: what a worker sees when that ends, says nothing, or has left something out."""

    async def test_its_end_is_seen_at_once_and_is_for_good(self) -> None:
        """SCALE-21, SCALE-28: the parent has ended."""
        memory = SharedMemory()
        one = open_backplane(await worker_of(memory), "server")
        await one.set("a", b"1", 60)
        waiting = asyncio.ensure_future(one.get("a"))
        memory.close()
        with pytest.raises(BackplaneAway):
            while True:
                await (waiting if not waiting.done() else one.get("a"))
        assert one.away_since is not None
        with pytest.raises(BackplaneAway, match="has ended"):
            await one.get("a")
        await one.aclose()

    async def test_a_parent_that_says_nothing_holds_nobody_up(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """SCALE-21: each gives up in time, then at once; what comes late shows that it is back."""
        monkeypatch.setattr("mcpd.server.backplane.shared_memory._ANSWER", SHORT)
        monkeypatch.setattr("mcpd.server.backplane.memory._PROBE_EVERY", 600.0)
        monkeypatch.setattr("mcpd.server.backplane.shared_memory._MOST_WAITING", 2)
        ours, its = socketpair()
        one = SharedBackplane(its)
        heard: list[bytes] = []
        first = asyncio.ensure_future(one.subscribe("n", heard.append))
        second = asyncio.ensure_future(one.set("a", b"1", 60))
        await turns()
        with pytest.raises(BackplaneAway, match="too many commands"):
            await one.get("a")
        for each in (first, second):
            with pytest.raises(BackplaneAway, match="does not respond"):
                await each
        with pytest.raises(BackplaneAway, match="is away"):
            await one.get("a")
        assert "does not respond" in caplog.text

        with closing(SharedMemory()) as memory:
            await memory.join(ours)
            await until(lambda: one.away_since is None)
            assert "is back" in caplog.text
            monkeypatch.setattr("mcpd.server.backplane.shared_memory._ANSWER", 60.0)
            assert await one.get("a") == b"1"
            assert await one.publish("n", b"x") == 1
            await until(lambda: heard == [b"x"])
            await one.aclose()

    async def test_who_does_not_read_misses_something_and_is_told_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """SCALE-23: what waits for a worker is bounded, and others are not held up by it."""
        monkeypatch.setattr("mcpd.server.backplane.shared_memory._MOST_UNREAD_BYTES", 100_000)
        with closing(SharedMemory()) as memory:
            one, other = [open_backplane(await worker_of(memory), "server") for _ in range(2)]
            heard: list[bytes] = []
            gaps: list[int] = []
            await other.subscribe("n", heard.append)
            other.on_gap(lambda: gaps.append(len(heard)))
            transport = other._protocol.transport  # type: ignore[attr-defined]
            transport.pause_reading()
            for number in range(100):
                assert await one.publish("n", b"%d" % number + bytes(50_000)) == 1
            (member,) = [each for each in memory._members if each._has_missed]
            assert member.transport is not None
            assert member.transport.get_write_buffer_size() < 200_000

            transport.resume_reading()
            await until(lambda: bool(gaps))
            assert 0 < gaps[0] == len(heard) < 100
            await one.publish("n", b"last")
            await until(lambda: heard[-1] == b"last")
            for each in (one, other):
                await each.aclose()
            await until(lambda: not memory._members)
            assert memory.memory.bus.channels == []

    async def test_what_cannot_be_read_ends_its_connection_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of a worker that another version of mcpd runs, or that went mad."""
        with closing(SharedMemory()) as memory:
            one: Any = open_backplane(await worker_of(memory), "server")
            for word in ("aclose", "_put", "nothing", "get"):
                with pytest.raises(BackplaneAway, match="Error"):
                    await one._ask(word, "a", 1, 2, 3)
            monkeypatch.setattr("mcpd.server.backplane.shared_memory.MOST_FRAME_BYTES", 1000)
            with pytest.raises(BackplaneAway, match="too large"):
                await one.set("a", bytes(2000), 60)
            assert await one.get("a") is None

            for junk in (b"\0\0\0\1\xc1", b"\xff\xff\xff\xff", b"\0\0\0\4\x93\1\xa1a"):
                ours, its = socketpair()
                await memory.join(ours)
                its.setblocking(False)
                loop = asyncio.get_running_loop()
                await loop.sock_sendall(its, junk)
                with its:
                    assert await loop.sock_recv(its, 10) == b""
            assert await one.set("a", b"1", 60)
            await one.aclose()


class TestSqlite:
    async def test_it_outlives_a_restart(self, tmp_path: Path) -> None:
        async with nodes("sqlite", tmp_path) as (one, _):
            await one.set("a", b"1", 600)
            await one.append("log", [b"1"], 5, 600)
        async with nodes("sqlite", tmp_path) as (one, _):
            assert await one.get("a") == b"1"
            assert [entry for _, entry in await one.read("log")] == [b"1"]
        assert (tmp_path / "state.db").stat().st_mode & 0o777 == 0o600

    async def test_what_is_over_leaves_the_file(self, tmp_path: Path) -> None:
        """SCALE-22."""
        async with nodes("sqlite", tmp_path) as (one, _):
            assert not isinstance(one, MemoryBackplane)
            for number in range(300):
                await one.set(f"{number}", b"x", 1e-6)
                await one.append(f"{number}", [b"x"], 5, 1e-6)
            for _ in range(300):
                await one.set("last", b"x", 600)
            counts = [one._db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # type: ignore[attr-defined]
                      for table in ("kv", "log", "life")]  # fmt: skip
        assert counts == [1, 0, 0]

    async def test_a_file_that_is_held_up_is_away(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        import sqlite3

        monkeypatch.setattr("mcpd.server.backplane.sqlite._WAIT", 0.01)
        async with nodes("sqlite", tmp_path) as (one, _):
            await one.set("a", b"1", 600)
            holder = sqlite3.connect(tmp_path / "state.db", isolation_level=None)
            holder.execute("BEGIN EXCLUSIVE")
            with pytest.raises(BackplaneAway):
                await one.set("a", b"2", 600)
            assert one.away_since is not None
            holder.execute("ROLLBACK")
            holder.close()
            assert await one.set("a", b"3", 600)
            assert one.away_since is None

    @pytest.mark.parametrize("path", ["/nowhere/at/all.db", "relative.db", "{folder}"])
    def test_a_wrong_path_is_said(self, path: str, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match="backplane sqlite://"):
            open_backplane("sqlite://" + path.format(folder=tmp_path), "server")

    def test_another_file_is_left_alone(self, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").write_text("not a database " * 100)
        with pytest.raises(ConfigurationError, match="not a database"):
            open_backplane(f"sqlite://{tmp_path}/notes.txt", "server")
        gc.collect()  # Python 3.13 and later complain of a database that was left open


@NEEDS_REDIS
class TestRedisFaults:
    """SCALE-21: what is asked is answered or refused within 3 s, and all is well by itself afterwards."""

    async def test_nobody_is_there(self, caplog: pytest.LogCaptureFixture) -> None:
        with RedisServer() as server:
            pass
        backplane = open_backplane(server.url, "server")
        with pytest.raises(BackplaneAway):
            await backplane.get("a")
        assert backplane.away_since is not None
        heard: list[bytes] = []
        with pytest.raises(BackplaneAway):
            await backplane.subscribe("n", heard.append)
        assert caplog.text.count("the backplane is away") == 1
        await backplane.aclose()

    async def test_it_restarts(self, caplog: pytest.LogCaptureFixture) -> None:
        with RedisServer() as server:
            backplane = open_backplane(server.url, "server")
            heard: list[bytes] = []
            gaps: list[bool] = []
            backplane.on_gap(lambda: gaps.append(True))
            await backplane.subscribe("n", heard.append)
            await backplane.set("a", b"1", 60)
            server.kill()
            with pytest.raises(BackplaneAway):
                await backplane.get("a")
            with pytest.raises(BackplaneAway):  # at once, while it is known to be away
                await backplane.get("a")
            assert gaps == []

            server.start()
            await until_so(lambda: _answers(backplane))
            assert await backplane.get("a") is None
            await until(lambda: gaps == [True])
            assert await backplane.publish("n", b"again") == 1
            await until(lambda: heard == [b"again"])
            assert backplane.away_since is None
            assert caplog.text.count("the backplane is back") == 1
            await backplane.aclose()

    @pytest.mark.slow
    @pytest.mark.covered
    async def test_it_says_nothing(self) -> None:
        with RedisServer() as server:
            backplane = open_backplane(server.url, "server")
            gaps: list[bool] = []
            backplane.on_gap(lambda: gaps.append(True))
            await backplane.subscribe("n", print)
            await backplane.set("a", b"1", 60)
            server.pause()
            async with asyncio.timeout(3):
                with pytest.raises(BackplaneAway):
                    await backplane.get("a")
                with pytest.raises(BackplaneAway):
                    await backplane.get("a")
            await until(lambda: backplane._bus._pubsub is None)  # type: ignore[attr-defined]
            server.go_on()
            await until_so(lambda: _answers(backplane))
            assert await backplane.get("a") == b"1"
            await until(lambda: gaps == [True])
            await backplane.aclose()

    async def test_a_cut_connection_of_the_bus_is_a_gap(self) -> None:
        with RedisServer() as server:
            backplane = open_backplane(server.url, "server")
            heard: list[bytes] = []
            gaps: list[int] = []
            backplane.on_gap(lambda: gaps.append(len(heard)))
            for channel in ("n", "m"):
                await backplane.subscribe(channel, heard.append)
            await server.asay("CLIENT", "KILL", "TYPE", "pubsub")
            await until(lambda: gaps == [0])
            assert await backplane.publish("n", b"1") == await backplane.publish("m", b"2") == 1
            await until(lambda: heard == [b"1", b"2"])
            await server.asay("CLIENT", "KILL", "TYPE", "normal")
            await until_so(lambda: _answers(backplane))
            assert gaps == [0]
            await backplane.aclose()

    async def test_it_is_slow(self) -> None:
        """What waits is answered, in one pipeline."""
        with RedisServer() as server:
            backplane = open_backplane(server.url, "server")
            await backplane.set("a", b"1", 60)
            await server.asay("CLIENT", "PAUSE", "300", "ALL")
            assert await asyncio.gather(*(backplane.get("a") for _ in range(200))) == [b"1"] * 200
            assert backplane.away_since is None
            await backplane.aclose()

    async def test_it_is_full(self) -> None:
        with RedisServer("--maxmemory", "100kb", "--maxmemory-policy", "noeviction") as server:
            backplane = open_backplane(server.url, "server")
            with pytest.raises(BackplaneAway, match="maxmemory"):
                await backplane.set("a", b"1", 60)
            for work in (backplane.swap("a", None, b"1", 60), backplane.append("l", [b"1"], 5, 60)):
                with pytest.raises(BackplaneAway):
                    await work
            assert await backplane.get("a") is None
            assert backplane.away_since is None
            await backplane.aclose()

    async def test_a_key_that_was_evicted_is_not_there(self) -> None:
        with RedisServer() as server:
            backplane = open_backplane(server.url + "?namespace=mine", "server")
            await backplane.set("a", b"1", 60)
            await backplane.append("l", [b"1"], 5, 60)
            assert sorted((await server.asay("KEYS", "*")).split()) == ["mcpd:mine:a", "mcpd:mine:l"]
            for key in "al":
                assert int(await server.asay("PTTL", f"mcpd:mine:{key}")) > 0
            await server.asay("FLUSHALL")
            assert (await backplane.get("a"), await backplane.read("l")) == (None, [])
            assert not await backplane.swap("a", b"1", b"2", 60)
            await backplane.aclose()

    async def test_a_key_of_another_kind_is_no_crash(self) -> None:
        with RedisServer() as server:
            backplane = open_backplane(server.url + "?namespace=mine", "server")
            await server.asay("SET", "mcpd:mine:q", "text")
            with pytest.raises(BackplaneAway, match="WRONGTYPE"):
                await backplane.read("q")
            await backplane.aclose()

    async def test_two_services_share_one_server(self) -> None:
        """SCALE-27."""
        with RedisServer() as server:
            one, other = open_backplane(server.url, "a server"), open_backplane(server.url, "another")
            heard: list[bytes] = []
            await other.subscribe("n", heard.append)
            await one.set("k", b"1", 60)
            assert (await other.get("k"), await one.publish("n", b"1")) == (None, 0)
            for each in (one, other):
                await each.aclose()

    async def test_a_waiting_caller_may_leave(self) -> None:
        with RedisServer() as server:
            backplane = open_backplane(server.url, "server")
            gone = asyncio.ensure_future(backplane.get("a"))
            await turns(1)
            gone.cancel()
            assert await backplane.set("a", b"1", 60)
            waiting = asyncio.ensure_future(backplane.get("a"))
            await turns(1)
            await backplane.aclose()
            with pytest.raises(BackplaneAway):
                await waiting


async def _answers(backplane: Backplane) -> bool:
    try:
        await backplane.get("a")
    except BackplaneAway:
        return False
    return True


class TestUrls:
    @pytest.mark.parametrize(
        "url", ["localhost:6379", "http://x", "redis:/x", "redis://h:port/0", "redis://:secret@h/0?namespace=a b"]
    )
    def test_a_wrong_url_is_said_without_its_password(self, url: str) -> None:
        with pytest.raises(ConfigurationError, match=r"^backplane: ") as told:
            open_backplane(url, "server")
        assert "secret" not in str(told.value)

    def test_a_service_is_known_by_its_name(self) -> None:
        assert namespace_of("Garden tools") != namespace_of("Garden-tools")
        assert namespace_of("Garden tools").startswith("Garden-tools-")
        assert namespace_of("日本") != namespace_of("中国")

    def test_without_the_extra_it_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import sys

        monkeypatch.setitem(sys.modules, "mcpd.server.backplane.redis", None)
        with pytest.raises(ConfigurationError, match=r"pip install 'mcpd-server\[redis\]'"):
            open_backplane("redis://localhost", "server")
