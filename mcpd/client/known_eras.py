"""Which servers are of the legacy era, as this process has found out: they are not probed a second time.

In memory only. The probe is one message, answered at once by all but few, so that a file would save nearly nothing, and
have to be found wrong after each upgrade of a server.
Spec: 2026-07-28 basic/versioning: "Clients SHOULD cache the result for the lifetime of the server process (stdio) or
origin (HTTP) … re-probing if the cached assumption later fails".
"""

from __future__ import annotations

from mcpd.client.targets.named import CommandTarget, UrlTarget

_MOST = 1000
_legacy: dict[object, None] = {}


def is_known_legacy(target: CommandTarget | UrlTarget | None) -> bool:
    """Whether this server, when it was last connected to, spoke no modern version."""
    return target is not None and _key(target) in _legacy


def remember_era(target: CommandTarget | UrlTarget | None, *, is_probed: bool) -> None:
    """What was found out of it: whether it knows the probe."""
    if target is None:
        return
    key = _key(target)
    _legacy.pop(key, None)
    if not is_probed:
        _legacy[key] = None
        if len(_legacy) > _MOST:
            del _legacy[next(iter(_legacy))]


def forget_eras() -> None:
    """Let each server be probed anew."""
    _legacy.clear()


def _key(target: CommandTarget | UrlTarget) -> object:
    if isinstance(target, CommandTarget):
        return target.command, target.cwd, tuple(sorted((target.env or {}).items()))
    return target.url, target.socket
