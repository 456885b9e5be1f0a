"""The way from a refusal to a login, walked as our own client does: what is asked, and the first that is wrong.

What the documents lack for hosts is looked at in `refusal`; here it is whether a login would come about.
"""

from __future__ import annotations

from mcpd.auth.challenge import parse
from mcpd.client.auth.auth_option import has_login
from mcpd.client.auth.discovery import Found, Looked, challenge_of, discover
from mcpd.client.auth.documents import plain_url
from mcpd.client.auth.run import Network, run
from mcpd.doctor.report import Report
from mcpd.doctor.web import Reply, Web
from mcpd.errors import AuthorizationFailed
from mcpd.protocol.printable import printable


async def walk_discovery(web: Web, reply: Reply, report: Report) -> bool:
    """Walk it, and say what is there; whether the user is logged in, so that all else can be tried."""
    url = plain_url(web.target.url)
    challenges = parse([reply.headers["www-authenticate"]] if "www-authenticate" in reply.headers else [])
    looked: list[Looked] = []
    try:
        found = await run(discover(url, challenge_of(challenges), looked=looked), Network(url))
    except AuthorizationFailed as error:
        # A document that is there and wrong says more than a place that has none.
        wrong = sorted((one for one in looked if not one.is_good), key=lambda one: one.said.isdigit())
        bad = wrong[0] if wrong else None
        where = (
            f"{bad.what} at {printable(bad.url, 300)}: {printable(bad.said, 300)}" if bad is not None else str(error)
        )
        report.fail("login", where, "mcpd login stops there, and so do hosts: mend that first", looked=_all(looked))
        return False

    _judge(found, report, looked)
    if not has_login(url):
        return False
    report.ok("logged in", "the login of mcpd login is used from here on")
    return True


def _judge(found: Found, report: Report, looked: list[Looked]) -> None:
    """What a login needs of a server that was found, and what it had better not say."""
    server, metadata = found.server, found.metadata
    issuer = printable(server.issuer, 200)
    if server.authorization_endpoint is None:
        report.warn("login", f"{issuer} has no authorization_endpoint", "only programs get tokens there, no people")
        return
    if metadata is None:
        text = f"{issuer}, by the ways of 2025-03-26: the server has no protected resource metadata"
        report.warn("login", text, "serve it (RFC 9728): newer hosts look nowhere else", looked=_all(looked))
        return

    if "offline_access" in (metadata.scopes_supported or ()):
        text = "the resource metadata lists offline_access, which is no right of the server's"
        report.warn("login", text, "take it out of scopes_supported: hosts add it where the issuer lists it")
        return
    if server.takes_documents and "none" not in (server.auth_methods or ()):
        text = f"{issuer} takes metadata documents as client ids, and does not list none as a way to prove oneself"
        report.warn("login", text, "add none to token_endpoint_auth_methods_supported: Claude signs in nowhere without")
        return
    how = "no client registers itself: mcpd login --client-id ID" if server.registration_endpoint is None else ""
    report.ok("login", f"mcpd login {found.resource} leads to {issuer}", advice=how, looked=_all(looked))


def _all(looked: list[Looked]) -> list[dict[str, str]]:
    return [{"document": one.what, "url": printable(one.url, 300), "found": printable(one.said, 300)} for one in looked]
