"""Whole requests of one version, read in one step: the envelope of JSON-RPC and the params that belong to its method.

`jsonrpc.decode_request` leaves `params` raw, for nothing can be said of them before the method and the version are
known; then they are read in a second step. Once a connection has a version, both are read by one decoder, in two thirds
of the time. It is made when a method is asked for again, for most are asked for once and a decoder costs as much as a
thousand requests gain.

It reads what is right in every way and what nobody asks twice about, and raises MALFORMED for all else, also for
requests that would be served: whoever gets that goes the plain way, which knows what is wrong and what to say of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Union

from msgspec import Raw, Struct, defstruct, field
from msgspec.json import Decoder

from ..jsonrpc import Id
from ..types.base import META, RequestMeta
from ..types.notifications import LOG_LEVELS

__all__ = ["Frame", "Frames"]


class Frame(Struct, gc=False):
    """A request whose params are read. Of each method there is a class of its own."""

    method: ClassVar[str]
    jsonrpc: Literal["2.0"]
    id: Id
    if TYPE_CHECKING:
        params: Any


class Frames:
    """The requests that are read whole in one version; with the name of a modern one they have to bring it along in
    `_meta`, and what else a request has to say there.
    """

    def __init__(self, modern_version: str | None) -> None:
        self._version = modern_version
        self._classes: dict[str, type[Struct]] = {}
        self.read: Callable[[bytes], Frame] | None = None
        """Reads one of these requests, or raises MALFORMED; None while there is none."""

    def __contains__(self, method: str) -> bool:
        return method in self._classes

    def add(self, method: str, params: type) -> None:
        """From now on requests of a method whose params are of this class are read whole."""
        params = params if self._version is None else _enveloped(params, self._version)
        self._classes[method] = _frame(method, params)
        self.read = Decoder(Union[tuple(self._classes.values())]).decode  # noqa: UP007


def _frame(method: str, params: type) -> type[Struct]:
    return defstruct(
        f"Frame of {method}", [("params", params)], bases=(Frame,), tag_field="method", tag=method, gc=False,
        namespace={"method": method},
    )  # fmt: skip


def _enveloped(params: type, version: str) -> type:
    meta = defstruct(
        "Envelope",
        [
            ("protocol_version", Literal[version], field(name=f"{META}protocolVersion")),
            ("client_capabilities", Raw, field(name=f"{META}clientCapabilities")),
            ("log_level", Literal[LOG_LEVELS] | None, field(name=f"{META}logLevel", default=None)),
        ],
        bases=(RequestMeta,),
        kw_only=True,
        gc=False,
    )
    return defstruct(params.__name__, [("meta", meta, field(name="_meta"))], bases=(params,), kw_only=True)
