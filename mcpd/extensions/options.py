"""What the built-in extensions let authors say, for type checkers: each adds its TypedDict to the bases here.

Nothing here is used at run time; there the constructors and `tool_options` of the extensions say it.
"""

from __future__ import annotations

from mcpd.extensions.ui.options import AppToolOptions
from mcpd.extensions.ui.server_options import AppsServerOptions


class BuiltInServeOptions(AppsServerOptions, total=False):
    """What `Server.run(…)` takes for them."""


class BuiltInOptions(BuiltInServeOptions, total=False):
    """What `Server(…)` takes for them."""


class BuiltInToolOptions(AppToolOptions, total=False):
    """What `@server.tool(…)` takes for them."""
