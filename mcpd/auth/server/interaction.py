"""The pages of a login: sign in, then allow or deny. Each step must come from the browser in which the login began.

Users see which client asks for what before they go to a provider, and again afterwards, as the user who signed in. A
consent is never reused. Pages have no scripts, and all text from others is escaped.

Spec: 2026-07-28 basic/authorization/security-considerations (confused deputy); AUTH-136 to AUTH-142, AUTH-147.
"""

from __future__ import annotations

import logging
import secrets
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable
from mcpd.transports.files import bundled_folder
from mcpd.transports.routes import RouteRequest, RouteResponse
from .clients import (
    NO_STORE,
    OAuthError,
    form as form_of,
    host_of,
    is_loopback_redirect,
    query,
    redirect,
)
from .core import CODE_SECONDS, OFFLINE, Core, Transaction
from .settings import Busy, rate_limit_key
from .store import Grant, User

_STYLE = (Path(bundled_folder()) / "login.css").read_text(encoding="utf-8")
_HASH = b64encode(sha256(_STYLE.encode()).digest()).decode()
_FIXED = (
    ("X-Frame-Options", "DENY"),
    ("X-Content-Type-Options", "nosniff"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Permissions-Policy", "camera=(), geolocation=(), microphone=()"),
    *NO_STORE,
)


def _page(
    title: str, body: str, status: int, referrer: str, *headers: tuple[str, str], has_forms: bool = False
) -> RouteResponse:
    html = (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>{_STYLE}</style>\n</head>\n'
        f"<body>\n<main>\n<h1>{escape(title)}</h1>\n{body}\n</main>\n</body>\n</html>\n"
    )
    # Chromium applies `form-action` to each redirect after a form, and the targets are not known: Claude's https
    # callback leads to claude://, a provider to a company's login. The pages contain no scripts and no unescaped text,
    # so no form can be changed to point elsewhere.
    policy = f"default-src 'none'; style-src 'sha256-{_HASH}'; frame-ancestors 'none'; base-uri 'none'"
    if not has_forms:
        policy += "; form-action 'none'"
    fields = (("Content-Security-Policy", policy), ("Referrer-Policy", referrer), *_FIXED, *headers)
    return RouteResponse(html.encode(), status, fields, "text/html; charset=utf-8")


def message_page(title: str, text: str, status: int = 400, url: str = "", label: str = "") -> RouteResponse:
    """Return a page with a message and at most one link."""
    link = f'\n<p><a rel="noreferrer" href="{escape(url)}">{escape(label)}</a></p>' if url else ""
    return _page(title, f'<p role="alert">{escape(text)}</p>{link}', status, "no-referrer")


def form_page(title: str, body: str, *headers: tuple[str, str], status: int = 200) -> RouteResponse:
    """Return a page with forms, whose redirects may lead anywhere.

    Other sites receive no referrer, but this server does: without one, browsers would send `Origin: null` with the
    form, like a form on a foreign site.
    """
    return _page(title, body, status, "same-origin", *headers, has_forms=True)


def facts(rows: Mapping[str, str]) -> str:
    return "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in rows.items()) + "</dl>"


def warning(text: str) -> str:
    return f'<p class="warning" role="note">{escape(text)}</p>'


def hidden(fields: Mapping[str, str]) -> str:
    return "".join(
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">' for name, value in fields.items()
    )


def field(name: str, label: str, kind: str = "text", autocomplete: str = "off", value: str = "") -> str:
    return (
        f'<label for="{escape(name)}">{escape(label)}</label>'
        f'<input id="{escape(name)}" name="{escape(name)}" type="{kind}" autocomplete="{autocomplete}" '
        f'value="{escape(value)}" maxlength="1024" required autocapitalize="none" spellcheck="false">'
    )


def button(text: str, name: str = "", value: str = "", *, is_first: bool = False) -> str:
    fields = f' name="{escape(name)}" value="{escape(value)}"' if name else ""
    look = ' class="first"' if is_first else ""
    return f'<button type="submit"{fields}{look}>{escape(text)}</button>'


def form(action: str, content: str) -> str:
    """Return a form that is posted to a path of this server."""
    return f'<form method="post" action="{escape(action)}">{content}</form>'


log = logging.getLogger("mcpd")

_Step: TypeAlias = Callable[[RouteRequest], Awaitable[RouteResponse]]
_WRONG = "The name or the password is wrong."


class Interaction:
    """The pages of a login."""

    def __init__(self, core: Core) -> None:
        self._core = core

    # -- signing in --------------------------------------------------------------------------

    def first_page(self, transaction: Transaction, *headers: tuple[str, str]) -> RouteResponse:
        """Return the page to sign in, or the consent page in development mode."""
        if self._core.settings.is_development:
            transaction.user = User("developer", "developer", "development")
            return self._consent_page(transaction, *headers)
        return self._sign_in_page(transaction, "", *headers)

    def _sign_in_page(self, transaction: Transaction, problem: str, *headers: tuple[str, str]) -> RouteResponse:
        core = self._core
        body = [
            f"<p>{escape(_client_name(transaction))} asks to use this server on your behalf. Sign in to decide.</p>"
        ]
        body.append(facts(_client_facts(transaction)))
        body += self._requested_access(transaction, [scope for scope in transaction.scopes if scope != OFFLINE])
        if problem:
            body.append(f'<p class="warning" role="alert">{escape(problem)}</p>')

        carried = hidden({"login": transaction.id, "form": core.transactions.form_token(transaction)})
        if core.users is not None:
            fields = field("user", "Name", autocomplete="username")
            fields += field("password", "Password", "password", "current-password")
            body.append(form(self._path("/oauth/sign-in"), carried + fields + button("Sign in", is_first=True)))
        for name, provider in core.upstreams.items():
            label = f"Allow and continue with {provider.label}"
            body.append(form(self._path(f"/oauth/sign-in/{name}"), carried + button(label)))
        body.append(form(self._path("/oauth/consent"), carried + button("Deny", "choice", "deny")))

        status = 403 if problem else 200
        return form_page(f"Log in to {self._name}", "\n".join(body), *headers, status=status)

    async def sign_in(self, request: RouteRequest) -> RouteResponse:
        core = self._core
        fields = form_of(request)
        transaction = core.transactions.from_form(fields, self._browser(request))
        if core.users is None:
            raise OAuthError("invalid_request", "sign-in with a password is not available", status=404)

        name, password = fields.get("user", ""), fields.get("password", "")
        address = core.address(request)
        place = rate_limit_key(address)
        pair = f"{name}\0{place}"
        tried = [(core.pair_throttle, pair), (core.name_throttle, name)]
        if core.has_own_address(address):
            tried.append((core.address_throttle, place))
        if any(throttle.seconds_to_wait(key) for throttle, key in tried):
            return self._sign_in_page(transaction, "Too many wrong passwords. Try again in a few minutes.")

        try:
            user = await core.users.check(name, password)
        except Busy:
            return self._sign_in_page(transaction, "Too many people are signing in. Try again in a moment.")

        if user is None:
            for throttle, key in tried:
                throttle.failed(key)
            log.warning("A sign-in from %s failed", printable(address))
            return self._sign_in_page(transaction, _WRONG)

        # Only this pair: the right password proves nothing about other names and addresses.
        core.pair_throttle.succeeded(pair)
        transaction.upstream = None  # from an earlier sign-in with a provider
        return await self._signed_in(transaction, User(name, user.name or name, "users", "", user.scopes))

    async def go_to_provider(self, request: RouteRequest) -> RouteResponse:
        core = self._core
        transaction = core.transactions.from_form(form_of(request), self._browser(request))
        name = request.params["name"]
        provider = core.upstream(name)
        core.transactions.start_provider(transaction, name)
        url = await provider.begin(
            self._callback(name), transaction.provider_state, transaction.nonce, transaction.verifier
        )
        return redirect(url, status=303)

    async def return_from_provider(self, request: RouteRequest) -> RouteResponse:
        """Handle the return from a provider. Its state belongs to this browser and can be used once."""
        core = self._core
        name, fields = request.params["name"], query(request)
        provider = core.upstream(name)
        transaction = core.transactions.finish_provider(name, fields.get("state", ""), self._browser(request))
        if "error" in fields or "code" not in fields:
            return self._sign_in_page(transaction, f"{provider.label} did not sign you in.")

        found = await provider.finish(
            fields["code"], fields.get("iss"), self._callback(name), transaction.nonce, transaction.verifier
        )
        if found is None:
            return self._sign_in_page(transaction, "You signed in, but are not allowed to use this server.")

        user, tokens = found
        transaction.upstream = core.seal(tokens) if provider.keeps_tokens else None
        return await self._signed_in(transaction, user)

    async def _signed_in(self, transaction: Transaction, user: User) -> RouteResponse:
        core = self._core
        transaction.user = user

        wanted = {*transaction.scopes} - {OFFLINE}
        if wanted and not wanted & {*core.scopes_for(user, wanted)}:
            return core.refuse(transaction, OAuthError("access_denied", "this user may not grant any of these scopes"))
        if transaction.client.id in core.settings.trusted_clients:
            return await self._allowed(transaction, user)
        return redirect(f"{core.issuer}/oauth/consent?login={transaction.id}", status=303)

    # -- consent -----------------------------------------------------------------------------

    async def show_consent(self, request: RouteRequest) -> RouteResponse:
        transaction = self._core.transactions.get(query(request).get("login", ""), self._browser(request))
        return self._sign_in_page(transaction, "") if transaction.user is None else self._consent_page(transaction)

    def _consent_page(self, transaction: Transaction, *headers: tuple[str, str]) -> RouteResponse:
        core, user = self._core, transaction.user
        assert user is not None
        rows = {**_client_facts(transaction), "You are": user.email or user.name}
        body = [facts(rows)]

        body += self._requested_access(
            transaction, [s for s in core.scopes_for(user, transaction.scopes) if s != OFFLINE]
        )
        carried = hidden({"login": transaction.id, "form": core.transactions.form_token(transaction)})
        buttons = button("Allow", "choice", "allow", is_first=True) + button("Deny", "choice", "deny")
        body.append(form(self._path("/oauth/consent"), carried + buttons))
        title = f"Let {_client_name(transaction)} use {self._name}?"
        return form_page(title, "\n".join(body), *headers)

    def _requested_access(self, transaction: Transaction, scopes: list[str]) -> list[str]:
        # Return what the client will be able to do, and a warning for local programs.
        words = self._core.settings.scopes
        items = "".join(f"<li>{escape(words.get(scope, scope))}</li>" for scope in scopes)
        parts = [
            f"<p>It will be able to:</p><ul>{items}</ul>" if items else "<p>It will be able to use this server.</p>"
        ]
        # The target of this login matters: a document does not vouch for a program on this machine.
        if is_loopback_redirect(transaction.redirect_uri):
            parts.append(
                warning(
                    "The program is on your computer, where any program can use this name. "
                    "Allow it only if you have just started this login yourself."
                )
            )
        return parts

    async def decide(self, request: RouteRequest) -> RouteResponse:
        core, fields = self._core, form_of(request)
        transaction = core.transactions.from_form(fields, self._browser(request))
        if fields.get("choice") != "allow":
            return core.refuse(transaction, OAuthError("access_denied", "the user denied access"))
        if transaction.user is None:
            return self._sign_in_page(transaction, "")
        return await self._allowed(transaction, transaction.user)

    async def _allowed(self, transaction: Transaction, user: User) -> RouteResponse:
        # Issue the code to the client.
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

    def with_error_pages(self, step: _Step) -> _Step:
        async def run(request: RouteRequest) -> RouteResponse:
            try:
                return await step(request)
            except OAuthError as error:
                return message_page("This login cannot continue", error.sentence, error.status)
            except ConfigurationError as error:
                log.error("A login failed: %s", printable(error))
                return message_page(
                    "This login cannot continue", "The server is not configured correctly; see its log.", 500
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


def _client_name(transaction: Transaction) -> str:
    return transaction.client.name or "A program"


def _client_facts(transaction: Transaction) -> dict[str, str]:
    # Return what is known about the client, the most reliable information first.
    client = transaction.client
    known = {
        "document": urlsplit(client.id).netloc,
        "registered": "nobody: it registered itself and chose its name",
        "listed": "the operator of this server",
    }[client.kind]
    return {
        "Program": _client_name(transaction),
        "Vouched for by": known,
        "Redirects you to": host_of(transaction.redirect_uri),
    }
