"""The settings of a mount."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from msgspec import Meta, Struct, ValidationError, convert
from msgspec.json import Decoder

from mcpd.errors import ConfigurationError
from mcpd.protocol.jsonrpc import MALFORMED
from mcpd.protocol.printable import printable

if TYPE_CHECKING:
    from mcpd.server.context.exchange import Exchange

HOPS = "mcpd/hops"
"""The member of `_meta` that counts the mounts that a request has passed."""
MOST_HOPS = 8

S = TypeVar("S", bound=Struct)

_NAME = r"^[a-z][a-z0-9-]{0,30}$"

_Seconds = Annotated[float, Meta(ge=0)]


# Headers that belong to one connection, or name or authorize a client. They are never sent on.
_NEVER = re.compile(r"(?i)authorization|cookie2?|proxy-.*|mcp-.*|forwarded|x-forwarded-.*|x-real-ip|host|via|origin")


class MountSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of one mount, beside the command or URL of its server."""

    enabled: Annotated[bool, Meta(description="Whether to mount it.")] = True
    prefix: Annotated[
        Annotated[str, Meta(pattern=f"{_NAME}|^$")] | None,
        Meta(description="The beginning of its names and URIs instead of NAME; an empty text leaves them unchanged."),
    ] = None
    allow: Annotated[
        tuple[str, ...], Meta(description='Offer only these tools and prompts, such as "get_*"; by default all.')
    ] = ()
    deny: Annotated[tuple[str, ...], Meta(description="Do not offer these tools and prompts.")] = ()
    rename: Annotated[dict[str, str], Meta(description="Other names for tools and prompts.")] = {}
    describe: Annotated[dict[str, str], Meta(description="Other descriptions for tools and prompts.")] = {}
    arguments: Annotated[
        dict[str, dict[str, Any]], Meta(description="Fixed arguments of tools, which callers neither see nor set.")
    ] = {}
    instances: Annotated[
        Literal["client", "principal", "shared", "call"] | None,
        Meta(
            description="Who shares a running instance: each client has one, each user, all share one, or each call "
            "starts one. By default servers of 2026-07-28 are shared, and older ones have an instance for each client."
        ),
    ] = None
    instance_idle: Annotated[
        _Seconds, Meta(description="End an instance of an HTTP client that was idle for this many seconds.")
    ] = 900.0
    eager: Annotated[bool, Meta(description="Start it with the server, not with the first call.")] = False
    protocol: Annotated[
        Literal["auto", "modern", "legacy"],
        Meta(description="Which protocol it speaks: modern is 2026-07-28, legacy older; auto finds out."),
    ] = "auto"
    start_timeout: Annotated[
        Annotated[float, Meta(gt=0)], Meta(description="Time limit for its start, in seconds.")
    ] = 10.0
    timeout: Annotated[
        _Seconds, Meta(description="Time limit for a call, in seconds, which progress extends; 0 for none.")
    ] = 300.0
    questions: Annotated[
        Literal["ask", "refuse"],
        Meta(description="Whether an older server may ask the user of a newer client something."),
    ] = "ask"
    roots: Annotated[
        tuple[str, ...] | None, Meta(description="The folders that it may use, instead of the client's folders.")
    ] = None
    identity: Annotated[
        Literal["proxy", "upstream"],
        Meta(description="Whether it sees the credentials of the mount, or each user logs in there."),
    ] = "proxy"
    token_file: Annotated[str | None, Meta(description="A file with the bearer token for its URL.")] = None
    forward_headers: Annotated[
        tuple[str, ...], Meta(description="Headers of a client's request that are sent on, such as x-tenant.")
    ] = ()
    inherit_env: Annotated[
        bool, Meta(description="Give its process the whole environment, not only the usual variables.")
    ] = False
    csp: Annotated[
        Literal["deny"] | tuple[str, ...] | None,
        Meta(description="The only origins that its apps may use, or deny for none."),
    ] = None
    pin: Annotated[bool, Meta(description="Withhold tools whose definition has changed until you accept them.")] = False
    task: Annotated[bool, Meta(description="Run its calls as tasks if it asks questions and the client has tasks.")] = (
        False
    )

    def __post_init__(self) -> None:
        refused = next((name for name in self.forward_headers if _NEVER.fullmatch(name)), None)
        if refused is not None:
            raise ValueError(f"forward_headers: {refused} is never sent on to another server")

    def allows(self, name: str) -> bool:
        """Return whether a tool or prompt of the server is offered, by its name there."""
        if any(fnmatchcase(name, pattern) for pattern in self.deny):
            return False
        return not self.allow or any(fnmatchcase(name, pattern) for pattern in self.allow)

    @property
    def changes_names(self) -> bool:
        """Whether any entry of the server is hidden or changed."""
        return self.pin or bool(self.allow or self.deny or self.rename or self.describe or self.arguments)


class MountTable(MountSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[mounts.NAME]` in mcpd.toml: where the server is, and the settings of the mount."""

    command: Annotated[
        tuple[str, ...] | str | None, Meta(description="The command that starts the server, as a list of words.")
    ] = None
    args: Annotated[tuple[str, ...], Meta(description="Further words of the command.")] = ()
    env: Annotated[
        dict[str, str], Meta(description='Environment variables of its process, such as { DSN = "${DSN}" }.')
    ] = {}
    env_file: Annotated[str | None, Meta(description="A file with lines of NAME=VALUE for its environment.")] = None
    cwd: Annotated[str | None, Meta(description="The folder it starts in; by default the folder of this file.")] = None
    url: Annotated[str | None, Meta(description="The URL of a running server: http, https, ws, wss or unix:/path.")] = (
        None
    )
    headers: Annotated[dict[str, str], Meta(description="Headers of each request to the URL.")] = {}


def read_settings(name: str, given: Mapping[str, Any], kind: type[S] = MountSettings) -> S:  # type: ignore[assignment]
    """Return the settings of the mount `name`. Raises ConfigurationError."""
    known = kind.__struct_fields__
    unknown = next((key for key in given if key not in known), None)
    if unknown is not None:
        from difflib import get_close_matches

        near = get_close_matches(unknown, known, 1)
        hint = f"did you mean {near[0]}?" if near else f"known settings: {', '.join(known)}"
        raise ConfigurationError(f"mounts.{name}: unknown setting {printable(unknown)}; {hint}")

    try:
        return convert(dict(given), kind)
    except ValidationError as error:
        raise ConfigurationError(f"mounts.{name}: {str(error).replace('`', '')}") from None


def settings_of(table: MountTable) -> MountSettings:
    """Return the settings in a table, without its place."""
    return MountSettings(**{name: getattr(table, name) for name in MountSettings.__struct_fields__})


def hops_of(exchange: Exchange) -> int:
    """Return how many mounts a request has passed."""
    raw = exchange.call.raw
    if HOPS.encode() not in bytes(raw):
        return 0
    try:
        hops = _read_head(raw).get("_meta", {}).get(HOPS, 0)
    except (AttributeError, *MALFORMED):
        return 0
    return hops if isinstance(hops, int) else 0


_read_head = Decoder(dict[str, Any]).decode
