"""Scopes: which are texts that may be asked for, which include others, and what stands in a challenge.

Spec: RFC 6749 3.3; 2026-07-28 basic/authorization, scope selection and insufficient scope.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from mcpd.errors import ConfigurationError

_scope = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+").fullmatch


def is_scope(text: str) -> bool:
    """Whether a text is one scope. Spec: RFC 6749 3.3."""
    return _scope(text) is not None


def checked_scopes(given: Iterable[str], where: str) -> tuple[str, ...]:
    """The scopes in their order, each once. Raises ConfigurationError for what is none, and for offline_access."""
    if isinstance(given, str):
        raise ConfigurationError(f'{where}: scopes are a list of texts, as ["notes.read"], not {given!r}')
    found = tuple(dict.fromkeys(given))
    for scope in found:
        if not is_scope(str(scope)):
            raise ConfigurationError(f"{where}: {scope!r} is no scope; one is printable ASCII without spaces or quotes")
        if scope == "offline_access":
            raise ConfigurationError(
                f"{where}: offline_access is between the client and the authorization server; leave it out"
            )
    return found


class Hierarchy:
    """Which scopes include others: `Hierarchy({"files": ["files.read", "files.write"]})`. Raises ConfigurationError."""

    def __init__(self, implies: Mapping[str, Iterable[str]]) -> None:
        self._implies = {
            scope: frozenset(checked_scopes(below, f"implies {scope!r}")) for scope, below in implies.items()
        }
        checked_scopes(self._implies, "implies")

    def expanded(self, scopes: Iterable[str]) -> frozenset[str]:
        """These scopes with all that they include, and what those include."""
        found = set(scopes)
        if self._implies:
            waiting = list(found)
            while waiting:
                more = self._implies.get(waiting.pop(), frozenset()) - found
                found |= more
                waiting += more
        return frozenset(found)


def written(*parts: Iterable[str]) -> str:
    """All scopes as a challenge names them: in their order, each once."""
    return " ".join(dict.fromkeys(scope for part in parts for scope in part))
