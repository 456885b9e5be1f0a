"""What the file of a folder says of serving: for all that neither the command line nor the environment says."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from mcpd.serve_options import Options
from mcpd.sources.configuration import serve_keys
from mcpd.sources.lookup import ServerFolder

_TRANSPORTS = frozenset(("stdio", "ws", "http"))
_NO_FILES = {"auth_server": "dev"}
"""What may stand where a file does, and is none."""


def take(options: Options, said: Mapping[str, Any], place: ServerFolder) -> frozenset[str]:
    """Put what a `[serve]` says into `options`; gives the members that came from there.

    Who names one transport wants no other: `mcpd serve --stdio`, as a host says it, opens no port. Paths are those from
    the file's folder on.
    """
    if not said:
        return frozenset()
    known = serve_keys()
    given = options.given | (_TRANSPORTS if options.given & _TRANSPORTS else frozenset())
    if os.environ.get("MCPD_TOKEN"):
        given |= {"token_file"}
    taken: set[str] = set()
    extensions: dict[str, dict[str, Any]] = {}
    for key, value in said.items():
        id, name, option, _ = known[key]
        if id:
            extensions.setdefault(id, {})[name] = value
        elif name not in given:
            if option.metavar == "FILE" and value != _NO_FILES.get(name):
                value = os.path.join(place.root, value)
            setattr(options, name, value)
            taken.add(name)

    for id, values in options.extensions.items():
        extensions[id] = {**extensions.get(id, {}), **values}
    options.extensions = extensions
    return frozenset(taken)
