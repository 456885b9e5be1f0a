"""`Server.override`: another function in place of a dependency, as a test wants it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from mcpd.errors import RegistrationError


class Override:
    """One function that is called instead of another, from now on; as a context manager until the end of the block."""

    def __init__(
        self,
        overrides: dict[Callable[..., Any], Callable[..., Any]],
        dependency: Callable[..., Any],
        replacement: Callable[..., Any],
    ) -> None:
        for given in (dependency, replacement):
            if not callable(given):
                raise RegistrationError(
                    f"override: give the function that stands in Depends, and another; not {given!r}"
                )
        self._overrides = overrides
        self._dependency = dependency
        self._before = overrides.get(dependency)
        overrides[dependency] = replacement

    def end(self) -> None:
        """What was called before is called again."""
        if self._before is None:
            self._overrides.pop(self._dependency, None)
        else:
            self._overrides[self._dependency] = self._before

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.end()
