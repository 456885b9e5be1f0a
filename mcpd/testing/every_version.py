"""`@mcpd_every_version`: the mark of a test that runs once in each protocol version. The plugin reads it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from mcpd.protocol.principal import Transport

if TYPE_CHECKING:
    import pytest

F = TypeVar("F", bound=Callable[..., Any] | type)


@overload
def mcpd_every_version(test: F, /) -> F: ...


@overload
def mcpd_every_version(
    *, versions: Sequence[str] = (), transports: Sequence[Transport] | Literal["all"] = ()
) -> pytest.MarkDecorator: ...


def mcpd_every_version(
    test: F | None = None, /, *, versions: Sequence[str] = (), transports: Sequence[Transport] | Literal["all"] = ()
) -> F | pytest.MarkDecorator:
    """Run a test that takes `mcpd_client` in each protocol version: `@mcpd_every_version`, on a function or class.

    `versions` are those to run it in, if not in all; `transports` over which to run it in each, `"all"` for every one.
    Without them `mcpd_client` joins client and server in memory. The test may take `mcpd_version` and `mcpd_transport`
    too, which say where it is. For a whole module: `pytestmark = mcpd_every_version()`.
    """
    import pytest  # noqa: PLC0415 - `TestClient` is for whoever tests with something else, too

    mark = pytest.mark.mcpd_every_version(versions=tuple(versions), transports=transports)
    return mark if test is None else mark(test)
