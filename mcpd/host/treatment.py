"""How one View is treated where that is not as its host treats all: for previews, and for tests of Views.

Hosts differ in what they leave out and when they say it. What a View makes of that can be seen without them.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Raw, Struct

from mcpd.host.documents.csp import Profile


class Treatment(Struct, frozen=True, kw_only=True):
    """What is None is the host's.

    `profile` and `permissions` are those of `HostOptions`. `rewrite` is given the params of each notification about
    the call that opened the View, with its method, and the results of the View's own `tools/call`: what it gives is
    told instead, and with None nothing is told. `tells_early` tells them as soon as `ui/initialize` is answered, which
    the specification forbids.
    """

    profile: Profile | None = None
    permissions: tuple[str, ...] | None = None
    rewrite: Callable[[str, Raw], Raw | None] | None = None
    tells_early: bool = False
