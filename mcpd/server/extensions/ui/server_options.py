"""The options of MCP Apps for a server: in its constructor, and for serving."""

from __future__ import annotations

from typing import Annotated, TypedDict, get_args

from mcpd.server.extensions.ui.constants import AppsMode
from mcpd.server.settings import Option


class AppsServerOptions(TypedDict, total=False):
    """The keyword arguments of `AppsExtension`, which has the defaults."""

    apps: Annotated[
        AppsMode,
        Option(
            "--apps",
            "MCP Apps",
            "Enable MCP Apps: auto (for clients that offer them), always or never.",
            "WHO",
            get_args(AppsMode),
        ),
    ]
    """Which clients get MCP Apps."""
    strict_model_list: Annotated[
        bool,
        Option(
            "--strict-model-list",
            "MCP Apps",
            "Leave tools that only apps may call out of tools/list. Some hosts then cannot call them.",
        ),
    ]
    """Whether `tools/list` leaves out tools that only Views may call."""
