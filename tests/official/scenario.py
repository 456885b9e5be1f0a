"""What the official Python clients' scripts share: one scenario in on stdin, one report out on stdout.

A scenario, as JSON; `scenario.mjs` is the same for the TypeScript clients:

    target    {"command": [...]} to launch over stdio, or {"url": "ws://..."} or {"url": "http://..."}
    era       "legacy" (initialize), "auto" (discover first), "pin" (2026-07-28, no fallback)
    extensions  {identifier: settings} that the client offers
    answers   {method: result} for what the server asks of the client; offering an answer declares the capability.
              A list of results gives one after the other
    steps     [{"method", "params", "progress": true, "timeout": seconds}], in this order, all with the client's
              own typed calls. With `patient` each progress lets the timeout begin anew (TypeScript only).
              `params._meta` of tools/call goes along. In a step subscriptions/listen `params` are the filter: it
              opens a subscription, takes the `steps` inside it, waits for so many `events`, closes it

The report: client, protocol, server, capabilities, instructions; for each step the result as it came over
the wire, or the error; what the client was asked, and the notifications it heard.

Lives with the client's package only: nothing of mcpd is imported here.
"""

from __future__ import annotations

import json
import sys
from typing import Any

__all__ = ["failure", "read", "wire", "write"]


def read() -> dict[str, Any]:
    """The scenario, with every member there."""
    scenario: dict[str, Any] = {"era": "legacy", "extensions": {}, "answers": {}, "steps": []}
    return scenario | json.load(sys.stdin)


def write(report: dict[str, Any]) -> None:
    """Print the report; the one thing that goes to stdout."""
    json.dump(report, sys.stdout)
    print(flush=True)


def wire(model: Any) -> Any:
    """A pydantic model as it came: with the names of the wire, and without what was not sent."""
    if isinstance(model, dict):
        return model
    return model.model_dump(by_alias=True, mode="json", exclude_unset=True) if model is not None else None


def failure(error: Exception) -> dict[str, Any]:
    """An error for the report: the JSON-RPC one where the server sent one, else what the client said."""
    data = getattr(error, "error", None)
    if data is not None:
        return {"code": data.code, "message": data.message, "data": data.data}
    return {"type": type(error).__name__, "message": str(error)}
