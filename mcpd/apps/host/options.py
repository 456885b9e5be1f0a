"""Settings of a `Host` that seldom change."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Raw, Struct, field

from mcpd import __version__
from mcpd.apps.host.document import Profile
from mcpd.apps.host.view import ViewLimits
from mcpd.apps.host.view.context import HostContext, styles
from mcpd.client import ClientLimits
from mcpd.client.channels import ChannelWatcher
from mcpd.protocol.types.base import Implementation


def default_context() -> HostContext:
    """The surroundings of a host that says nothing about them: our theme, inline only."""
    return HostContext(
        styles=styles(), display_mode="inline", available_display_modes=["inline"], user_agent=f"mcpd/{__version__}"
    )


class HostOptions(Struct, frozen=True, kw_only=True):
    """Settings that seldom change.

    `context` is merged over `default_context`; `permissions` are the browser features a View may have if it asks
    (camera, microphone, geolocation, clipboardWrite); `profile` is that of `csp`; `fresh_seconds` how long a
    document is used again without reading it; `version` fixes the protocol version towards the server, and
    `timeout` is how many seconds the server may be silent; `limits` is how much a View may take, `client_limits` how
    much the server. `watcher` is told of each frame between the two.
    """

    info: Implementation = field(default_factory=lambda: Implementation(name="mcpd", version=__version__))
    context: HostContext = field(default_factory=HostContext)
    permissions: tuple[str, ...] = ()
    profile: Profile = "strict"
    limits: ViewLimits = ViewLimits()
    max_views: int = 16
    fresh_seconds: float = 60.0
    version: str | None = None
    timeout: float | None = 60.0
    client_limits: ClientLimits = ClientLimits()
    watcher: ChannelWatcher | None = None


class Treatment(Struct, frozen=True, kw_only=True):
    """What is None is the host's.

    `profile` and `permissions` are those of `HostOptions`. `rewrite` is given the params of each notification about
    the call that opened the View, with its method, and the results of the View's own `tools/call`: what it gives is
    told instead, and with None nothing is told. `sends_early` tells them as soon as `ui/initialize` is answered, which
    the specification forbids.
    """

    profile: Profile | None = None
    permissions: tuple[str, ...] | None = None
    rewrite: Callable[[str, Raw], Raw | None] | None = None
    sends_early: bool = False
