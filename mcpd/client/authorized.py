"""Whether requests to a server need authorization, and by what. Nothing of `auth/` is loaded where they need none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpd.client.auth_settings import Auth, has_login
from mcpd.client.targets.named import UrlTarget
from mcpd.errors import ConfigurationError, missing_extra
from mcpd.transports.http_client.options import HttpOptions

if TYPE_CHECKING:
    from mcpd.transports.authorization import Authorization


def authorization_for(target: UrlTarget, auth: Auth | None, http: HttpOptions | None) -> Authorization | None:
    """What `auth` means for this server; without it the login that the user has there. None for none.

    Raises ConfigurationError for a token that is said in two ways.
    """
    said = http is not None and (http.authenticate is not None or http.headers is not None)
    has_token = said or any(name.lower() == "authorization" for name in target.headers)
    if auth is None:
        if has_token or not has_login(target.url):
            return None
    elif has_token and _says_authorization(target, http):
        raise ConfigurationError("auth and a header Authorization are given, or authenticate: one of them is enough")

    try:
        from mcpd.client.auth.making import authorization
    except ModuleNotFoundError as error:
        raise missing_extra(error, f"{target}: reaching servers by URL", "client") from None
    return authorization(target, auth, http)


def _says_authorization(target: UrlTarget, http: HttpOptions | None) -> bool:
    headers = dict(target.headers)
    if http is not None and http.headers is not None and not callable(http.headers):
        headers.update(http.headers)
    is_hooked = http is not None and http.authenticate is not None
    return is_hooked or any(name.lower() == "authorization" for name in headers)
