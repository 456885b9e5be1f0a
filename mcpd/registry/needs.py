"""What a call needs that not everybody has: the scopes of an entry, or that it asks for none."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from msgspec import Struct

from mcpd.auth.scopes import is_scope
from mcpd.context.context import Context
from mcpd.errors import RegistrationError

ScopesOf: TypeAlias = Callable[[Mapping[str, Any]], Sequence[str]]
"""The scopes that a call needs, by its arguments as they came."""


class Needs(Struct, frozen=True):
    """What those have to have who use an entry: `scopes`, or what `by_arguments` says. `is_anonymous` is nothing."""

    scopes: tuple[str, ...] = ()
    by_arguments: ScopesOf | None = None
    is_anonymous: bool = False


def checked_needs(
    scopes: Collection[str] | ScopesOf | None, anonymous: bool, where: str, *, hide: bool = False
) -> Needs | None:
    """What was said of an entry; None if that is nothing. Raises RegistrationError."""
    if anonymous and (scopes or hide):
        raise RegistrationError(f"{where}: anonymous=True is for everybody; leave out scopes= and hide=")
    if hide and (not scopes or callable(scopes)):
        raise RegistrationError(f"{where}: hide=True hides from those without its scopes; name them in scopes=[…]")
    if scopes is None or scopes == () or scopes == []:
        return Needs(is_anonymous=True) if anonymous else None
    if callable(scopes):
        return Needs(by_arguments=scopes)
    if isinstance(scopes, str) or not all(is_scope(str(one)) for one in scopes):
        raise RegistrationError(f'{where}, scopes: expected a list of scopes like ["notes.read"], got {scopes!r}')
    return Needs(tuple(dict.fromkeys(scopes)))


def sees(needs: Needs) -> Callable[[Context], bool]:
    """A rule by which those see an entry who have its scopes; the same for entries with the same ones."""
    return _have(needs.scopes)


@lru_cache(256)
def _have(scopes: tuple[str, ...]) -> Callable[[Context], bool]:
    def has_its_scopes(ctx: Context) -> bool:
        return ctx.has_scopes(*scopes)

    return has_its_scopes
