"""`/oauth/authorize`: what a client asks for is checked, and a login begins. AUTH-123, AUTH-125 … 127, AUTH-129.

Until client and redirect URI are known to belong together, a mistake is a page: never a redirect.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from mcpd.auth.metadata import as_reached
from mcpd.auth_server.addresses import place_of
from mcpd.auth_server.clients import Client
from mcpd.auth_server.core import Core
from mcpd.auth_server.interaction import Interaction
from mcpd.auth_server.pages import message_page
from mcpd.auth_server.redirects import host_of, is_loopback_redirect, matching, why_not
from mcpd.auth_server.replies import OAuthError, failed, query
from mcpd.server.registry.routes import RouteRequest, RouteResponse

_is_challenge = re.compile(r"[A-Za-z0-9_-]{43}").fullmatch
_is_thumbprint = _is_challenge
_LONGEST_STATE = 4096


class Authorize:
    """The endpoint."""

    def __init__(self, core: Core, interaction: Interaction) -> None:
        self._core = core
        self._interaction = interaction

    async def __call__(self, request: RouteRequest) -> RouteResponse:
        """Begin a login: a page to sign in on. Spec: OAuth 2.1 4.1.1."""
        core = self._core
        try:
            said = query(request)
            client = await core.client(said.get("client_id", ""))
            uri = _redirect_uri(client, said.get("redirect_uri", ""))
        except OAuthError as error:
            return page_or_json(request, error)

        state = said.get("state", "")
        try:
            if len(state) > _LONGEST_STATE:
                state = ""
                raise OAuthError("invalid_request", "state is too long")
            asked = self._asked(said)
        except OAuthError as error:
            params = {"error": error.error, "error_description": error.text}
            if _may_go_back(request, client, uri):
                return core.answer(uri, state, params)
            # From the page the user may go on to the client, which is told of the mistake then.
            where = core.way_back(uri, state, params)
            return message_page("This login cannot go on", error.sentence, 400, where, f"Back to {host_of(uri)}")

        browser, cookie = core.transactions.browser(request.headers.get("cookie", "")), ()
        if not browser:
            browser, header = core.transactions.new_browser()
            cookie = (header,)  # type: ignore[assignment]
        place = place_of(core.address(request))
        transaction = core.transactions.begin(
            browser=browser, address=place, client=client, redirect_uri=uri, state=state, **asked
        )
        return self._interaction.first_page(transaction, *cookie)

    def _asked(self, said: dict[str, str]) -> dict[str, object]:
        """What is asked for. Raises OAuthError."""
        core = self._core
        if "request" in said or "request_uri" in said:
            raise OAuthError("request_not_supported", "parameters are written into the URL")
        if said.get("response_type") != "code":
            raise OAuthError(
                "unsupported_response_type" if said.get("response_type") else "invalid_request",
                "response_type has to be code",
            )
        if said.get("response_mode", "query") != "query":
            raise OAuthError("invalid_request", "response_mode has to be query")
        if said.get("code_challenge_method") != "S256" or not _is_challenge(said.get("code_challenge", "")):
            raise OAuthError("invalid_request", "PKCE is needed: code_challenge, with code_challenge_method S256")
        if not is_resource(said.get("resource", core.resource), core.resource):
            raise OAuthError("invalid_target", "resource is another one than the server's")
        if said.get("prompt") == "none":
            raise OAuthError("interaction_required", "each login asks its user")
        key = said.get("dpop_jkt", "")
        if key and not _is_thumbprint(key):
            raise OAuthError("invalid_request", "dpop_jkt is no thumbprint")

        return {
            "challenge": said["code_challenge"],
            "resource": core.resource,
            "scopes": core.asked_scopes(said.get("scope", "")),
            "key": key,
        }


def is_resource(asked: str, resource: str) -> bool:
    """Whether a client names this resource: scheme and host in any case, a bare origin with a slash or without, and
    this machine by any of its names.

    Spec: 2026-07-28 basic/authorization, canonical server URI.
    """
    return _canonical(as_reached(asked, urlsplit(resource).netloc)) == _canonical(resource)


def _canonical(uri: str) -> tuple[str, str]:
    scheme, separator, rest = uri.partition("://")
    host, _, path = rest.partition("/")
    return f"{scheme}{separator}{host}".lower(), path


def _redirect_uri(client: Client, asked: str) -> str:
    """Where the answer goes. Raises OAuthError."""
    if not asked:
        if len(client.redirect_uris) == 1:
            return client.redirect_uris[0]
        raise OAuthError("invalid_request", "redirect_uri is missing")
    if not matching(client.redirect_uris, asked):
        why = why_not(asked)
        text = f"redirect_uri is none that this client has registered{f': {why}' if why else ''}"
        raise OAuthError("invalid_request", text)
    return asked


def _may_go_back(request: RouteRequest, client: Client, uri: str) -> bool:
    """Whether a browser may be sent to this client unasked. Spec: 2026-07-28 security considerations, open redirection.

    Anybody registers a client, and could lend a link the name of this server, where nobody has looked at it yet.
    """
    is_page = "text/html" in request.headers.get("accept", "").lower()
    return client.kind == "listed" or is_loopback_redirect(uri) or not is_page


def page_or_json(request: RouteRequest, error: OAuthError) -> RouteResponse:
    """A mistake as a page for people, as JSON for programs."""
    if "text/html" not in request.headers.get("accept", "").lower():
        return failed(error)
    status = 400 if error.status == 401 else error.status
    return message_page("This login cannot go on", error.sentence, status)
