"""The documents of proxies and guests, as bytes over HTTP: once, to the frame they are for, with their policy."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from support.preview_stage import Api, api_of, place_of, previewing

from mcpd import Server
from mcpd.apps.preview.preview import Preview

HTML = "<!doctype html><meta charset=utf-8><title>A</title><p>hello</p>"


def _server() -> Server:
    server = Server("garden")
    server.app("bed", HTML, csp={"connectDomains": ["https://api.example"]}, permissions=["camera"])

    @server.tool(ui="ui://garden/bed")
    async def show_bed() -> dict[str, int]:
        return {"rows": 2}

    return server


async def _get(
    preview: Preview, url: str, method: str = "GET", body: bytes = b"", *, port: int = 0, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    host, _, path = url.removeprefix("http://").partition("/")
    given = {"Host": host, "Connection": "close", "Content-Length": str(len(body)), **headers}
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in given.items())
    reader, writer = await asyncio.open_connection("127.0.0.1", port or preview.origins.sandbox_port)
    writer.write(f"{method} /{path} HTTP/1.1\r\n{head}\r\n".encode() + body)
    answer = await reader.read()
    writer.close()
    top, _, content = answer.partition(b"\r\n\r\n")
    first, *fields = top.decode().split("\r\n")
    return int(first.split()[1]), {k.lower(): v for k, v in (f.split(": ", 1) for f in fields)}, content


async def _open(api: Api, call_id: str = "c1") -> Any:
    await api.request("tools/call", callId=call_id, name="show_bed")
    return (await api.request("view/open", callId=call_id))["result"]


async def test_each_document_is_given_once_to_its_frame() -> None:
    """APP-X-07, APP-X-08: unguessable, 410 afterwards; who loads ahead or only looks gets nothing."""
    async with previewing(_server()) as preview, api_of(preview) as api:
        info = await _open(api)
        url = info["proxyUrl"]
        assert len(url.split(".")[0].partition("p-")[2]) == 32
        assert (await _get(preview, url, Sec_Purpose="prefetch;prerender"))[0] == 403
        assert (await _get(preview, url, Purpose="prefetch"))[0] == 403
        assert (await _get(preview, url, Sec_Fetch_Dest="document"))[0] == 403
        assert (await _get(preview, url, "HEAD"))[0] == 403
        assert (await _get(preview, url, Host=f"mcpd.localhost:{preview.origins.sandbox_port}"))[0] == 404
        assert (await _get(preview, url, Host=f"v-0.mcpd.localhost:{preview.origins.sandbox_port}"))[0] == 404

        status, headers, body = await _get(preview, url, Sec_Fetch_Dest="iframe")
        assert status == 200
        assert b"iframe" in body
        assert (await _get(preview, url, Sec_Fetch_Dest="iframe"))[0] == 410

        other = await _open(api, "c2")
        assert other["proxyUrl"] != url
        await api.request("view/close", viewId=other["viewId"])
        assert (await _get(preview, other["proxyUrl"], Sec_Fetch_Dest="iframe"))[0] == 410


async def test_the_policies_are_in_the_headers() -> None:
    """APP-X-01, APP-X-02, APP-X-04: the View's policy on the guest, and who may frame whom."""
    async with previewing(_server(), permissions=("camera",)) as preview, api_of(preview) as api:
        info = await _open(api)
        page = f"http://mcpd.localhost:{preview.origins.port}"
        place = place_of(preview, info["viewId"])
        assert len({page, place.proxy_origin, place.guest_origin}) == 3

        _, headers, body = await _get(preview, info["proxyUrl"])
        policy = headers["content-security-policy"].split("; ")
        assert f"frame-src {place.guest_url}" in policy
        assert f"frame-ancestors {page}" in policy
        assert "default-src 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert b'"sandbox":"allow-scripts allow-same-origin allow-forms"' in body
        assert b'"allow":"camera"' in body
        assert b":root{color-scheme:light dark}" in body  # in the scheme of its frame, which shows through it
        assert info["allow"] == "camera"
        assert info["outerSandbox"] == "allow-scripts allow-same-origin allow-forms"

        _, headers, body = await _get(preview, place.guest_url)
        policy = headers["content-security-policy"].split("; ")
        assert "connect-src 'self' https://api.example" in policy
        assert f"frame-ancestors {place.proxy_origin} {page}" in policy
        assert f"report-uri {place.guest_report}" in policy
        assert headers["content-security-policy"].startswith(info["csp"])
        assert b"hello" not in body  # the document comes by message, from its proxy
        assert info["sha256"]
        assert info["bytes"] == len(HTML)


async def test_an_empty_document_keeps_the_proxies_process() -> None:
    """Under a name that is no View's, and with a policy; Views have processes of their own."""
    async with previewing(_server()) as preview, api_of(preview) as api:
        info = await _open(api)
        warm = f"http://warm.mcpd.localhost:{preview.origins.sandbox_port}/warm"
        for _ in range(2):
            status, headers, body = await _get(preview, warm)
            assert (status, headers["content-security-policy"]) == (200, "default-src 'none'")
            assert b"script" not in body
        assert (await _get(preview, info["proxyUrl"].replace("/proxy", "/warm")))[0] == 404
        _, proxy, body = await _get(preview, info["proxyUrl"])
        (guest_url,) = re.findall(rb'"guestUrl":"([^"]+)"', body)
        _, guest, _ = await _get(preview, guest_url.decode())
        assert ("origin-agent-cluster" in proxy, guest["origin-agent-cluster"]) == (False, "?1")


async def test_no_document_of_a_views_origin_is_without_a_policy() -> None:
    """APP-X-04: a View that may frame its own origin could write scripts into what has none."""
    server = Server("garden")
    server.app("bed", HTML, csp={"frameDomains": ["http://*.mcpd.localhost:*", "https://a.example"]})

    @server.tool(ui="ui://garden/bed", title="Garden\u202e bed\n" + "x" * 1000)
    async def show_bed() -> dict[str, int]:
        return {"rows": 2}

    async with previewing(server) as preview, api_of(preview) as api:
        info = await _open(api)
        assert "frame-src https://a.example; " in info["csp"]
        assert info["title"].startswith("Garden\\u202e bed\\n")  # it stands in the page's own bar
        assert len(info["title"]) < 300

        origin = info["proxyUrl"].removesuffix("/proxy")
        for path in ("/x", "/report"):
            status, headers, _ = await _get(preview, origin + path, Accept="text/html")
            assert status == 404
            assert headers["content-security-policy"] == "default-src 'none'; sandbox"
        assert (await _get(preview, info["proxyUrl"]))[0] == 200
        status, headers, _ = await _get(preview, info["proxyUrl"])
        assert status == 410
        assert headers["content-security-policy"] == "default-src 'none'; sandbox"


async def test_cookies_of_views_are_forgotten_and_close_nothing() -> None:
    """A View can set them for the whole site: as many as a browser keeps, for years."""
    async with previewing(_server()) as preview, api_of(preview) as api:
        cookies = "; ".join(f"c{n}={'x' * 4000}" for n in range(180))
        for url, port in (
            ((await _open(api))["proxyUrl"], preview.origins.sandbox_port),
            (f"http://mcpd.localhost:{preview.origins.port}/", preview.origins.port),
        ):
            status, headers, _ = await _get(preview, url, Cookie=cookies, port=port)
            assert status == 200
            assert headers["clear-site-data"] == '"cookies"'

        _, headers, _ = await _get(preview, url, port=port)
        assert "clear-site-data" not in headers


async def test_what_is_foreign_gets_nothing() -> None:
    async with previewing(_server()) as preview, api_of(preview):
        port = preview.origins.sandbox_port
        for path in ("", "proxy", "guest", "report", "mcp", "healthz", "index.html"):
            assert (await _get(preview, f"http://p-00.mcpd.localhost:{port}/{path}"))[0] == 404
            assert (await _get(preview, f"http://127.0.0.1:{port}/{path}"))[0] == 404
        assert (await _get(preview, f"http://p-00.mcpd.localhost:{port}/report", "POST", b"{}"))[0] == 404
