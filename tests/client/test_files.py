"""A client sends files: in each era, over HTTP and to a server in this process or a child, small and large ones."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Annotated, Any

import pytest
from support.http_peer import Port, serving
from support.wires import MODERN

from mcpd import Accept, Client, File, FileSettings, Server, SyncFile
from mcpd.errors import LocalProtocolError, ProtocolError
from mcpd.transports.websocket.server import WebSocketListener

SMALL = b"small"
LARGE = b"0123456789abcdef" * (40 << 10)


def a_server(**options: Any) -> Server:
    server = Server("files", **options)

    @server.tool
    async def describe(report: File, more: list[File] | None = None) -> dict[str, Any]:
        return {"name": report.name, "size": report.size, "digest": report.digest, "more": [x.name for x in more or ()]}

    @server.tool
    def length(report: Annotated[SyncFile, Accept("text/plain")]) -> int:
        return len(report.read())

    return server


def wanted(data: bytes, **more: Any) -> dict[str, Any]:
    digest = urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return {"name": "a b.txt", "size": len(data), "digest": digest, "more": [], **more}


def url(port: Port) -> str:
    return f"http://127.0.0.1:{port.number}/mcp"


@pytest.fixture
def files(tmp_path: Path) -> dict[bytes, Path]:
    found = {}
    for number, data in enumerate((SMALL, LARGE)):
        (tmp_path / str(number)).mkdir()
        found[data] = tmp_path / str(number) / "a b.txt"
        found[data].write_bytes(data)
    return found


@pytest.mark.parametrize("data", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25", MODERN])  # older ones do not say what takes a file
async def test_a_path_is_sent_over_http(files: dict[bytes, Path], version: str, data: bytes) -> None:
    """FIL-12: by the extension since 2026-07-28, by a data URI or an upload before."""
    async with serving(a_server()) as port, Client(url(port), version=version) as client:
        assert (await client.call_tool("describe", report=files[data])).structured_content in (None, wanted(data))
        assert await client.call("describe", report=files[data]) == wanted(data)
        both = await client.call("describe", {"report": files[data], "more": [files[SMALL]]})
        assert both == wanted(data, more=["a b.txt"])
        assert await client.call("length", report=files[data]) == len(data)


@pytest.mark.parametrize("data", [SMALL, LARGE], ids=["small", "large"])
async def test_a_path_is_sent_in_a_process(files: dict[bytes, Path], data: bytes) -> None:
    """The extension: a large file is written where the server says."""
    async with Client(a_server()) as client:
        assert await client.call("describe", report=files[data]) == wanted(data)
    async with Client(a_server(), version="2025-11-25") as client:
        if data is SMALL:
            assert await client.call("describe", report=files[data]) == wanted(data)
        else:
            refused = await client.call_tool("describe", {"report": files[data]})
            assert refused.is_error
    allowed = a_server(allow_path=[str(files[data].parent)])
    async with Client(allowed, version="2025-11-25") as client:
        assert await client.call("describe", report=files[data]) == wanted(data)


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_a_server_elsewhere_is_told_no_path_and_chooses_none(
    files: dict[bytes, Path], version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over a WebSocket there are no uploads; the server asks for a path as if it were on this machine."""
    monkeypatch.setattr("mcpd.server.extensions.files.arriving.OPEN_TO_MANY", ("http",))
    monkeypatch.setattr("mcpd.client.files._copy", lambda *_: pytest.fail("a file was written"))
    server = a_server(allow_path=[str(files[LARGE].parent)])
    listener = WebSocketListener("127.0.0.1:0")
    await listener.start(server.connect)
    try:
        async with Client(listener.url, version=version) as client:
            assert await client.call("describe", report=files[SMALL]) == wanted(SMALL)
            with pytest.raises((LocalProtocolError, ProtocolError), match="needs HTTP or stdio|on this machine"):
                await client.call("describe", report=files[LARGE])
    finally:
        await listener.aclose()


async def test_what_the_server_refuses_is_an_error(files: dict[bytes, Path]) -> None:
    server = a_server(file_limits=FileSettings(max_bytes=100_000, max_inline_bytes=10))
    async with serving(server) as port:
        async with Client(url(port)) as client:
            result = await client.call_tool("describe", {"report": files[LARGE]})
            assert "at most 100,000" in result.content[0].text  # type: ignore[union-attr]
        async with Client(url(port), version="2025-11-25") as client:
            with pytest.raises(Exception, match="takes no upload; it answers 413"):
                await client.call_tool("describe", {"report": files[LARGE]})
            with pytest.raises(FileNotFoundError):
                await client.call_tool("describe", {"report": Path("missing.txt")})


async def test_a_path_for_another_parameter_is_not_sent(tmp_path: Path) -> None:
    server = a_server()

    @server.tool
    def where(path: str) -> str:
        return path

    async with Client(server) as client:
        with pytest.raises(LocalProtocolError, match="where|path"):
            await client.call("length", {"report": "x"}, path=tmp_path)
        assert await client.call("where", path=str(tmp_path)) == str(tmp_path)
