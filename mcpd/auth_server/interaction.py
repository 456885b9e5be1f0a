"""What a user does: sign in, then allow or deny. Each step is of the browser that the login began in.

Nobody is sent to a provider who has not been told which client wants what, and let it go on; who came back is asked
once more, as the one who signed in. Nothing that was allowed once is allowed again by itself.
AUTH-136 … 142, AUTH-147; 2026-07-28 basic/authorization/security-considerations (the confused deputy).
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable
from html import escape
from typing import TypeAlias
from urllib.parse import urlsplit

from mcpd.auth_server.addresses import place_of
from mcpd.auth_server.core import CODE_SECONDS, OFFLINE, Core
from mcpd.auth_server.pages import button, facts, field, form, form_page, hidden, message_page, warning
from mcpd.auth_server.redirects import host_of, is_loopback_redirect
from mcpd.auth_server.replies import OAuthError, form as form_of, query, redirect
from mcpd.auth_server.store import Grant, User
from mcpd.auth_server.transactions import Transaction
from mcpd.auth_server.users import Busy
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable
from mcpd.server.registry.routes import RouteRequest, RouteResponse

log = logging.getLogger("mcpd")

_Step: TypeAlias = Callable[[RouteRequest], Awaitable[RouteResponse]]
_WRONG = "The name or the password is wrong."


class Interaction:
    """The pages of a login."""

    def __init__(self, core: Core) -> None:
        self._core = core

    # -- signing in --------------------------------------------------------------------------

    def first_page(self, transaction: Transaction, *headers: tuple[str, str]) -> RouteResponse:
        """Who wants what, and the ways to sign in; for development the question itself."""
        if self._core.settings.is_development:
            transaction.user = User("developer", "developer", "development")
            return self._consent_page(transaction, *headers)
        return self._sign_in_page(transaction, "", *headers)

    def _sign_in_page(self, transaction: Transaction, problem: str, *headers: tuple[str, str]) -> RouteResponse:
        core = self._core
        body = [f"<p>{escape(_called(transaction))} asks to use this server in your name. Sign in to decide.</p>"]
        body.append(facts(_who(transaction)))
        body += self._wishes(transaction, [scope for scope in transaction.scopes if scope != OFFLINE])
        if problem:
            body.append(f'<p class="warning" role="alert">{escape(problem)}</p>')

        carried = hidden({"login": transaction.id, "form": core.transactions.form_token(transaction)})
        if core.users is not None:
            fields = field("user", "Name", autocomplete="username")
            fields += field("password", "Password", "password", "current-password")
            body.append(form(self._path("/oauth/sign-in"), carried + fields + button("Sign in", is_first=True)))
        for name, provider in core.upstreams.items():
            label = f"Allow, and continue with {provider.label}"
            body.append(form(self._path(f"/oauth/sign-in/{name}"), carried + button(label)))
        body.append(form(self._path("/oauth/consent"), carried + button("Deny", "choice", "deny")))

        status = 403 if problem else 200
        return form_page(f"Log in to {self._name}", "\n".join(body), *headers, status=status)

    async def sign_in(self, request: RouteRequest) -> RouteResponse:
        """A name and a password."""
        core = self._core
        said = form_of(request)
        transaction = core.transactions.posted(said, self._browser(request))
        if core.users is None:
            raise OAuthError("invalid_request", "there are no users with passwords here", status=404)

        name, password = said.get("user", ""), said.get("password", "")
        address = core.address(request)
        place = place_of(address)
        pair = f"{name}\0{place}"
        tried = [(core.pair_throttle, pair), (core.name_throttle, name)]
        if core.tells_apart(address):
            tried.append((core.address_throttle, place))
        if any(throttle.wait(key) for throttle, key in tried):
            return self._sign_in_page(transaction, "There were too many wrong passwords. Try again in a few minutes.")

        try:
            user = await core.users.check(name, password)
        except Busy:
            return self._sign_in_page(transaction, "Many people sign in now. Try again in a moment.")

        if user is None:
            for throttle, key in tried:
                throttle.failed(key)
            log.warning("Somebody at %s failed to sign in", printable(address))
            return self._sign_in_page(transaction, _WRONG)

        core.pair_throttle.succeeded(pair)
        transaction.upstream = None  # of who signed in before by a provider
        return await self._signed_in(transaction, User(name, user.name or name, "users", "", user.scopes))

    async def leave(self, request: RouteRequest) -> RouteResponse:
        """To a provider."""
        core = self._core
        transaction = core.transactions.posted(form_of(request), self._browser(request))
        provider = core.upstream(request.params["name"])
        core.transactions.leave_for(transaction, request.params["name"])
        return redirect(await provider.begin(transaction, self._callback(request.params["name"])), status=303)

    async def come_back(self, request: RouteRequest) -> RouteResponse:
        """From a provider: with a state of this browser's, which is used up by that."""
        core = self._core
        name, said = request.params["name"], query(request)
        provider = core.upstream(name)
        transaction = core.transactions.back_from(name, said.get("state", ""), self._browser(request))
        if "error" in said or "code" not in said:
            return self._sign_in_page(transaction, f"{provider.label} did not let you sign in.")

        found = await provider.finish(transaction, said["code"], said.get("iss"), self._callback(name))
        if found is None:
            return self._sign_in_page(transaction, "You signed in there, and are not among those who may use this.")

        user, tokens = found
        transaction.upstream = core.seal(tokens) if provider.keeps_tokens else None
        return await self._signed_in(transaction, user)

    async def _signed_in(self, transaction: Transaction, user: User) -> RouteResponse:
        core = self._core
        transaction.user = user

        wanted = {*transaction.scopes} - {OFFLINE}
        if wanted and not wanted & {*core.scopes_for(user, wanted)}:
            return core.refuse(
                transaction, OAuthError("access_denied", "this user may not be given any of these scopes")
            )
        if transaction.client.id in core.settings.trusted_clients:
            return await self._allowed(transaction, user)
        return redirect(f"{core.issuer}/oauth/consent?login={transaction.id}", status=303)

    # -- consent -----------------------------------------------------------------------------

    async def ask(self, request: RouteRequest) -> RouteResponse:
        """The question."""
        transaction = self._core.transactions.get(query(request).get("login", ""), self._browser(request))
        return self._sign_in_page(transaction, "") if transaction.user is None else self._consent_page(transaction)

    def _consent_page(self, transaction: Transaction, *headers: tuple[str, str]) -> RouteResponse:
        core, user = self._core, transaction.user
        assert user is not None
        rows = {**_who(transaction), "You are": user.email or user.name}
        body = [facts(rows)]

        body += self._wishes(transaction, [s for s in core.scopes_for(user, transaction.scopes) if s != OFFLINE])
        carried = hidden({"login": transaction.id, "form": core.transactions.form_token(transaction)})
        buttons = button("Allow", "choice", "allow", is_first=True) + button("Deny", "choice", "deny")
        body.append(form(self._path("/oauth/consent"), carried + buttons))
        title = f"Let {_called(transaction)} use {self._name}?"
        return form_page(title, "\n".join(body), *headers)

    def _wishes(self, transaction: Transaction, scopes: list[str]) -> list[str]:
        """What the client may do then, and what to mind."""
        words = self._core.settings.scopes
        items = "".join(f"<li>{escape(words.get(scope, scope))}</li>" for scope in scopes)
        said = [f"<p>It may then:</p><ul>{items}</ul>" if items else "<p>It may then use this server.</p>"]
        if _is_local(transaction):
            said.append(
                warning(
                    "The program is on your own computer, where any program may call itself by this name. "
                    "Allow it only if you have just started a login there yourself."
                )
            )
        return said

    async def decide(self, request: RouteRequest) -> RouteResponse:
        """The answer."""
        core, said = self._core, form_of(request)
        transaction = core.transactions.posted(said, self._browser(request))
        if said.get("choice") != "allow":
            return core.refuse(transaction, OAuthError("access_denied", "the user did not allow it"))
        if transaction.user is None:
            return self._sign_in_page(transaction, "")
        return await self._allowed(transaction, transaction.user)

    async def _allowed(self, transaction: Transaction, user: User) -> RouteResponse:
        """Give the client its code."""
        core = self._core
        core.transactions.end(transaction)
        code, scope = secrets.token_urlsafe(32), " ".join(core.scopes_for(user, transaction.scopes))
        grant = Grant(
            secrets.token_urlsafe(16), transaction.client.id, user, scope, transaction.resource, transaction.key
        )
        await core.store.add_grant(
            grant, code, transaction.redirect_uri, transaction.challenge, CODE_SECONDS, transaction.upstream
        )
        return core.answer(transaction.redirect_uri, transaction.state, {"code": code}, 303)

    # -- helpers -----------------------------------------------------------------------------

    def guarded(self, step: _Step) -> _Step:
        """A step whose mistakes are pages."""

        async def run(request: RouteRequest) -> RouteResponse:
            try:
                return await step(request)
            except OAuthError as error:
                return message_page("This login cannot go on", error.sentence, error.status)
            except ConfigurationError as error:
                log.error("A login failed: %s", printable(error))
                return message_page(
                    "This login cannot go on", "The server is not set up right; its log says more.", 500
                )

        return run

    @property
    def _name(self) -> str:
        return self._core.name or urlsplit(self._core.resource).netloc

    def _path(self, path: str) -> str:
        return urlsplit(self._core.issuer).path + path

    def _callback(self, name: str) -> str:
        return f"{self._core.issuer}/oauth/sign-in/{name}/callback"

    def _browser(self, request: RouteRequest) -> str:
        return self._core.transactions.browser(request.headers.get("cookie", ""))


def _called(transaction: Transaction) -> str:
    return transaction.client.name or "A program"


def _is_local(transaction: Transaction) -> bool:
    # By where this login goes: whom a document vouches for elsewhere says nothing of a program on this machine.
    return is_loopback_redirect(transaction.redirect_uri)


def _who(transaction: Transaction) -> dict[str, str]:
    """What is known of the client, the surest first."""
    client = transaction.client
    known = {
        "document": urlsplit(client.id).netloc,
        "registered": "nobody: it registered itself, under a name of its choice",
        "listed": "the operator of this server",
    }[client.kind]
    return {
        "Program": _called(transaction),
        "Vouched for by": known,
        "Sends you on to": host_of(transaction.redirect_uri),
    }
