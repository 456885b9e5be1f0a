"""Whether tokens are to be bound to a key (DPoP), and by which. The library is loaded only where one is wanted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from mcpd.auth.challenge import Challenge
from mcpd.client.auth.discovery import Found
from mcpd.errors import AuthorizationFailed
from mcpd.protocol.printable import printable

if TYPE_CHECKING:
    from mcpd.client.auth.proofs import Prover

_ALGORITHM = "ES256"


class Binding(Struct, frozen=True):
    """The key that tokens are bound to, if they are; `is_needed` refuses those that are not."""

    prover: Prover | None = None
    is_needed: bool = False


UNBOUND = Binding()


def binding(wants: bool, challenge: Challenge | None, found: Found) -> Binding:
    """A fresh key where the program, the challenge or the resource wants bound tokens. Raises AuthorizationFailed."""
    metadata = found.metadata
    is_needed = wants or (challenge is not None and challenge.is_of("DPoP"))
    is_needed = is_needed or (metadata is not None and metadata.wants_dpop)
    if not is_needed:
        return UNBOUND
    if _ALGORITHM not in found.server.dpop_algorithms:
        raise AuthorizationFailed(
            f"tokens bound by DPoP are wanted, and {printable(found.server.issuer, 200)} does not say that it issues "
            f"such with {_ALGORITHM} (dpop_signing_alg_values_supported)"
        )
    from mcpd.client.auth.proofs import Prover

    return Binding(Prover(), is_needed=True)


def binding_of(key: Mapping[str, Any] | None) -> Binding:
    """The key of a login that was kept."""
    if key is None:
        return UNBOUND
    from mcpd.client.auth.proofs import Prover

    return Binding(Prover(key), is_needed=True)
