"""Judges a server that needs a token: whether hosts find out how to log in, and whether a login would succeed."""

from __future__ import annotations

from mcpd.cli.doctor.report import Report
from mcpd.cli.doctor.web import Reply, Web
from mcpd.client.auth.discovery import Discovery, Lookup, challenge_of, discover, plain_url
from mcpd.client.auth.steps import Network, run
from mcpd.client.http.options import has_login
from mcpd.errors import AuthorizationFailed
from mcpd.protocol.printable import printable
from mcpd.transports.challenge import parse


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
        is_of_resource = not any(lookup.is_good for lookup in lookups)
        text = str(error)
        # A faulty document explains more than a place without one.
        for lookup in sorted((each for each in lookups if not each.is_good), key=lambda each: each.result.isdigit())[
            :1
        ]:
            text = f"{lookup.what} at {printable(lookup.url, 300)}: {printable(lookup.result, 300)}"
        advice = "hosts stop there, and so does mcpd login: fix that first"
        report.fail("sign-in" if is_of_resource else "login", text, advice, looked=_members(lookups))
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
    """What a login lacks at the authorization server that was found, and what to do; "" for nothing."""
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
