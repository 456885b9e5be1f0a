"""From what a program says as `auth=` to what lets its requests in."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Literal

from mcpd.auth.addresses import Reach
from mcpd.client.auth.authorizer import Authorizer
from mcpd.client.auth.run import Person
from mcpd.client.auth.settings import MachineGrant, OAuth, Prepared, Supplied
from mcpd.client.auth.sources import SuppliedTokens
from mcpd.client.auth.store import FileStore, MemoryStore, Store
from mcpd.client.auth_settings import Auth
from mcpd.client.targets.named import UrlTarget
from mcpd.errors import ConfigurationError
from mcpd.transports.http_client.link import tls_context
from mcpd.transports.http_client.options import HttpOptions

if TYPE_CHECKING:
    from mcpd.transports.authorization import Authorization

_STORED = OAuth(interactive=False)
_ON_THIS_MACHINE: Reach = frozenset[Literal["loopback", "private"]](("loopback",))
"""What is reached by a unix socket is, whatever its URL says."""


def authorization(target: UrlTarget, auth: Auth | None, http: HttpOptions | None) -> Authorization:
    """What `auth` is for this server; None is the login that the user has. Raises ConfigurationError."""
    if auth is None:
        return authorizer(target, _STORED, http)
    if isinstance(auth, str):
        auth = Supplied(token=auth)
    if isinstance(auth, Prepared):
        return auth.authorization
    if isinstance(auth, (OAuth, MachineGrant)):
        return authorizer(target, auth, http)
    if not isinstance(auth, Supplied):
        if not callable(auth):
            raise ConfigurationError(
                "auth is a token, a function that gives one, or one of OAuth, ClientCredentials, PrivateKeyJwt, "
                "EnterpriseManaged, WorkloadIdentity"
            )
        auth = Supplied(token=auth)
    return SuppliedTokens(target.url, auth)


def authorizer(
    target: UrlTarget,
    settings: OAuth | MachineGrant,
    http: HttpOptions | None = None,
    person: Person | None = None,
    *,
    is_fresh: bool = False,
) -> Authorizer:
    """The same for a login or a grant. `person` is how the user is reached, in place of what the settings say.

    With `is_fresh` somebody logs in, whatever login there is.
    """
    verify = True if http is None else http.verify
    socket = target.socket if http is None or http.socket is None else http.socket
    tls: ssl.SSLContext | None = None
    if verify is not True or target.ca_file is not None:
        tls = tls_context(target.ca_file if verify is True and target.ca_file is not None else verify)
    store: Store = MemoryStore() if isinstance(settings, MachineGrant) else store_of(settings)

    reach = _ON_THIS_MACHINE if socket is not None else None
    proxies = http is None or http.proxies
    return Authorizer(
        target.url, settings, store, tls=tls, reach=reach, person=person, is_fresh=is_fresh, proxies=proxies
    )


def store_of(settings: OAuth) -> Store:
    """Where the logins of these settings are kept. Raises ConfigurationError."""
    if settings.store == "memory":
        return MemoryStore()
    if settings.store == "keyring":
        from mcpd.client.auth.keyring_secrets import KeyringSecrets

        return FileStore(vault=KeyringSecrets())
    return FileStore(settings.store)
