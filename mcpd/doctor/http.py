"""Tries a server that speaks HTTP: its endpoint, who may use it, what it streams, and the versions that it takes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import ip_address
from typing import Any
from urllib.parse import urljoin, urlsplit

from mcpd.client.targets.named import UrlTarget
from mcpd.doctor.conversation import try_client
from mcpd.doctor.dialogue import (
    WITH_HANDSHAKE,
    WITHOUT_HANDSHAKE,
    NoAnswer,
    has_handshake,
    initialize_params,
    modern_params,
)
from mcpd.doctor.login import judge_refusal, walk_discovery
from mcpd.doctor.report import Report
from mcpd.doctor.web import MOST_BYTES, Reply, Web
from mcpd.protocol.printable import printable
from mcpd.protocol.versions import table
from mcpd.transports.client_authorization import advice_on

_GUESSES = ("/mcp", "/mcp/", "/sse", "/", "/api/mcp", "/v1/mcp", "/message")


class Endpoint:
    """What is known of a URL that answers."""

    def __init__(self, web: Web, reply: Reply, *, is_modern_only: bool = False, is_old: bool = False) -> None:
        self.web = web
        self.reply = reply
        """The answer to the first request."""
        self.wants_handshake = not is_modern_only
        self.is_old = is_old
        """It speaks the transport of 2024-11-05: HTTP+SSE."""

    @property
    def session(self) -> str | None:
        """The id of the session that the first request has opened."""
        return self.reply.headers.get("mcp-session-id")


def hello(version: str) -> dict[str, Any]:
    """The first request of a host."""
    return {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize_params(version)}


def discover(version: str) -> dict[str, Any]:
    """The first request of a host in versions without a handshake."""
    return {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": modern_params(version)}


def modern_headers(version: str, method: str) -> dict[str, str]:
    """The headers of a request in such a version."""
    return {"MCP-Protocol-Version": version, "Mcp-Method": method}


def opening_of(reply: Reply) -> Mapping[str, Any] | None:
    """What a server says of itself in its first answer."""
    result = None if reply.message is None else reply.message.get("result")
    return result if isinstance(result, dict) else None


async def find_endpoint(web: Web, report: Report) -> Endpoint | None:
    """Say hello, and judge the answer. 401 is an endpoint, too; its token is another step's matter."""
    try:
        reply = await web.post(hello(WITH_HANDSHAKE))
    except NoAnswer as error:
        report.fail("endpoint", f"the server {error}", _after_silence(str(error)))
        return None

    opening = opening_of(reply)
    if opening is not None and "protocolVersion" in opening:
        _say_found(web, reply, report)
        return Endpoint(web, reply)
    if reply.status == 401:
        return Endpoint(web, reply)
    newest = WITHOUT_HANDSHAKE
    try:
        modern = await web.post(discover(newest), modern_headers(newest, "server/discover"))
    except NoAnswer:
        modern = reply
    if (opening := opening_of(modern)) is not None and "supportedVersions" in opening:
        _say_found(web, modern, report)
        return Endpoint(web, modern, is_modern_only=True)

    if await _has_old_transport(web, web.target.url):
        advice = 'hosts need "type": "sse" in its entry; update the server: hosts are giving this transport up'
        report.warn("endpoint", "speaks HTTP+SSE, the transport of 2024-11-05", advice)
        return Endpoint(web, reply, is_old=True)
    await _guess(web, reply, report)
    return None


def _after_silence(text: str) -> str:
    if "within" in text:
        return "is it at work on something else, or not HTTP at all? Look in its log; raise --timeout if it is slow"
    if "redirects too often" in text:
        return "it sends every request back to itself: look at the rules of the server, or of the proxy in front of it"
    return "give the URL itself that it is at"


def _say_found(web: Web, reply: Reply, report: Report) -> None:
    asked = web.target.url.partition("?")[0]
    if reply.url.partition("?")[0] != asked:
        text = f"{printable(asked)} sends on to {printable(reply.url)}"
        report.warn("endpoint", text, "give hosts that URL: not all of them follow", seconds=reply.head_seconds)
    else:
        how = "in an event stream" if reply.kind == "text/event-stream" else "as JSON"
        report.ok("endpoint", f"POST {urlsplit(asked).path} is answered {how}", seconds=reply.head_seconds)


async def _guess(web: Web, reply: Reply, report: Report) -> None:
    """Say what is wrong with an answer, and look for the endpoint where others have theirs."""
    said = f": {reply.first_line}" if reply.first_line and reply.kind != "text/html" else ""
    if len(reply.body) >= MOST_BYTES:
        said = f", and with more than {MOST_BYTES // 1024 // 1024} MiB"

    path = urlsplit(web.target.url).path or "/"
    for guess in _GUESSES:
        if guess == path:
            continue
        url = urljoin(web.target.url, guess)
        if await _answers(web, url):
            report.fail("endpoint", f"no server at {path} (status {reply.status}{said})", f"it is at {url}")
            return
        if guess == "/sse" and await _has_old_transport(web, url):
            advice = f'it speaks HTTP+SSE of 2024-11-05 at {url}: write that, with "type": "sse" in hosts'
            report.fail("endpoint", f"no server at {path} (status {reply.status}{said})", advice)
            return

    tried = ", ".join(guess for guess in _GUESSES if guess != path)
    has_token = any(name.lower() == "authorization" for name in web.target.headers)
    text = f"POST {path} is answered with status {reply.status}{said}"
    report.fail("endpoint", text, _advice(reply, tried, has_token))


def _advice(reply: Reply, tried: str, has_token: bool) -> str:
    status = reply.status
    if reply.kind == "text/html" and status < 400:
        return f"this is a web page; what is the URL of the MCP endpoint? It is not at {tried}, either"
    if status in (404, 405, 410, 501):
        return f"is the path right? There is no server at {tried}, either"
    if status == 403:
        challenge = reply.headers.get("www-authenticate", "")
        advice = advice_on(status, [challenge] if challenge else [], reply.first_line, has_token=has_token)
        return advice or "the server does not let this request in, for the reason that it names"
    if status in (406, 415):
        return "it has to take POST with Content-Type: application/json and Accept: application/json, text/event-stream"
    if status == 421:
        return "the proxy in front of it does not know this name: is Host what it expects?"
    if status == 429:
        return "it takes no more for now: try again later"
    if status >= 500:
        return "it, or the proxy in front of it, is broken or just starting: look in its log"
    if status == 400:
        return (
            "answer `initialize` in every version: hosts that get 400 go on with the transport of 2024-11-05, and fail"
        )
    return "answer `initialize` with a JSON-RPC result that has protocolVersion, capabilities and serverInfo"


async def _answers(web: Web, url: str) -> bool:
    try:
        reply = await web.post(hello(WITH_HANDSHAKE), url=url)
    except NoAnswer:
        return False
    return opening_of(reply) is not None or (reply.status == 401 and "www-authenticate" in reply.headers)


async def _has_old_transport(web: Web, url: str) -> bool:
    """Whether GET opens a stream that begins with the event `endpoint`."""
    try:
        reply = await web.ask(
            "GET", {"Accept": "text/event-stream"}, url=url, until=lambda data: b"\n\n" in data.replace(b"\r", b"")
        )
    except NoAnswer:
        return False
    return reply.kind == "text/event-stream" and b"event: endpoint" in reply.body.replace(
        b"event:endpoint", b"event: endpoint"
    )


_STRANGER = "https://stranger.example"
_NEEDED = ("content-type", "authorization", "mcp-protocol-version", "mcp-session-id")


async def try_exposure(web: Web, report: Report, *, wants_handshake: bool) -> None:
    """Ask as a stranger's page would, and as a browser does before it lets a page ask."""
    is_local = is_loopback(web.target)
    origin = await _ask(web, {"Origin": _STRANGER}, wants_handshake)
    if origin is None:
        report.skip("Origin", "no answer to a request with another Origin")
    elif not _is_taken(origin):
        report.ok("Origin", f"a stranger's web page is refused (status {origin.status})")
    elif is_local:
        text = f"a web page of {_STRANGER} may use this server, and so may every page that you open"
        report.fail("Origin", text, "answer 403 to an Origin that is not yours")
    else:
        text = "web pages of all origins are taken"
        report.warn("Origin", text, "answer 403 to those that you do not know, unless each request needs a token")

    if is_local and web.target.socket is None:
        await _try_host(web, report, wants_handshake)
    await _try_cors(web, report)


async def _ask(web: Web, headers: dict[str, str], wants_handshake: bool) -> Reply | None:
    newest = WITHOUT_HANDSHAKE
    try:
        if wants_handshake:
            return await web.post(hello(WITH_HANDSHAKE), headers)
        return await web.post(discover(newest), {**modern_headers(newest, "server/discover"), **headers})
    except NoAnswer:
        return None


def _is_taken(reply: Reply) -> bool:
    return reply.status < 300 and opening_of(reply) is not None


async def _try_host(web: Web, report: Report, wants_handshake: bool) -> None:
    """A stranger's name can point to this machine: a page of theirs is then of the same origin."""
    host = await _ask(web, {"Host": "stranger.example"}, wants_handshake)
    if host is None or not _is_taken(host):
        status = "" if host is None else f" (status {host.status})"
        report.ok("Host", f"other names than this machine's are refused{status}")
    else:
        text = "requests to stranger.example are taken, a name that anybody can point to this machine"
        report.fail("Host", text, "answer 403 or 421 to a Host that is not localhost or 127.0.0.1")


async def _try_cors(web: Web, report: Report) -> None:
    """Whether pages may use it, as some hosts are pages; if they may, whether with all that they need."""
    headers = {
        "Origin": _STRANGER,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": ", ".join(_NEEDED),
    }
    try:
        reply = await web.ask("OPTIONS", headers)
    except NoAnswer:
        report.skip("CORS", "no answer to OPTIONS")
        return
    allowed = reply.headers.get("access-control-allow-origin")
    if allowed is None or reply.status >= 400:
        report.ok("CORS", "pages of other origins are not let in; hosts that are web pages need a proxy of their own")
        return
    fields = reply.headers.get("access-control-allow-headers", "").lower()
    names = {name.strip() for name in fields.split(",")}
    missing = [name for name in _NEEDED if name not in names and ("*" not in names or name == "authorization")]
    if missing:
        text = f"{printable(allowed)} may ask, but not with {', '.join(missing)}"
        more = "and Mcp-Session-Id to Access-Control-Expose-Headers"
        advice = f"add {', '.join(missing)} to Access-Control-Allow-Headers, {more}"
        report.warn("CORS", text, advice)
    else:
        report.ok("CORS", f"pages of {printable(allowed)} may ask")


_SECONDS = 5.0
"""How long a stream may take to begin."""

_SLOW_SECONDS = 1.0


async def try_streams(endpoint: Endpoint, report: Report) -> None:
    """Open the stream on which a server tells what changes, and see when it begins."""
    web, patience = endpoint.web, endpoint.web.timeout
    web.timeout = min(patience, _SECONDS)
    began = time.monotonic()
    try:
        if endpoint.wants_handshake:
            version = WITH_HANDSHAKE
            fields = {"Accept": "text/event-stream", "MCP-Protocol-Version": version}
            if endpoint.session is not None:
                fields["Mcp-Session-Id"] = endpoint.session
            reply = await web.ask("GET", fields, until=lambda data: True)
        else:
            version = WITHOUT_HANDSHAKE
            params = modern_params(version, {"notifications": {"toolsListChanged": True}})
            message = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
            reply = await web.post(message, modern_headers(version, "subscriptions/listen"))
    except NoAnswer:
        text = f"a stream did not begin within {web.timeout:g} s"
        report.warn("streams", text, _HOW, seconds=time.monotonic() - began)
        return
    finally:
        web.timeout = patience
    _judge(reply, report)


_HOW = (
    "a proxy in front of it keeps back what it gets: switch its buffering off (nginx: proxy_buffering off, or let the "
    "server send X-Accel-Buffering: no), and its compression of event streams"
)


def _judge(reply: Reply, report: Report) -> None:
    through = reply.headers.get("via") or reply.headers.get("server") or ""
    named = f", through {printable(through)}" if through else ""
    if reply.kind != "text/event-stream":
        report.ok(
            "streams", f"it has none to listen on (status {reply.status}): changes are not told", status=reply.status
        )
    elif reply.headers.get("content-encoding", "identity") != "identity":
        text = f"the stream is compressed ({printable(reply.headers['content-encoding'])}){named}"
        report.warn("streams", text, _HOW)
    elif reply.head_seconds > _SLOW_SECONDS:
        report.warn("streams", f"one began after {reply.head_seconds:.1f} s{named}", _HOW, seconds=reply.head_seconds)
    else:
        report.ok("streams", f"one began at once{named}", seconds=reply.head_seconds)


async def try_http(target: UrlTarget, report: Report, timeout: float) -> None:
    """All steps behind the way to it. `timeout` is how many seconds the server has for each answer."""
    web = Web(target, timeout)
    endpoint = await find_endpoint(web, report)
    if endpoint is None:
        return
    if endpoint.reply.status == 401:
        await judge_refusal(web, endpoint.reply, report)
        has_token = any(name.lower() == "authorization" for name in target.headers)
        if report.works and await walk_discovery(web, endpoint.reply, report) and not has_token:
            await try_client(target, report, timeout)
        return
    if endpoint.is_old:
        await try_client(target, report, timeout)
        return
    await _try_without_token(web, report, wants_handshake=endpoint.wants_handshake)
    await try_exposure(web, report, wants_handshake=endpoint.wants_handshake)
    await try_streams(endpoint, report)
    await _let_go(endpoint)
    await try_client(target, report, timeout)
    await _try_versions(web, report)


async def _try_without_token(web: Web, report: Report, *, wants_handshake: bool) -> None:
    """Whether the token that was given is wanted at all."""
    if not any(name.lower() == "authorization" for name in web.target.headers):
        report.ok("token", "none is wanted")
        return
    newest = WITHOUT_HANDSHAKE
    plain = Web(UrlTarget(web.target.url, {}, web.target.socket, web.target.ca_file), web.timeout)
    try:
        if wants_handshake:
            reply = await plain.post(hello(WITH_HANDSHAKE))
        else:
            reply = await plain.post(discover(newest), modern_headers(newest, "server/discover"))
    except NoAnswer:
        report.skip("token", "no answer to a request without the token")
        return
    if opening_of(reply) is not None:
        report.warn("token", "the server answers without it, too", "is it checked later, or not at all?")
    else:
        report.ok("token", f"it is taken, and without it comes status {reply.status}")


async def _let_go(endpoint: Endpoint) -> None:
    """End the session that the first request has opened."""
    if endpoint.session is not None:
        fields = {"Mcp-Session-Id": endpoint.session, "MCP-Protocol-Version": WITH_HANDSHAKE}
        try:
            await endpoint.web.ask("DELETE", fields)
        except NoAnswer:
            return


async def _try_versions(web: Web, report: Report) -> None:
    """Each version of the protocol with a request of its own."""
    tried = await asyncio.gather(*(_try_version(web, version) for version in table.SUPPORTED))
    taken = [version for version, is_taken in zip(table.SUPPORTED, tried, strict=True) if is_taken]
    others = [version for version in table.SUPPORTED if version not in taken]
    not_taken = f"not {', '.join(others)}" if others else ""
    if not taken:
        report.fail("versions", "none that is known", "answer `initialize` with a version that there is")
    elif taken[0] == WITHOUT_HANDSHAKE or WITH_HANDSHAKE in taken:
        report.ok("versions", ", ".join(taken), advice=not_taken, taken=taken)
    else:
        report.warn("versions", ", ".join(taken), "update the library that the server is built on", taken=taken)


async def _try_version(web: Web, version: str) -> bool:
    try:
        if has_handshake(version):
            reply = await web.post(hello(version))
            opening = opening_of(reply) or {}
            await _let_go(Endpoint(web, reply))
            return bool(opening.get("protocolVersion") == version)
        reply = await web.post(discover(version), modern_headers(version, "server/discover"))
    except NoAnswer:
        return False
    offered = (opening_of(reply) or {}).get("supportedVersions")
    return isinstance(offered, list) and version in offered


def is_loopback(target: UrlTarget) -> bool:
    """Whether the server is on this machine, for this machine."""
    if target.socket is not None:
        return True
    host = urlsplit(target.url).hostname or ""
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost" or host.endswith(".localhost")
