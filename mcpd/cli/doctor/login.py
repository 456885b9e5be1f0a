"""Judges a server that needs a token: whether hosts find out how to log in, and whether a login would succeed."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import SplitResult, urljoin, urlsplit

from msgspec import DecodeError
from msgspec.json import decode

from mcpd.cli.doctor.dialogue import NoAnswer
from mcpd.cli.doctor.report import Report
from mcpd.cli.doctor.web import Reply, Web
from mcpd.client.auth.discovery import Discovery, Lookup, challenge_of, discover, plain_url
from mcpd.client.auth.steps import Network, run
from mcpd.client.http.options import has_login
from mcpd.errors import AuthorizationFailed
from mcpd.protocol.printable import printable
from mcpd.transports.challenge import parse

_RESOURCE = "/.well-known/oauth-protected-resource"
_SERVER = ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration")
_METADATA = re.compile(r'\bresource_metadata\s*=\s*"([^"]{1,2000})"', re.IGNORECASE)


async def judge_refusal(web: Web, reply: Reply, report: Report) -> None:
    """Judge a 401: with a token, the token is wrong; without one, examine how to get one."""
    if any(name.lower() == "authorization" for name in web.target.headers):
        text = f"the server refuses the token (401): {_said(reply)}"
        report.fail("token", text, "is it for this server, and still valid? Get a new one")
    challenge = reply.headers.get("www-authenticate", "")
    if "bearer" not in challenge.lower():
        said = f"with {printable(challenge)}" if challenge else "without the header WWW-Authenticate"
        advice = 'answer with WWW-Authenticate: Bearer resource_metadata="…", from which hosts learn where to log in'
        report.warn("token", f"it is needed, and the 401 comes {said}", advice)
    elif not any(step.name == "token" for step in report.steps):
        login = f"log in: mcpd login {printable(web.target.url)}; or " if _METADATA.search(challenge) else ""
        advice = f"{login}pass one with --token-file FILE; nothing else is tried without it"
        report.ok("token", "it is needed (401 with a challenge)", advice=advice)
    metadata = await _resource_metadata(web, challenge, report)
    if metadata is not None:
        await _authorization_server(web, metadata, report)


def _said(reply: Reply) -> str:
    found = re.search(r'error_description\s*=\s*"([^"]*)"', reply.headers.get("www-authenticate", ""))
    return printable(found[1]) if found else reply.first_line or "without a reason"


async def _resource_metadata(web: Web, challenge: str, report: Report) -> dict[str, Any] | None:
    """Read the document that names the issuers of tokens for this server."""
    url = web.target.url.partition("?")[0]
    path = urlsplit(url).path.rstrip("/")
    named = _METADATA.search(challenge)
    places = [_joined(url, named[1])] if named else [urljoin(url, _RESOURCE + path), urljoin(url, _RESOURCE)]
    document: Any = None
    for place in dict.fromkeys(places):
        document = await _document(web, place)
        if isinstance(document, dict):
            break
    if not isinstance(document, dict):
        text = f"no document at {printable(places[0])} ({document})"
        advice = "serve it (RFC 9728) with `resource` and `authorization_servers`: hosts cannot log in without it"
        report.fail("sign-in", text, advice)
        return None

    resource = document.get("resource")
    if not isinstance(resource, str) or _read(resource) is None or not _covers(resource, url):
        text = f"its `resource` is {printable(resource)!r}, but the server is at {printable(url)}"
        report.fail("sign-in", text, "write the URL that hosts are given: they refuse tokens for another one")
        return None
    servers = document.get("authorization_servers")
    if not isinstance(servers, list) or not servers:
        report.fail("sign-in", "its document does not name authorization_servers", "name the server that issues tokens")
        return None
    report.ok("sign-in", f"tokens come from {', '.join(printable(each) for each in servers[:3])}", document=document)
    return document


def _covers(resource: str, url: str) -> bool:
    """Return whether a token for `resource` is valid for this URL: same origin, and the same path or one above it."""
    ours, theirs = urlsplit(url), urlsplit(resource)
    if (ours.scheme, ours.netloc.lower()) != (theirs.scheme.lower(), theirs.netloc.lower()):
        return False
    path = theirs.path.rstrip("/")
    return ours.path.rstrip("/") == path or ours.path.startswith(f"{path}/")


async def _authorization_server(web: Web, metadata: dict[str, Any], report: Report) -> None:
    """Judge the metadata of the first authorization server."""
    issuer = str(metadata["authorization_servers"][0])
    parts = _read(issuer)
    if parts is None:
        report.fail("authorization", f"{printable(issuer)} is not a URL", "name the issuer of tokens by its URL")
        return
    path = parts.path.rstrip("/")
    places = [urljoin(issuer, well_known + path) for well_known in _SERVER]
    if path:
        places.append(f"{issuer.rstrip('/')}{_SERVER[1]}")
    document: Any = None
    for place in places:
        document = await _document(web, place)
        if isinstance(document, dict):
            break
    if not isinstance(document, dict):
        text = f"{printable(issuer)} has no metadata document ({document})"
        report.fail("authorization", text, f"serve {printable(places[0])} there")
        return

    if document.get("issuer") != issuer:
        text = f"its `issuer` is {printable(document.get('issuer'))!r}, but it was named {printable(issuer)!r}"
        report.fail("authorization", text, "both must be the same text, including a final slash: hosts stop here")
        return
    missing = [name for name in ("authorization_endpoint", "token_endpoint") if not isinstance(document.get(name), str)]
    if missing:
        report.fail("authorization", f"its document lacks {', '.join(missing)}", "hosts cannot log in without it")
        return
    methods = document.get("code_challenge_methods_supported")
    if not isinstance(methods, list) or "S256" not in methods:
        text = "its document does not list PKCE with S256"
        report.fail(
            "authorization", text, 'add "code_challenge_methods_supported": ["S256"]: otherwise hosts refuse it'
        )
        return
    if not (document.get("registration_endpoint") or document.get("client_id_metadata_document_supported")):
        text = f"{printable(issuer)} does not let hosts register themselves"
        advice = "people have to enter a client id by hand: allow registration, or client id metadata documents"
        report.warn("authorization", text, advice)
    else:
        report.ok("authorization", f"hosts can log in at {printable(issuer)}")


def _read(url: str) -> SplitResult | None:
    """The parts of a URL that the server names; None if it is malformed."""
    try:
        return urlsplit(url)
    except ValueError:
        return None


def _joined(base: str, url: str) -> str:
    return url if _read(url) is None else urljoin(base, url)


async def _document(web: Web, url: str) -> dict[str, Any] | str:
    """Read a JSON object from a URL without credentials. Returns the reason if that fails."""
    parts = _read(url)
    if parts is None or parts.scheme not in ("http", "https"):
        return "not the URL of a web page"
    try:
        reply = await web.ask("GET", {"Accept": "application/json"}, url=url, is_foreign=True)
    except NoAnswer as error:
        return printable(error, 300)
    if reply.status != 200:
        return f"status {reply.status}"
    try:
        found = decode(reply.body)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return "it is not JSON"
    return found if isinstance(found, dict) else "it is not a JSON object"


async def walk_discovery(web: Web, reply: Reply, report: Report) -> bool:
    """Follow the way from the 401 to a login as our client does. Returns whether the user is logged in."""
    url = plain_url(web.target.url)
    challenges = parse([reply.headers["www-authenticate"]] if "www-authenticate" in reply.headers else [])
    looked: list[Lookup] = []
    try:
        found = await run(discover(url, challenge_of(challenges), lookups=looked), Network(url))
    except AuthorizationFailed as error:
        # A faulty document explains more than a place without one.
        wrong = sorted((one for one in looked if not one.is_good), key=lambda one: one.result.isdigit())
        bad = wrong[0] if wrong else None
        where = (
            f"{bad.what} at {printable(bad.url, 300)}: {printable(bad.result, 300)}" if bad is not None else str(error)
        )
        report.fail("login", where, "mcpd login stops there, and so do hosts: fix that first", looked=_all(looked))
        return False

    _judge(found, report, looked)
    if not has_login(url):
        return False
    report.ok("logged in", "the login of mcpd login is used from here on")
    return True


def _judge(found: Discovery, report: Report, looked: list[Lookup]) -> None:
    """Judge whether the authorization server that was found has everything that a login needs."""
    server, metadata = found.server, found.metadata
    issuer = printable(server.issuer, 200)
    if server.authorization_endpoint is None:
        report.warn(
            "login", f"{issuer} has no authorization_endpoint", "only programs can get tokens there, not people"
        )
        return
    if metadata is None:
        text = f"{issuer}, by the rules of 2025-03-26: the server has no protected resource metadata"
        report.warn("login", text, "serve it (RFC 9728), because newer hosts use nothing else", looked=_all(looked))
        return

    if "offline_access" in (metadata.scopes_supported or ()):
        text = "the resource metadata lists offline_access, which is not a scope of the server"
        report.warn("login", text, "remove it from scopes_supported: hosts add it where the issuer lists it")
        return
    if server.takes_documents and "none" not in (server.auth_methods or ()):
        text = f"{issuer} accepts metadata documents as client ids, but does not list none as an authentication method"
        report.warn("login", text, "add none to token_endpoint_auth_methods_supported: Claude cannot log in without it")
        return
    how = (
        ("clients cannot register themselves: mcpd login --client-id ID")
        if server.registration_endpoint is None
        else ""
    )
    report.ok("login", f"mcpd login {found.resource} leads to {issuer}", advice=how, looked=_all(looked))


def _all(looked: list[Lookup]) -> list[dict[str, str]]:
    return [
        {"document": one.what, "url": printable(one.url, 300), "found": printable(one.result, 300)} for one in looked
    ]
