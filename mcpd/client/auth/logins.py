"""Log in, log out and list logins on behalf of a user: the library of `mcpd login`."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from mcpd.client.client import Client
from mcpd.client.http.options import HttpOptions
from mcpd.client.targets.named import UrlTarget
from mcpd.errors import AuthorizationFailed, ConfigurationError
from .authorizer import authorizer, store_of
from .discovery import plain_url
from .settings import OAuth, PreparedAuthorization
from .steps import Network, UserInteraction, run
from .store import Login, LoginRecords, Store
from .tokens import ClientId, revoke


class LogoutResult(Struct, frozen=True):
    """A removed login. `problem` says why its tokens could not be revoked; "" if they were."""

    login: Login
    problem: str = ""


async def log_in(
    target: UrlTarget,
    settings: OAuth,
    person: UserInteraction,
    *,
    http: HttpOptions | None = None,
    timeout: float = 60.0,
) -> Login | None:
    """Log in at a server, even if there is a login, and connect to it. Return None if the server requires no login.

    Raises the errors of `Client.open`.
    """
    # A token of the target itself would be used instead of the login.
    plain = replace(
        target, headers={name: value for name, value in target.headers.items() if name.lower() != "authorization"}
    )
    made = authorizer(plain, settings, http, person, is_fresh=True)
    async with Client(plain, auth=PreparedAuthorization(authorization=made), http=http, timeout=timeout):
        return made.login


def logins(settings: OAuth, url: str | None = None) -> list[Login]:
    """Return the stored logins at one server, or all. Raises ConfigurationError."""
    records = store_of(settings).read()
    return [one for one in records.logins if url is None or one.url == plain_url(url)]


async def log_out(settings: OAuth, url: str | None) -> list[LogoutResult]:
    """Remove the logins at a server, or all, and revoke their tokens where the server offers that.

    Raises ConfigurationError if the store cannot be read.
    """
    store = store_of(settings)
    found = logins(settings, url)
    ended = [LogoutResult(login, await _revoke(login)) for login in found]

    def remove(records: LoginRecords) -> None:
        for login in found:
            records.remove(login)
        if url is None:
            records.registrations = []

    store.change(remove)
    return ended


async def _revoke(login: Login) -> str:
    # Return why the tokens were not revoked; "" if they were (RFC 7009).
    if login.revocation_endpoint is None:
        return "its authorization server does not revoke tokens"
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
    """Delete a store that cannot be read. Return whether there was one."""
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
