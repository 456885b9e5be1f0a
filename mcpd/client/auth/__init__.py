"""Authorization of a client: OAuth 2.1 as MCP specifies it, for people and for programs.

    settings     `OAuth` for people, `ClientCredentials` and the other grants for programs.
    authorizer   authorizes each request, and decides when to refresh and when to log in; start here.
    flow         the login of a person; `grants` are the logins of programs.
    steps        the requests and interactions that a flow needs, and how they are performed.
    discovery    finds the authorization server; `tokens` are the requests to it.
    store        the stored logins; `logins` logs in and out on behalf of a user.

The flow does no I/O. A client without authorization imports nothing of this package; the values of `auth=` are in
`mcpd.client.http.options`. Spec: 2026-07-28 basic/authorization.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .settings import ClientCredentials, EnterpriseManaged, OAuth, PrivateKeyJwt, WorkloadIdentity

__all__ = ["ClientCredentials", "EnterpriseManaged", "OAuth", "PrivateKeyJwt", "WorkloadIdentity"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(".settings", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
