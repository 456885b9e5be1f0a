"""From the keywords of `Server.run` to the settings of serving."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mcpd.errors import ConfigurationError
from mcpd.extensions.base import Extension
from mcpd.serve_options import Settings


def settings_for(
    *, stdio: bool, ws: str | None, http: str | None, installed: Iterable[Extension] = (), **others: Any
) -> Settings:
    """The options of `Server.run`, those of `installed` extensions among them.

    Raises TypeError for an option that there is not, ConfigurationError.
    """
    given = {name: others[name] for name in others if name not in Settings.__struct_fields__}
    if given:
        from mcpd.extensions.serving import by_extension

        said = by_extension(installed, given)
        others = {name: value for name, value in others.items() if not any(name in values for values in said.values())}
        # What was said in the one way and in the other is said to the same extension.
        both: Mapping[str, Mapping[str, Any]] = others.get("extensions", {})
        others["extensions"] = {**both, **{id: {**both.get(id, {}), **values} for id, values in said.items()}}

    unknown = [name for name in others if name not in Settings.__struct_fields__]
    if unknown:
        ways = 'say how to serve with stdio=True, ws=":8080" or http=":8080"'
        known = ", ".join(name for name in Settings.__struct_fields__ if name not in ("stdio", "ws", "http"))
        raise TypeError(f"run() has no option {unknown[0]}; {ways}; the others are {known}")
    for name, address in (("ws", ws), ("http", http)):
        if address is not None and not isinstance(address, str):
            raise ConfigurationError(f'{name}={address!r} is no address; write it as text, for example ":8080"')
    has_others = ws is not None or http is not None or bool(others.get("listeners"))
    return Settings(stdio=stdio or not has_others, ws=ws, http=http, **others)
