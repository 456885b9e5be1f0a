"""The client's end: asking any MCP server, in every protocol version.

    session    the state of one connection without I/O: requests that wait, questions that are open, the version
    handshake  the answers by which a version is agreed on
    eras       what is done in one way on a legacy session and in another in modern versions
    callbacks  what a program does when the server asks or tells something
    link       the way to one server, through as many connections as it takes
    known_eras which servers need no probe
    wishes     what each new connection asks for again
    connection the asyncio side: answers awaited, time limits, questions of the server
    inbox      what the server tells, until callbacks have taken it
    limits     how much a server may take
    lists      a list from all its pages
    faults     what a server does wrong, in the log
    values     what a tool returned, as the type that is wanted
    targets    what a target can be: texts, configurations of hosts
    target     from what the user named to a channel
    client     `Client`: one method for each thing a server can be asked
    blocking   its methods as plain ones, on a loop in a thread of its own (`loop_thread`)
    functions  tools as typed functions (`tool_function`), from schemas (`schema_types`)
    group      `ClientGroup`: several servers as one (`group_lists`, `group_names`, `group_member`)

Never imports `mcpd.server`: a server in the same process is a target like any other. The names are loaded by attribute
access: a command starts its server before it loads the client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcpd.client.callbacks import Callbacks
    from mcpd.client.client import Client
    from mcpd.client.limits import ClientLimits
    from mcpd.client.targets.named import CommandTarget, FileTarget, UrlTarget

__all__ = ["Callbacks", "Client", "ClientLimits", "CommandTarget", "FileTarget", "UrlTarget"]

_HOMES = {
    "Callbacks": ".callbacks",
    "Client": ".client",
    "ClientLimits": ".limits",
    "CommandTarget": ".targets.named",
    "FileTarget": ".targets.named",
    "UrlTarget": ".targets.named",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        found = globals()[name] = getattr(import_module(_HOMES[name], __name__), name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
