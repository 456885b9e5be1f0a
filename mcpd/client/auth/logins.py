"""What a person does with logins: log in anew, log out, see what there is. The library below `mcpd login`."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from mcpd.client.auth.authorizer import authorizer, store_of
from mcpd.client.auth.documents import plain_url
from mcpd.client.auth.run import Network, Person, run
from mcpd.client.auth.settings import OAuth, Prepared
from mcpd.client.auth.store import Kept, Login, Store
from mcpd.client.auth.tokens import ClientId, revoke
from mcpd.client.client import Client
from mcpd.client.http.options import HttpOptions
from mcpd.client.targets.named import UrlTarget
from mcpd.errors import AuthorizationFailed, ConfigurationError


class LoggedOut(Struct, frozen=True):
    """A login that is no more. `problem` says why the authorization server may still take its tokens, "" if not."""

    login: Login
    problem: str = ""


async def log_in(
    target: UrlTarget, settings: OAuth, person: Person, *, http: HttpOptions | None = None, timeout: float = 60.0
) -> Login | None:
    """Log in at a server, whatever login there was, and be answered by it; None if it wants none.

    Raises what `Client.open` does.
    """
    # What the target itself brings in place of a login is left out: it would be taken.
    plain = replace(
        target, headers={name: value for name, value in target.headers.items() if name.lower() != "authorization"}
    )
    made = authorizer(plain, settings, http, person, is_fresh=True)
    async with Client(plain, auth=Prepared(authorization=made), http=http, timeout=timeout):
        return made.login


def logins(settings: OAuth, url: str | None = None) -> list[Login]:
    """The logins that are kept, at one server or all. Raises ConfigurationError."""
    kept = store_of(settings).read()
    return [one for one in kept.logins if url is None or one.url == plain_url(url)]


async def log_out(settings: OAuth, url: str | None) -> list[LoggedOut]:
    """End the logins at a server, or all: their tokens are revoked where that is offered, and deleted in any case.

    Raises ConfigurationError for a store that cannot be read.
    """
    store = store_of(settings)
    found = logins(settings, url)
    ended = [LoggedOut(login, await _revoke(login)) for login in found]

    def drop(kept: Kept) -> None:
        for login in found:
            kept.drop(login)
        if url is None:
            kept.registrations = []

    store.change(drop)
    return ended


async def _revoke(login: Login) -> str:
    """Why the tokens were not revoked, "" if they were. Spec: RFC 7009."""
    if login.revocation_endpoint is None:
        return "its authorization server revokes no tokens"
    client = ClientId(login.client_id, login.client_secret, login.method)
    tokens = [(login.refresh_token, "refresh_token"), (login.access_token, "access_token")]
    try:
        for token, hint in tokens:
            if token:
                await run(revoke(login.revocation_endpoint, token, hint, client), Network(login.url))
    except AuthorizationFailed as error:
        return str(error)
    return ""


def forget_all(settings: OAuth) -> bool:
    """Delete a store that cannot be read; whether there was one."""
    store: Store = store_of(settings)
    path = getattr(store, "path", None)
    if path is None:
        return False
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from None
    return True
