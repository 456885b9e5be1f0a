"""Addresses: what is taken, what is refused with which words, and what is really listened on."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, strategies as st

from mcpd.errors import ConfigurationError
from mcpd.transports import address
from mcpd.transports.address import Address, authority, bind, is_ip_address, is_loopback, parse


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


HAS_IPV6 = _has_ipv6()


@contextmanager
def closing(sockets: list[socket.socket]) -> Iterator[list[socket.socket]]:
    try:
        yield sockets
    finally:
        for each in sockets:
            each.close()


# -------------------------------------------------------------------------------------- parsing


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (":8080", Address("", 8080)),
        (":0", Address("", 0)),
        ("localhost:8080", Address("", 8080)),
        ("LOCALHOST:8080", Address("", 8080)),
        ("127.0.0.1:8080", Address("127.0.0.1", 8080)),
        ("0.0.0.0:65535", Address("0.0.0.0", 65535)),
        ("My-Host.example:1", Address("my-host.example", 1)),
        ("[::1]:8080", Address("::1", 8080)),
        ("[::]:8080", Address("::", 8080)),
        ("[fe80::1%eth0]:8080", Address("fe80::1%eth0", 8080)),
        ("unix:/run/mcpd.sock", Address(path="/run/mcpd.sock")),
    ],
)
def test_parse(text: str, expected: Address) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "for example :8080"),
        ("8080", "for example :8080"),
        ("localhost", "for example :8080"),
        (":", "for example :8080"),
        (":http", "for example :8080"),
        (":-1", "for example :8080"),
        (":٣", "for example :8080"),
        (": 80", "for example :8080"),
        ("ws://localhost:8080", "for example :8080"),
        ("http://[::1]:80/mcp", "for example :8080"),
        ("a b:80", "for example :8080"),
        ("[localhost]:80", "for example :8080"),
        ("[127.0.0.1]:80", "for example :8080"),
        ("::1:8080", "brackets"),
        ("fe80::1:8080", "brackets"),
        (":65536", "up to 65535"),
        (":" + "9" * 5000, "up to 65535"),
        ("unix:", "unix:/path"),
        ("unix:run.sock", "unix:/path"),
    ],
)
def test_parse_refuses_with_one_line_that_says_what_to_write(text: str, hint: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(text)
    assert hint in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.text())
def test_parse_gives_an_address_or_a_configuration_error(text: str) -> None:
    try:
        found = parse(text)
    except ConfigurationError:
        return
    assert found.path or 0 <= found.port <= 65535


@given(st.sampled_from(["", "127.0.0.1", "::1", "example.com"]), st.integers(0, 65535))
def test_an_address_is_written_as_it_is_read(host: str, port: int) -> None:
    assert parse(str(Address(host, port))) == Address(host, port)


def test_a_unix_address_is_written_as_it_is_read() -> None:
    assert str(parse("unix:/a b")) == "unix:/a b"


@pytest.mark.parametrize("host", ["", "localhost", "LocalHost", "127.0.0.1", "127.9.8.7", "::1", "0:0:0:0:0:0:0:1"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    ["0.0.0.0", "::", "10.0.0.1", "127.1", "127.0.0.1.evil.com", "localhost.evil.com", "evil.localhost", "::2", "a\0b"],
)
def test_not_loopback(host: str) -> None:
    assert not is_loopback(host)


def test_is_ip_address() -> None:
    assert is_ip_address("1.2.3.4")
    assert is_ip_address("fe80::1%eth0")
    assert not is_ip_address("1.2.3")
    assert not is_ip_address("example.com")


# ------------------------------------------------------------------------------------ listening


async def test_no_host_listens_on_both_loopbacks_and_nowhere_else() -> None:
    """D9: `:8080` binds loopback; `localhost` is either of the two addresses to a client."""
    with closing(await bind(parse(":0"), is_guarded=False)) as sockets:
        hosts = [each.getsockname()[0] for each in sockets]
        assert hosts == (["127.0.0.1", "::1"] if HAS_IPV6 else ["127.0.0.1"])
        assert len({each.getsockname()[1] for each in sockets}) == 1
        port = sockets[0].getsockname()[1]
        assert authority(sockets[0]) == f"127.0.0.1:{port}"
        _, writer = await asyncio.open_connection("localhost", port)
        writer.close()
        await writer.wait_closed()


@pytest.mark.skipif(not HAS_IPV6, reason="this machine has no IPv6")
async def test_ipv6_loopback_alone() -> None:
    with closing(await bind(parse("[::1]:0"), is_guarded=False)) as sockets:
        assert [each.getsockname()[0] for each in sockets] == ["::1"]
        assert authority(sockets[0]) == f"[::1]:{sockets[0].getsockname()[1]}"


async def test_a_wide_address_is_announced_as_one_that_can_be_reached() -> None:
    with closing(await bind(parse("0.0.0.0:0"), is_guarded=True)) as sockets:
        assert authority(sockets[0]) == f"127.0.0.1:{sockets[0].getsockname()[1]}"


@pytest.mark.skipif(not HAS_IPV6, reason="this machine has no IPv6")
async def test_the_ipv6_wildcard_is_all_of_the_machine() -> None:
    with closing(await bind(parse("[::]:0"), is_guarded=True)) as sockets:
        port = sockets[0].getsockname()[1]
        assert authority(sockets[0]) == f"[::1]:{port}"
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("text", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"])
async def test_a_wider_address_needs_a_token_or_insecure(text: str) -> None:
    """D9."""
    with pytest.raises(ConfigurationError) as caught:
        await bind(parse(text), is_guarded=False)
    for option in ("--token-file", "MCPD_TOKEN", "--insecure"):
        assert option in str(caught.value)


async def test_a_name_counts_as_what_it_resolves_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """D9: a name is no loopback by its looks."""
    found = ["127.0.1.1"]

    async def getaddrinfo(*_: object, **__: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, 0)) for ip in found]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    with closing(await bind(parse("this-machine:0"), is_guarded=False)) as sockets:
        assert sockets[0].getsockname()[0] == "127.0.1.1"
    found.append("192.0.2.1")
    with pytest.raises(ConfigurationError, match="--token-file"):
        await bind(parse("this-machine:0"), is_guarded=False)


async def test_a_port_in_use_is_named() -> None:
    with closing(await bind(parse("127.0.0.1:0"), is_guarded=False)) as sockets:
        port = sockets[0].getsockname()[1]
        for text in (f"127.0.0.1:{port}", f":{port}"):
            with pytest.raises(ConfigurationError, match=rf"127\.0\.0\.1:{port} is in use: .*another port"):
                await bind(parse(text), is_guarded=False)


@pytest.mark.skipif(not HAS_IPV6, reason="this machine has no IPv6")
async def test_a_port_in_use_on_the_other_loopback_is_an_error() -> None:
    """Half of the clients that say `localhost` would reach another program."""
    with closing(await bind(parse("[::1]:0"), is_guarded=False)) as sockets:
        port = sockets[0].getsockname()[1]
        with pytest.raises(ConfigurationError, match=rf"\[::1\]:{port} is in use"):
            await bind(parse(f":{port}"), is_guarded=False)
        # What was bound before the error is free again.
        with closing(await bind(parse(f"127.0.0.1:{port}"), is_guarded=False)):
            pass


def refusing(monkeypatch: pytest.MonkeyPatch, hosts: dict[str, int]) -> None:
    """Opening any of these hosts fails with that error number."""
    really = address._open

    def open_(host: str, port: int, listens: bool, is_shared: bool) -> socket.socket:
        if host in hosts:
            raise OSError(hosts[host], "no")
        return really(host, port, listens, is_shared)

    monkeypatch.setattr(address, "_open", open_)


async def test_a_machine_without_ipv6_listens_on_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    refusing(monkeypatch, {"::1": errno.EAFNOSUPPORT})
    with closing(await bind(parse(":0"), is_guarded=False)) as sockets:
        assert [each.getsockname()[0] for each in sockets] == ["127.0.0.1"]


async def test_a_free_port_is_free_on_both_loopbacks(monkeypatch: pytest.MonkeyPatch) -> None:
    refusing(monkeypatch, {"::1": errno.EADDRINUSE})
    with pytest.raises(ConfigurationError, match="choose one"):
        await bind(parse(":0"), is_guarded=False)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (errno.EACCES, "below 1024"),
        (errno.EADDRNOTAVAIL, "not an address of this machine"),
        (errno.EMFILE, "Cannot listen on 127.0.0.1:80: no"),
    ],
)
async def test_what_the_system_refuses_is_explained(monkeypatch: pytest.MonkeyPatch, number: int, text: str) -> None:
    refusing(monkeypatch, {"127.0.0.1": number})
    with pytest.raises(ConfigurationError, match=text):
        await bind(parse("127.0.0.1:80"), is_guarded=False)


async def test_a_host_that_nobody_knows() -> None:
    with pytest.raises(ConfigurationError, match="Cannot listen on no-such-host.invalid:0"):
        await bind(parse("no-such-host.invalid:0"), is_guarded=True)
    with pytest.raises(ConfigurationError, match="not a host name"):
        await bind(Address("a" * 70 + ".example", 0), is_guarded=True)


async def test_a_unix_path_is_no_tcp_address() -> None:
    with pytest.raises(ConfigurationError, match="unix:/run/x"):
        await bind(parse("unix:/run/x"), is_guarded=True)
