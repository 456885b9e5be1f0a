"""What MCP Apps let authors say of a whole server: in its constructor, and when it is served."""

from __future__ import annotations

from typing import Annotated, TypedDict, get_args

from mcpd.serve_options import Option
from mcpd.server.extensions.ui.constants import AppsMode


class AppsServerOptions(TypedDict, total=False):
    """The keywords of `AppsExtension`, where their defaults are."""

    apps: Annotated[
        AppsMode,
        Option(
            "--apps",
            "MCP Apps",
            "Who gets MCP Apps: auto (clients that offer them), always or never.",
            "WHO",
            get_args(AppsMode),
        ),
    ]
    """Who gets MCP Apps."""
    strict_model_list: Annotated[
        bool,
        Option(
            "--strict-model-list",
            "MCP Apps",
            "List no tool that only apps may call, though they can; some hosts then never find it.",
        ),
    ]
    """Whether tools that are for Views only are in no list."""
