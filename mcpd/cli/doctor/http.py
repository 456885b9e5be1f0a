"""Tries a server that speaks HTTP: its endpoint, its access rules, its login, its streams, and its versions."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import suppress
from urllib.parse import urljoin, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from mcpd.client.auth.discovery import Discovery, Lookup, challenge_of, discover, plain_url
from mcpd.client.auth.steps import Network, run
from mcpd.client.http.options import has_login
from mcpd.client.targets.named import UrlTarget
from mcpd.errors import AuthorizationFailed
from mcpd.protocol.printable import printable
from mcpd.protocol.versions import table
from mcpd.transports.address import is_loopback_url
from mcpd.transports.challenge import advice_on, parse
from .dialogue import (
    WITH_HANDSHAKE,
    WITHOUT_HANDSHAKE,
    NoAnswer,
    has_handshake,
    judge_versions,
)
from .offers import try_client
from .report import Report
from .web import MAX_BYTES, Reply, Web


async def judge_refusal(web: Web, reply: Reply, report: Report) -> bool:
    """Judge a 401, and follow the way to a login as our client does. Returns whether the user is logged in."""
    url = plain_url(web.target.url)
    field = reply.headers.get("www-authenticate", "")
    challenges = parse([field] if field else [])
    params = {name: value for challenge in challenges for name, value in challenge.params.items()}
    if web.has_token:
        reason = printable(params.get("error_description", "")) or reply.first_line or "without a reason"
        text = f"the server refuses the token (401): {reason}"
        report.fail("token", text, "is it for this server, and still valid? Get a new one")
    elif not any(challenge.is_of("Bearer") for challenge in challenges):
        how = f"with {printable(field)}" if field else "without the header WWW-Authenticate"
        advice = 'answer with WWW-Authenticate: Bearer resource_metadata="…", from which hosts learn where to log in'
        report.warn("token", f"it is needed, and the 401 comes {how}", advice)
    else:
        login = f"log in: mcpd login {printable(url)}; or " if "resource_metadata" in params else ""
        advice = f"{login}pass one with --token-file FILE; nothing else is tried without it"
        report.ok("token", "it is needed (401 with a challenge)", advice=advice)

    lookups: list[Lookup] = []
    try:
        found = await run(discover(url, challenge_of(challenges), lookups=lookups), Network(url))
    except AuthorizationFailed as error:
        failed = [lookup for lookup in lookups if not lookup.is_good]
        text = str(error)
        # A faulty document explains more than a missing one.
        for lookup in sorted(failed, key=lambda each: each.result.isdigit())[:1]:
            text = f"{lookup.what} at {printable(lookup.url, 300)}: {printable(lookup.result, 300)}"
        advice = "hosts stop there, and so does mcpd login: fix that first"
        report.fail("sign-in" if len(failed) == len(lookups) else "login", text, advice, looked=_members(lookups))
        return False

    issuer = printable(found.server.issuer, 200)
    if found.metadata is None:
        text = f"tokens come from {issuer} by the rules of 2025-03-26: the server has no protected resource metadata"
        report.warn("sign-in", text, "serve it (RFC 9728), because newer hosts use nothing else")
    else:
        report.ok("sign-in", f"tokens come from {issuer}", issuers=found.metadata.authorization_servers)
    fault, advice = _fault_of(found)
    if fault:
        report.warn("login", fault, advice, looked=_members(lookups))
    else:
        report.ok("login", f"mcpd login {found.resource} leads to {issuer}", looked=_members(lookups))
    if web.has_token or not has_login(url):
        return False
    report.ok("logged in", "the login of mcpd login is used from here on")
    return True


def _fault_of(found: Discovery) -> tuple[str, str]:
    server, metadata = found.server, found.metadata
    issuer = printable(server.issuer, 200)
    if server.authorization_endpoint is None:
        return f"{issuer} has no authorization_endpoint", "only programs can get tokens there, not people"
    if not server.is_guessed and "S256" not in (server.challenge_methods or ()):
        advice = 'add "code_challenge_methods_supported": ["S256"]: otherwise hosts refuse it'
        return f"{issuer} does not list PKCE with S256", advice
    if metadata is not None and "offline_access" in (metadata.scopes_supported or ()):
        text = "the resource metadata lists offline_access, which is not a scope of the server"
        return text, "remove it from scopes_supported: hosts add it where the issuer lists it"
    if server.takes_documents and "none" not in (server.auth_methods or ()):
        text = f"{issuer} accepts metadata documents as client ids, but does not list none as an authentication method"
        return text, "add none to token_endpoint_auth_methods_supported: Claude cannot log in without it"
    if server.registration_endpoint is None and not server.takes_documents:
        text = f"{issuer} does not let hosts register themselves"
        return text, "people have to enter a client id by hand: allow registration, or client id metadata documents"
    return "", ""


def _members(lookups: list[Lookup]) -> list[dict[str, str]]:
    return [
        {"document": each.what, "url": printable(each.url, 300), "found": printable(each.result, 300)}
        for each in lookups
    ]


_GUESSES = ("/mcp", "/mcp/", "/sse", "/", "/api/mcp", "/v1/mcp", "/message")


class Endpoint(Struct, frozen=True):
    """A URL at which a server answers."""

    web: Web
    # The response to the first request.
    reply: Reply
    # The version of the first request.
    version: str = WITH_HANDSHAKE
    # Whether it speaks HTTP+SSE, the transport of 2024-11-05.
    is_old: bool = False

    @property
    def session(self) -> str | None:
        """The id of the session that the first request has opened."""
        return self.reply.headers.get("mcp-session-id")


async def find_endpoint(web: Web, report: Report) -> Endpoint | None:
    """Send the first request, and judge the response. A 401 also comes from an endpoint; `login` judges it."""
    try:
        reply = await web.greet(WITH_HANDSHAKE)
    except NoAnswer as error:
        advice = "use the URL of the server itself"
        if "within" in str(error):
            advice = "is it busy, or does it not speak HTTP at all? Look into its log; raise --timeout if it is slow"
        elif "redirects too often" in str(error):
            advice = "it redirects every request to itself: check the rules of the server, or of the proxy before it"
        report.fail("endpoint", f"the server {error}", advice)
        return None

    if "protocolVersion" in (reply.opening or {}):
        _report_endpoint(web, reply, report)
        return Endpoint(web, reply)
    # A server that needs a token refuses a request before it reads the message.
    if reply.status == 401:
        return Endpoint(web, reply)
    modern = await _greet(web, WITHOUT_HANDSHAKE)
    if modern is not None and "supportedVersions" in (modern.opening or {}):
        _report_endpoint(web, modern, report)
        return Endpoint(web, modern, version=WITHOUT_HANDSHAKE)

    if await _has_old_transport(web, web.target.url):
        advice = 'hosts need "type": "sse" in its entry; update the server, because hosts are dropping this transport'
        report.warn("endpoint", "speaks HTTP+SSE, the transport of 2024-11-05", advice)
        return Endpoint(web, reply, is_old=True)
    await _guess(web, reply, report)
    return None


def _report_endpoint(web: Web, reply: Reply, report: Report) -> None:
    asked = web.target.url.partition("?")[0]
    if reply.url.partition("?")[0] != asked:
        text = f"{printable(asked)} redirects to {printable(reply.url)}"
        advice = "give hosts that URL, because not all of them follow redirects"
        report.warn("endpoint", text, advice, seconds=reply.head_seconds)
    else:
        how = "in an event stream" if reply.kind == "text/event-stream" else "as JSON"
        report.ok("endpoint", f"POST {urlsplit(asked).path} is answered {how}", seconds=reply.head_seconds)


async def _guess(web: Web, reply: Reply, report: Report) -> None:
    said = f": {reply.first_line}" if reply.first_line and reply.kind != "text/html" else ""
    if len(reply.body) >= MAX_BYTES:
        said = f", and with more than {MAX_BYTES // 1024 // 1024} MiB"

    path = urlsplit(web.target.url).path or "/"
    text = f"no server at {path} (status {reply.status}{said})"
    guesses = [guess for guess in _GUESSES if guess != path]
    for guess in guesses:
        url = urljoin(web.target.url, guess)
        answer = await _greet(web, WITH_HANDSHAKE, url=url)
        is_refusal = answer is not None and answer.status == 401 and "www-authenticate" in answer.headers
        if answer is not None and (answer.opening is not None or is_refusal):
            report.fail("endpoint", text, f"it is at {url}")
            return
        if guess == "/sse" and await _has_old_transport(web, url):
            advice = f'it speaks HTTP+SSE of 2024-11-05 at {url}: use that URL, with "type": "sse" in hosts'
            report.fail("endpoint", text, advice)
            return

    tried = ", ".join(guesses)
    text = f"POST {path} is answered with status {reply.status}{said}"
    report.fail("endpoint", text, _advice(reply, tried, web.has_token))


def _advice(reply: Reply, tried: str, has_token: bool) -> str:
    status = reply.status
    if reply.kind == "text/html" and status < 400:
        return f"this is a web page. What is the URL of the MCP endpoint? It is not at {tried} either"
    if status in (404, 405, 410, 501):
        return f"is the path right? No server answers at {tried} either"
    if status == 403:
        challenge = reply.headers.get("www-authenticate", "")
        advice = advice_on(status, [challenge] if challenge else [], reply.first_line, has_token=has_token)
        return advice or "the server forbids this request for the reason that it gives"
    if status in (406, 415):
        return "accept POST with Content-Type: application/json and Accept: application/json, text/event-stream"
    if status == 421:
        return "the proxy in front of it does not know this host name: is the Host header right?"
    if status == 429:
        return "the server limits its requests: try again later"
    if status >= 500:
        return "the server, or the proxy in front of it, is broken or still starting: look into its log"
    if status == 400:
        return "answer `initialize` in every version: after a 400 hosts try the transport of 2024-11-05, and fail"
    return "answer `initialize` with a JSON-RPC result that has protocolVersion, capabilities and serverInfo"


async def _has_old_transport(web: Web, url: str) -> bool:
    fields = {"Accept": "text/event-stream"}
    try:
        reply = await web.ask("GET", fields, url=url, until=lambda data: b"\n\n" in data.replace(b"\r", b""))
    except NoAnswer:
        return False
    return reply.kind == "text/event-stream" and re.search(rb"event: ?endpoint", reply.body) is not None


_STRANGER = "https://stranger.example"
_NEEDED = ("content-type", "authorization", "mcp-protocol-version", "mcp-session-id")


async def try_exposure(web: Web, version: str, report: Report) -> None:
    """Send requests as a web page of another origin would, and the preflight that a browser sends first."""
    is_local = web.target.socket is not None or is_loopback_url(web.target.url)
    origin = await _greet(web, version, {"Origin": _STRANGER})
    if origin is None:
        report.skip("Origin", "no answer to a request with another Origin")
    elif not _is_accepted(origin):
        report.ok("Origin", f"web pages of other origins are refused (status {origin.status})")
    elif is_local:
        text = f"a web page of {_STRANGER} can use this server, and so can every page that you open"
        report.fail("Origin", text, "answer 403 to requests with an Origin that is not yours")
    else:
        text = "web pages of all origins are accepted"
        report.warn("Origin", text, "answer 403 to unknown origins, unless each request needs a token")

    if is_local and web.target.socket is None:
        await _try_host(web, version, report)
    await _try_cors(web, report)


async def _greet(
    web: Web, version: str, headers: dict[str, str] | None = None, *, url: str | None = None
) -> Reply | None:
    try:
        return await web.greet(version, headers, url=url)
    except NoAnswer:
        return None


def _is_accepted(reply: Reply) -> bool:
    return reply.status < 300 and reply.opening is not None


async def _try_host(web: Web, version: str, report: Report) -> None:
    # Anybody's host name can point to this machine; to the browser, a page of that name then has the server's origin.
    host = await _greet(web, version, {"Host": "stranger.example"})
    if host is None or not _is_accepted(host):
        status = "" if host is None else f" (status {host.status})"
        report.ok("Host", f"host names of other machines are refused{status}")
    else:
        text = "requests to stranger.example are accepted, and anybody can point such a name to this machine"
        report.fail("Host", text, "answer 403 or 421 to a Host that is not localhost or 127.0.0.1")


async def _try_cors(web: Web, report: Report) -> None:
    # Some hosts are web pages, which need access from their origin and with all their headers.
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
        report.ok("CORS", "pages of other origins are refused; hosts that are web pages need a proxy of their own")
        return
    fields = reply.headers.get("access-control-allow-headers", "").lower()
    names = {name.strip() for name in fields.split(",")}
    missing = [name for name in _NEEDED if name not in names and ("*" not in names or name == "authorization")]
    if missing:
        text = f"{printable(allowed)} may send requests, but not with {', '.join(missing)}"
        more = "and Mcp-Session-Id to Access-Control-Expose-Headers"
        advice = f"add {', '.join(missing)} to Access-Control-Allow-Headers, {more}"
        report.warn("CORS", text, advice)
    else:
        report.ok("CORS", f"pages of {printable(allowed)} may send requests")


# Seconds that a stream may take to begin.
_SECONDS = 5.0

_SLOW_SECONDS = 1.0


async def try_streams(endpoint: Endpoint, report: Report) -> None:
    """Open the stream on which a server sends notifications, and measure when it begins."""
    web, patience = endpoint.web, endpoint.web.timeout
    web.timeout = min(patience, _SECONDS)
    began = time.monotonic()
    try:
        # Up to 2025-11-25 a GET opens the stream, from 2026-07-28 on the request `subscriptions/listen`.
        if has_handshake(endpoint.version):
            fields = {"Accept": "text/event-stream", "MCP-Protocol-Version": endpoint.version}
            if endpoint.session is not None:
                fields["Mcp-Session-Id"] = endpoint.session
            reply = await web.ask("GET", fields, until=lambda data: True)
        else:
            params = {"notifications": {"toolsListChanged": True}}
            reply = await web.post_modern(endpoint.version, "subscriptions/listen", params)
    except NoAnswer:
        text = f"a stream did not begin within {web.timeout:g} s"
        report.warn("streams", text, _UNBUFFER, seconds=time.monotonic() - began)
        return
    finally:
        web.timeout = patience

    _judge(reply, report)


_UNBUFFER = (
    "a proxy in front of it buffers responses: switch that off (nginx: proxy_buffering off, or let the "
    "server send X-Accel-Buffering: no), and the compression of event streams too"
)


def _judge(reply: Reply, report: Report) -> None:
    through = reply.headers.get("via") or reply.headers.get("server") or ""
    named = f", through {printable(through)}" if through else ""
    if reply.kind != "text/event-stream":
        report.ok("streams", f"it has no stream of notifications (status {reply.status})", status=reply.status)
    elif reply.headers.get("content-encoding", "identity") != "identity":
        text = f"the stream is compressed ({printable(reply.headers['content-encoding'])}){named}"
        report.warn("streams", text, _UNBUFFER)
    elif reply.head_seconds > _SLOW_SECONDS:
        text = f"one began after {reply.head_seconds:.1f} s{named}"
        report.warn("streams", text, _UNBUFFER, seconds=reply.head_seconds)
    else:
        report.ok("streams", f"one began at once{named}", seconds=reply.head_seconds)


async def try_http(target: UrlTarget, report: Report, timeout: float) -> None:
    """Try everything above the network. `timeout` is how many seconds the server has for each response."""
    web = Web(target, timeout)
    endpoint = await find_endpoint(web, report)
    if endpoint is None:
        return
    if endpoint.reply.status == 401:
        if await judge_refusal(web, endpoint.reply, report):
            await try_client(target, report, timeout)
        return
    if not endpoint.is_old:
        await _try_without_token(web, endpoint.version, report)
        await try_exposure(web, endpoint.version, report)
        await try_streams(endpoint, report)
        await _end_session(endpoint)

    await try_client(target, report, timeout)
    if not endpoint.is_old:
        await _try_versions(web, report)


async def _try_without_token(web: Web, version: str, report: Report) -> None:
    if not web.has_token:
        report.ok("token", "not needed")
        return
    reply = await _greet(Web(replace(web.target, headers={}), web.timeout), version)
    if reply is None:
        report.skip("token", "no answer to a request without the token")
    elif reply.opening is not None:
        report.warn("token", "the server also answers without it", "is it checked later, or not at all?")
    else:
        report.ok("token", f"it is accepted, and without it the server answers with status {reply.status}")


async def _end_session(endpoint: Endpoint) -> None:
    if endpoint.session is not None:
        fields = {"Mcp-Session-Id": endpoint.session, "MCP-Protocol-Version": WITH_HANDSHAKE}
        with suppress(NoAnswer):
            await endpoint.web.ask("DELETE", fields)


async def _try_versions(web: Web, report: Report) -> None:
    tried = await asyncio.gather(*(_try_version(web, version) for version in table.SUPPORTED))
    outcomes = {version: "" if is_taken else "(no)" for version, is_taken in zip(table.SUPPORTED, tried, strict=True)}
    judge_versions(outcomes, report)


async def _try_version(web: Web, version: str) -> bool:
    reply = await _greet(web, version)
    if reply is None:
        return False
    opening = reply.opening or {}
    if has_handshake(version):
        await _end_session(Endpoint(web, reply))
        return bool(opening.get("protocolVersion") == version)
    offered = opening.get("supportedVersions")
    return isinstance(offered, list) and version in offered
