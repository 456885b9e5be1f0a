"""Redis behind TLS, behind sentinels, and as a cluster: the same contract, and what each has of its own."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from server.backplane import test_backplanes as contracts
from support.clock import until
from support.redis_server import NEEDS_REDIS, redis_cluster, redis_sentinels, redis_tls

from mcpd.errors import ConfigurationError
from mcpd.server.backplane.base import Backplane, BackplaneAway
from mcpd.server.backplane.node import open_backplane


async def hold(url: str, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """All that a backplane has to hold."""
    contracts.URLS[:] = [lambda kind: url]
    contract: Any = contracts.TestContract()
    for name in [name for name in vars(contracts.TestContract) if name.startswith("test_")]:
        more = [caplog] if "disturbs" in name else []
        await getattr(contract, name)("redis", folder / name, *more)


@NEEDS_REDIS
@pytest.mark.slow
@pytest.mark.covered
async def test_over_tls(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """SCALE-28; a server whose certificate nobody vouches for is none."""
    with redis_tls() as (url, of_a_stranger):
        await hold(url, tmp_path, caplog)
        stranger = open_backplane(of_a_stranger, "server")
        with pytest.raises(BackplaneAway):
            await stranger.get("a")
        await stranger.aclose()


@NEEDS_REDIS
@pytest.mark.slow
@pytest.mark.covered
async def test_behind_sentinels(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """SCALE-21, SCALE-28: with another master everything goes on by itself, and what may have been missed is told."""
    with redis_sentinels() as service:
        await hold(service.url, tmp_path, caplog)
        backplane = open_backplane(service.url, "server")
        heard: list[bytes] = []
        gaps: list[bool] = []
        backplane.on_gap(lambda: gaps.append(True))
        await backplane.subscribe("n", heard.append)
        await backplane.set("a", b"1", 60)
        await asyncio.to_thread(service.kill_master)
        await contracts.until_so(lambda: _takes(backplane))
        await until(lambda: gaps)
        # Whom sentinels make the master closes all its connections once more.
        await contracts.until_so(lambda: _says(backplane))
        await until(lambda: heard)
        assert set(heard) == {b"again"}
        await backplane.aclose()


@NEEDS_REDIS
@pytest.mark.slow
@pytest.mark.covered
async def test_a_cluster_of_three(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """SCALE-28: values and logs are spread over all members, the bus is at one; slots move under way."""
    with redis_cluster() as cluster:
        await hold(cluster.url, tmp_path, caplog)
        backplane, other = [open_backplane(f"{cluster.url}?namespace=n", "server") for _ in range(2)]
        for number in range(30):
            assert await backplane.set(f"k{number}", b"1", 60)
        held = [int(cluster.say(index, "dbsize")) for index in range(3)]
        assert min(held) > 0
        assert sum(held) >= 30

        # Who has not heard of a move is sent on, and hears no less of what is published.
        heard: list[bytes] = []
        await backplane.subscribe("all", heard.append)
        for to in range(3):
            cluster.move(f"mcpd:n:moved{to}", to)
            assert await backplane.set(f"moved{to}", b"2", 60)
            assert await other.get(f"moved{to}") == b"2"
            assert cluster.say(to, "exists", f"mcpd:n:moved{to}") == "1"
        assert await other.publish("all", b"x") == 1
        await until(lambda: heard == [b"x"])

        # Those who come when the bus is at another member are counted by those who were there before, and count them.
        cluster.move("mcpd:n:bus", (cluster.owner("mcpd:n:bus") + 1) % 3)
        newcomer = open_backplane(f"{cluster.url}?namespace=n", "server")
        await newcomer.subscribe("all", heard.append)
        for each in (newcomer, backplane, other):
            await contracts.until_so(partial(_is_heard_by_both, each))
        for each in (backplane, other, newcomer):
            await each.aclose()


async def _is_heard_by_both(backplane: Backplane) -> bool:
    try:
        return await backplane.publish("all", b"y") == 2
    except BackplaneAway:
        return False


async def _says(backplane: Backplane) -> bool:
    try:
        return await backplane.publish("n", b"again") == 1
    except BackplaneAway:
        return False


async def _takes(backplane: Backplane) -> bool:
    try:
        return await backplane.set("a", b"2", 60)
    except BackplaneAway:
        return False


@pytest.mark.parametrize(
    "url",
    ["redis+sentinel://h:1", "redis+sentinel://h/garden", "redis+sentinel://h:x/garden/0",
     "redis+sentinel://:secret@h:1,/garden/0", "rediss+sentinel://h:1/garden/x"],
)  # fmt: skip
def test_a_wrong_url_of_sentinels_is_said(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^backplane: ") as told:
        open_backplane(url, "server")
    assert "secret" not in str(told.value)


async def test_what_a_url_of_sentinels_says() -> None:
    url = "rediss+sentinel://me:pass@a:26379,b:26380/garden/3?sentinel_password=other&ssl_ca_certs=/ca.pem&namespace=n"
    backplane: Any = open_backplane(url, "server")
    pool = backplane._client.connection_pool
    asked = [sentinel.connection_pool.connection_kwargs for sentinel in pool.sentinel_manager.sentinels]
    assert [(each["host"], each["port"], each["password"]) for each in asked] == [
        ("a", 26379, "other"), ("b", 26380, "other")
    ]  # fmt: skip
    assert {each["ssl_ca_certs"] for each in asked} == {"/ca.pem"}
    own = pool.connection_kwargs
    assert (own["db"], own["username"], own["password"], own["ssl_ca_certs"]) == (3, "me", "pass", "/ca.pem")
    assert (pool.service_name, own["socket_timeout"]) == ("garden", 2)
    await backplane.aclose()
