"""Logging in to a server, and being let in without a person: OAuth 2.1 as MCP has it, the client's side.

    settings      what a program says: `OAuth` for people, `ClientCredentials` and others for programs
    steps         what the flow asks of the world: it is generators, without I/O
    discovery     from a refusal to the authorization server; `documents` are what is read on the way
    registration  who the client is there
    authorization the request of a person, and its response
    tokens        requests to the token endpoint; `proofs` sign what is signed, `proofs_needed` says whether
    flow          all of it for a person; `grants` for programs
    run           drives the flow: `loopback` is where the browser comes back to
    store         logins that outlive the process; `keyring_secrets` keeps their secrets elsewhere
    authorizer    what is done for each request; `sources` has tokens that the program brings
    logins        what a person does with them: log in anew, log out, see what there is
    making        from `auth=` to one of them

Nothing of it is loaded by a client that needs none. Spec: 2026-07-28 basic/authorization.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcpd.client.auth.settings import ClientCredentials, EnterpriseManaged, OAuth, PrivateKeyJwt, WorkloadIdentity

__all__ = ["ClientCredentials", "EnterpriseManaged", "OAuth", "PrivateKeyJwt", "WorkloadIdentity"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(".settings", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
