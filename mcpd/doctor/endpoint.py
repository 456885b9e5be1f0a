"""Does a URL answer as a server does, and if not: where else is it, what else does it want?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urljoin, urlsplit

from mcpd.doctor.dialogue import WITH_HANDSHAKE, WITHOUT_HANDSHAKE, NoAnswer, initialize_params, modern_params
from mcpd.doctor.report import Report
from mcpd.doctor.web import MOST_BYTES, Reply, Web
from mcpd.protocol.printable import printable
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
    if "without end" in text:
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
