"""The guarded fetch, attacked: URLs, names and servers that lead it to where it must not go, or feed it without end."""

from __future__ import annotations

import asyncio
import gzip
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mcpd.auth.fetch import FetchError, Limits, fetch, fetch_json, kind_of_host, reach_from
from mcpd.transports.address import kind_of, may_reach

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]
LOOPBACK = ("loopback",)


class Peer(NamedTuple):
    port: int
    asked: list[bytes]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def reply(body: bytes = b"{}", status: int = 200, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} Word", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@asynccontextmanager
async def peer(*answers: bytes | Answer, tls: ssl.SSLContext | None = None) -> AsyncIterator[Peer]:
    """A server that gives these answers, one to each connection, the last one to all that follow."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            asked.append(head)
            answer = answers[min(len(asked), len(answers)) - 1]
            if isinstance(answer, bytes):
                writer.write(answer)
            else:
                await answer(writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield Peer(server.sockets[0].getsockname()[1], asked)


@asynccontextmanager
async def names(monkeypatch: pytest.MonkeyPatch, **known: list[str]) -> AsyncIterator[list[str]]:
    """Host names that have these addresses; gives what was asked for, in this order."""
    loop = asyncio.get_running_loop()
    true = loop.getaddrinfo
    asked: list[str] = []

    async def resolve(host: Any, port: Any, **more: Any) -> Any:
        found = known.get(str(host).replace(".", "_"))
        if found is None:
            return await true(host, port, **more)
        asked.append(host)
        families = {True: socket.AF_INET6, False: socket.AF_INET}
        return [(families[":" in one], socket.SOCK_STREAM, 6, "", (one, port)) for one in found]

    with monkeypatch.context() as patch:
        patch.setattr(loop, "getaddrinfo", resolve)
        yield asked


async def refused(url: str, **options: Any) -> str:
    with pytest.raises(FetchError) as caught:
        await fetch(url, what="the keys", **options)
    assert caught.value.is_refused, caught.value
    assert str(caught.value).startswith("the keys at ")
    return caught.value.reason


# ------------------------------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    ("kind", "addresses"),
    [
        ("global", "1.1.1.1 93.184.216.34 2606:4700::1111 64:ff9b::101:101 2002:101:101::1"),
        ("loopback", "127.0.0.1 127.9.9.9 ::1 ::ffff:127.0.0.1 64:ff9b::7f00:1 2002:7f00:1::1 ::127.0.0.1"),
        ("private", "10.0.0.1 172.16.3.4 192.168.1.1 100.64.0.1 fd12::1 fc00::1 fec0::1 ::ffff:10.0.0.1 192.0.2.1"),
        ("private", "64:ff9b::a00:1 2001:db8::1 198.18.0.1 64:ff9b:1::a00:1"),
        ("never", "169.254.169.254 fe80::1 fe80::1%1 ::ffff:169.254.169.254 64:ff9b::a9fe:a9fe 2002:a9fe:a9fe::1"),
        ("never", "0.0.0.0 0.1.2.3 :: 224.0.0.1 ff02::1 255.255.255.255 240.0.0.1 168.63.129.16 fd00:ec2::254"),
    ],
)  # fmt: skip
def test_where_addresses_are(kind: str, addresses: str) -> None:
    """AUTH-242, AUTH-243: with the IPv4 address that one of IPv6 stands for."""
    assert {address: kind_of(address) for address in addresses.split()} == dict.fromkeys(addresses.split(), kind)


def test_what_may_be_reached() -> None:
    assert may_reach("global", ())
    assert not may_reach("private", ("loopback",))
    assert may_reach("private", ("private",))
    assert not may_reach("never", ("private", "loopback"))


# ------------------------------------------------------------------------------------------ URLs


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data/",
        "https://169.254.169.254/",
        "https://[::ffff:169.254.169.254]/",
        "https://[::ffff:a9fe:a9fe]/",
        "https://2130706433/",
        "https://0x7f.1/",
        "https://0177.0.0.1/",
        "https://127.1/",
        "https://localhost/",
        "https://LOCALHOST/",
        "https://10.0.0.1/",
        "https://[::1]/",
        "https://0/",
        "https://[64:ff9b::10.0.0.1]/",
    ],
)
async def test_internal_addresses_are_refused_however_they_are_written(url: str) -> None:
    """H20 (AUTH-240 … AUTH-243): for a server that is reached at a global address."""
    assert "address" in await refused(url)


@pytest.mark.parametrize(
    "url", ["https://169.254.169.254/", "https://0.0.0.0/", "https://[fe80::1]/", "https://[ff02::1]/"]
)
async def test_some_addresses_are_never_asked(url: str) -> None:
    assert await refused(url, reach=("private", "loopback")) == "a reserved address, which is not allowed here"


@pytest.mark.parametrize(
    "url",
    [
        "", "x", "//host/x", "file:///etc/passwd", "ftp://example.com/", "javascript:alert(1)", "https://", "https:///x",
        "https://user@1.1.1.1/", "https://u:p@1.1.1.1/", "https://1.1.1.1\\@127.0.0.1/", "https://1.1.1.1\n.evil/",
        "https://1.1.1.1:99999/", "https://1.1.1.1:x/", "https://exa mple.com/", "https://bücher.example/",
        "https://" + "a" * 3000 + "/", "gopher://127.0.0.1:6379/_FLUSHALL", "https://[::1/", "http://1.1.1.1/",
    ],
)  # fmt: skip
async def test_what_is_no_url_of_a_document(url: str) -> None:
    """AUTH-240: https alone, and nothing that two readers could take for two hosts."""
    await refused(url)


async def test_no_secret_of_a_url_is_told() -> None:
    with pytest.raises(FetchError) as caught:
        await fetch("https://user:hunter2@127.0.0.1/x?token=hunter3", what="the metadata")
    assert "hunter" not in str(caught.value)
    with pytest.raises(FetchError) as caught:
        await fetch("https://127.0.0.1/x?token=hunter3", what="the metadata")
    assert "hunter" not in str(caught.value)


# ----------------------------------------------------------------------------------------- names


async def test_one_address_that_may_not_be_asked_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """H20 (AUTH-241): a name with a public and a private address."""
    async with names(monkeypatch, both_example=["1.1.1.1", "10.0.0.7"], localhost_=["127.0.0.1"]):
        assert "a loopback address" in await refused("https://localhost./keys")
        assert "a private address" in await refused("https://both.example/keys")


async def test_the_judged_address_is_the_dialled_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """H20 (AUTH-241): who resolves a second time may get another answer. The name is resolved once, and not here."""
    async with peer(reply(b'{"here":1}')) as server:
        async with names(monkeypatch, rebound_example=["127.0.0.1"]) as asked:
            found, response = await fetch_json(f"http://rebound.example:{server.port}/x", reach=LOOPBACK)
            assert found == {"here": 1}
            assert asked == ["rebound.example"]
            assert response.url.startswith("http://rebound.example:")
        assert f"Host: rebound.example:{server.port}".encode() in server.asked[0]


async def test_whose_kind_the_server_is_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """AUTH-242: a server inside may send us inside, one outside may not."""
    async with names(monkeypatch, corp_example=["10.0.0.1"], out_example=["1.1.1.1"], bad_example=["169.254.1.1"]):
        assert list(await reach_from("https://corp.example/mcp")) == ["private"]
        assert list(await reach_from("https://out.example/mcp")) == []
        assert list(await reach_from("https://bad.example/mcp")) == []
        assert list(await reach_from("http://localhost:1/mcp")) == ["loopback"]
        assert await kind_of_host("https://corp.example/") == "private"
        assert "allowed for loopback only" in await refused("http://corp.example/x", reach=("private", "loopback"))
    with pytest.raises(FetchError, match=r"the host no-such\.invalid cannot be resolved"):
        await kind_of_host("https://no-such.invalid/")


# ------------------------------------------------------------------------------------- redirects


async def test_each_redirect_is_judged() -> None:
    """H21 (AUTH-244)."""
    async with peer(reply(b"", 302, "Location: http://169.254.169.254/latest")) as server:
        assert "a reserved address" in await refused(f"{server.url}/x", reach=LOOPBACK)
    async with peer(reply(b"", 302, "Location: file:///etc/passwd")) as server:
        assert "not an https URL" in await refused(f"{server.url}/x", reach=LOOPBACK)
    async with peer(reply(b"", 302)) as server:
        with pytest.raises(FetchError, match="it redirects without a valid URL"):
            await fetch(f"{server.url}/x", reach=LOOPBACK)


async def test_redirects_are_followed_three_times() -> None:
    again = reply(b"", 307, "Location: /y")
    async with peer(again, again, again, reply(b'{"a":1}')) as server:
        found, response = await fetch_json(f"{server.url}/x", reach=LOOPBACK)
        assert (found, response.url, len(server.asked)) == ({"a": 1}, f"{server.url}/y", 4)
    async with peer(again) as server:
        with pytest.raises(FetchError, match="it redirects more than 3 times"):
            await fetch(f"{server.url}/x", reach=LOOPBACK)
        assert len(server.asked) == 4


async def test_who_follows_no_redirect() -> None:
    """AUTH-045, AUTH-244: a POST, which has credentials, and documents of which the place is fixed."""
    again = reply(b"", 307, "Location: /y")
    for options in ({"method": "POST", "body": b"token=1"}, {"limits": Limits(redirects=0)}):
        async with peer(again) as server:
            with pytest.raises(FetchError, match="it redirects, which is not followed"):
                await fetch(f"{server.url}/x", reach=LOOPBACK, **options)  # type: ignore[arg-type]
            assert len(server.asked) == 1


async def test_credentials_stay_with_their_origin() -> None:
    """AUTH-206: of another port nobody knows whose it is."""
    async with peer(reply(b"{}")) as other:
        async with peer(reply(b"", 302, f"Location: {other.url}/y")) as server:
            sent = {"Authorization": "Bearer hunter2", "MCP-Protocol-Version": "2025-11-25"}
            await fetch_json(f"{server.url}/x", headers=sent, reach=LOOPBACK)
            assert b"hunter2" in server.asked[0]
            assert b"hunter2" not in other.asked[0]
            assert b"MCP-Protocol-Version: 2025-11-25" in other.asked[0]


# --------------------------------------------------------------------------------------- answers


async def test_an_answer_as_it_is() -> None:
    failed = reply(b'{"error":"invalid_grant"}', 400, "X-A: 1", "X-A: 2", "Set-Cookie: a=b")
    async with peer(failed) as server:
        response = await fetch(
            f"{server.url}/token", method="POST", body=b"a=b", headers=[("X-B", "1")], reach=LOOPBACK
        )
        assert (response.status, response.json_object()) == (400, {"error": "invalid_grant"})
        assert response.header("x-a") == "1, 2"
        assert response.header("X-A") == "1, 2"
        assert response.header("x-none") is None
        assert b"Accept-Encoding: identity" in server.asked[0]
        await fetch(f"{server.url}/token", reach=LOOPBACK)
        assert b"Cookie" not in server.asked[1]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (reply(b"x" * 70_000), "it is larger than 65,536 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n", "it is larger than 65,536 bytes"),
        (
            reply(gzip.compress(b"0" * 10_000_000), 200, "Content-Encoding: gzip"),
            "it is compressed (gzip), although it was requested uncompressed",
        ),
        (reply(b"{}", 404), "it answers 404"),
        (reply(b"<html>", 200), "it is not JSON"),
        (reply(b"[" * 60_000), "it is not JSON"),
        (reply(b"\xff\xfe{}"), "it is not JSON"),
        (reply(b"[1]"), "it is JSON, but not an object"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{", "the connection ended before the response was complete"),
        (b"", "the connection ended before the response was complete"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "not an HTTP response: ClientResponseError"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000 + b"\r\n\r\n", "not an HTTP response: ClientResponseError"),
    ],
)
async def test_what_is_no_document(answer: bytes, reason: str) -> None:
    """H5, AUTH-245: bounded, and said in words."""
    async with peer(answer) as server:
        with pytest.raises(FetchError) as caught:
            await fetch_json(f"{server.url}/x", what="the metadata", reach=LOOPBACK)
        assert str(caught.value) == f"the metadata at {server.url}/x: {reason}"
        assert not caught.value.is_refused


async def test_a_body_without_end() -> None:
    """AUTH-245: what comes in pieces is counted as it comes."""

    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"1000\r\n" + b"x" * 4096 + b"\r\n")
            await writer.drain()

    async with peer(endless) as server:
        with pytest.raises(FetchError, match="it is larger than 65,536 bytes"):
            await fetch(f"{server.url}/x", reach=LOOPBACK)


@pytest.mark.medium
async def test_an_answer_that_never_ends() -> None:
    """AUTH-245: the time is that of the whole, and counts redirects too."""
    gone = asyncio.Event()

    async def slow(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{")
        await writer.drain()
        await gone.wait()

    async with peer(reply(b"", 302, "Location: /y"), slow) as server:
        with pytest.raises(FetchError, match=r"/y: no complete response within 0\.3 s"):
            await fetch(f"{server.url}/x", reach=LOOPBACK, limits=Limits(seconds=0.3))
        gone.set()


async def test_nobody_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(FetchError, match="cannot connect: Connect call failed") as caught:
        await fetch(f"http://127.0.0.1:{port}/x", reach=LOOPBACK)
    assert not caught.value.is_refused


# ------------------------------------------------------------------------------------------- TLS


def contexts(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """For a server that is known.example, and for who trusts it."""
    path = tmp_path / "both.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "7",
         "-subj", "/CN=here", "-addext", "subjectAltName=DNS:known.example", "-keyout", path, "-out", f"{path}.crt"],
        check=True, capture_output=True,
    )  # fmt: skip
    inside = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    inside.load_cert_chain(f"{path}.crt", path)
    return inside, ssl.create_default_context(cafile=f"{path}.crt")


async def test_certificates_are_checked_by_the_name_that_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AUTH-241: the address is dialled, the name is what the certificate has to have."""
    inside, trusting = contexts(tmp_path)
    async with peer(reply(b'{"a":1}'), tls=inside) as server:
        async with names(monkeypatch, known_example=["127.0.0.1"], other_example=["127.0.0.1"]):
            url = f"https://known.example:{server.port}/x"
            assert (await fetch_json(url, reach=LOOPBACK, tls=trusting))[0] == {"a": 1}
            with pytest.raises(FetchError, match="its certificate is not trusted: self-signed certificate"):
                await fetch(url, reach=LOOPBACK)
            with pytest.raises(FetchError, match="its certificate is not trusted: Hostname mismatch"):
                await fetch(url.replace("known", "other"), reach=LOOPBACK, tls=trusting)

    async with peer(reply()) as plain, peer(reply(b"", 302, f"Location: {plain.url}/x"), tls=inside) as server:
        async with names(monkeypatch, known_example=["127.0.0.1"]):
            with pytest.raises(FetchError, match="to http, from https"):
                await fetch(f"https://known.example:{server.port}/x", reach=LOOPBACK, tls=trusting)
    assert plain.asked == []


# --------------------------------------------------------------------------------------- proxies


@asynccontextmanager
async def proxy(monkeypatch: pytest.MonkeyPatch, to: int, word: str = "200 Connected") -> AsyncIterator[list[str]]:
    """The proxy of the environment, which leads all that asks to one port of this machine; gives what it was asked."""
    heads: list[str] = []

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(4096):
            writer.write(data)
        writer.close()

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(f"HTTP/1.1 {word}\r\n\r\n".encode())
        if word.startswith("200"):
            there_in, there_out = await asyncio.open_connection("127.0.0.1", to)
            await asyncio.gather(copy(reader, there_out), copy(there_in, writer))
        writer.close()

    server = await asyncio.start_server(tunnel, "127.0.0.1", 0)
    async with server:
        with monkeypatch.context() as patch:
            for name in ("no_proxy", "NO_PROXY"):
                patch.delenv(name, raising=False)
            patch.setenv("https_proxy", f"http://ada:hunter2@127.0.0.1:{server.sockets[0].getsockname()[1]}")
            yield heads


async def test_a_proxy_of_the_environment_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """AUTH-240 … 242: also for names that only it knows; what this machine knows of a host is judged before."""
    inside, trusting = contexts(tmp_path)
    url = "https://known.example/x"
    async with (
        peer(reply(b'{"a":1}'), tls=inside) as server,
        proxy(monkeypatch, server.port) as heads,
        names(monkeypatch, corp_example=["10.0.0.1"], meta_example=["169.254.169.254"], out_example=["1.1.1.1"]),
    ):
        assert (await fetch_json(url, tls=trusting))[0] == {"a": 1}
        assert heads[0].startswith("CONNECT known.example:443 ")
        assert "Proxy-Authorization: Basic YWRhOmh1bnRlcjI=" in heads[0]
        assert b"hunter2" not in server.asked[0]
        assert list(await reach_from(url)) == []
        with pytest.raises(FetchError, match="its certificate is not trusted"):
            await fetch(url)

        asked = len(heads)
        assert "a private address" in await refused("https://corp.example/x")
        assert "a reserved address" in await refused("https://meta.example/x", reach=("private", "loopback"))
        assert "a reserved address" in await refused("https://169.254.169.254/x")
        with pytest.raises(FetchError, match="cannot be resolved"):
            await fetch(url, proxies=False)
        monkeypatch.setenv("no_proxy", "known.example")
        with pytest.raises(FetchError, match="cannot be resolved"):
            await fetch(url)
        # What is on this machine is on no other.
        assert (await fetch(f"https://127.0.0.1:{server.port}/x", reach=LOOPBACK, tls=_careless())).status == 200
        assert len(heads) == asked


async def test_a_proxy_that_is_of_no_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named without its password."""
    async with proxy(monkeypatch, 1, "407 Proxy Authentication Required"):
        with pytest.raises(FetchError, match="the proxy refused the connection: 407") as caught:
            await fetch("https://known.example/x")
        assert "hunter2" not in str(caught.value)
    monkeypatch.setenv("https_proxy", "http://ada:hunter2@127.0.0.1:1")
    with pytest.raises(FetchError, match="cannot connect to the proxy") as caught:
        await fetch("https://known.example/x")
    assert "hunter2" not in str(caught.value)
    monkeypatch.setenv("https_proxy", "socks5://127.0.0.1:1")
    with pytest.raises(FetchError, match="socks5 proxies are not supported"):
        await fetch("https://known.example/x")


def _careless() -> ssl.SSLContext:
    found = ssl.create_default_context()
    found.check_hostname, found.verify_mode = False, ssl.CERT_NONE
    return found
