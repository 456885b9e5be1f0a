"""The settings of a `Host`, and of single Views that are to be treated differently."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache

from msgspec import Raw, Struct, field
from msgspec.json import decode

from mcpd import __version__
from mcpd.apps.host.document import Profile
from mcpd.apps.host.view import ViewLimits
from mcpd.apps.host.view.context import HostContext, HostStyles
from mcpd.client import ClientLimits
from mcpd.client.channels import ChannelWatcher
from mcpd.protocol.types.base import Implementation
from mcpd.server.extensions.ui.assets import bundled_folder


@cache
def style_variables() -> dict[str, str]:
    """Return a value for each of the 76 style variables of the specification.

    Text colours have a contrast of at least 4.5:1 on the primary background. The values use `light-dark()`, so that a
    change of the theme needs no new variables. Set all variables or none: for a missing one a View uses a value of its
    own, and the mixture may be unreadable.
    """
    with open(os.path.join(bundled_folder(), "theme.json"), "rb") as file:
        return decode(file.read(), type=dict[str, str])


def default_context() -> HostContext:
    """Return the default host context: our theme, inline only."""
    return HostContext(
        styles=HostStyles(variables=style_variables()),
        display_mode="inline",
        available_display_modes=["inline"],
        user_agent=f"mcpd/{__version__}",
    )


class HostOptions(Struct, frozen=True, kw_only=True):
    """Settings of a `Host`.

    `context` is merged over `default_context`. `permissions` are the browser features that a View may use if it asks
    for them (camera, microphone, geolocation, clipboardWrite). `profile` selects the policy (`document.Profile`).
    `fresh_seconds` is how long a document is used without reading it again. `version` fixes the protocol version
    towards the server. `timeout` is how many seconds the server may be silent. `limits` are for Views, `client_limits`
    for the server. `watcher` receives each frame between host and server.
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
    """Settings of one View that imitate other hosts, for previews and tests. None means the setting of the host.

    `profile` and `permissions` are those of `HostOptions`. `rewrite` receives the method and params of each
    notification about the call that opened the View, and the results of `tools/call` of the View. It returns what is
    sent instead; for a notification None sends nothing. `sends_early` sends the notifications directly after the answer
    to `ui/initialize`, which the specification forbids.
    """

    profile: Profile | None = None
    permissions: tuple[str, ...] | None = None
    rewrite: Callable[[str, Raw], Raw | None] | None = None
    sends_early: bool = False
