"""mcpd: an MCP daemon and library. The names that stay; everything else is a room of its own.

Loaded by attribute access, so that `import mcpd` costs nothing that is not used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .client import Callbacks as Callbacks
    from .client import Client as Client
    from .context import Context as Context
    from .context.asking import elicit_form as elicit_form
    from .context.asking import elicit_url as elicit_url
    from .context.asking import list_roots as list_roots
    from .context.asking import sample as sample
    from .context.forms import choices as choices
    from .errors import McpdError as McpdError
    from .errors import ToolError as ToolError
    from .extensions.ui.results import ViewResult as ViewResult
    from .extensions.ui.results import view_result as view_result
    from .host.hooks import Hooks as Hooks
    from .host.host import Host as Host
    from .host.host import HostOptions as HostOptions
    from .registry.content import audio as audio
    from .registry.content import embedded as embedded
    from .registry.content import image as image
    from .registry.content import link as link
    from .registry.content import text as text
    from .server import Server as Server
    from .types.content import ContentBlock as ContentBlock

__version__ = "0.1.0"

__all__ = [
    "Callbacks",
    "Client",
    "ContentBlock",
    "Context",
    "Hooks",
    "Host",
    "HostOptions",
    "McpdError",
    "Server",
    "ToolError",
    "ViewResult",
    "__version__",
    "audio",
    "choices",
    "elicit_form",
    "elicit_url",
    "embedded",
    "image",
    "link",
    "list_roots",
    "sample",
    "text",
    "view_result",
]

_HOMES = {
    "Callbacks": "client",
    "Client": "client",
    "ContentBlock": "types.content",
    "Context": "context",
    "Hooks": "host.hooks",
    "Host": "host.host",
    "HostOptions": "host.host",
    "McpdError": "errors",
    "Server": "server",
    "ToolError": "errors",
    "ViewResult": "extensions.ui.results",
    "audio": "registry.content",
    "choices": "context.forms",
    "elicit_form": "context.asking",
    "elicit_url": "context.asking",
    "embedded": "registry.content",
    "image": "registry.content",
    "link": "registry.content",
    "list_roots": "context.asking",
    "sample": "context.asking",
    "text": "registry.content",
    "view_result": "extensions.ui.results",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
