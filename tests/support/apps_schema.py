"""Messages between a host and its Views, against the schema of the official SDK (ext-apps 2.0.4).

The schema follows the later draft and is generated from code, so that it says three things the stable text
does not; each is undone here, and nowhere else:

- `params` of `ui/resource-teardown` is closed and empty; the text has `reason` in it.
- the two halves of `containerDimensions` are closed objects in an `allOf`, which not even the text's own
  example `{"width": 400, "maxHeight": 600}` can meet.
- `styles.variables` requires all 76 names; the text and the schema's own description say "any subset".
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

__all__ = ["METHODS", "AppsSchema"]

jsonschema_rs = pytest.importorskip("jsonschema_rs", reason="needs jsonschema-rs, which the test extra brings")

METHODS = {
    "ui/notifications/sandbox-resource-ready": "McpUiSandboxResourceReadyNotification",
    "ui/notifications/tool-input": "McpUiToolInputNotification",
    "ui/notifications/tool-input-partial": "McpUiToolInputPartialNotification",
    "ui/notifications/tool-result": "McpUiToolResultNotification",
    "ui/notifications/tool-cancelled": "McpUiToolCancelledNotification",
    "ui/notifications/host-context-changed": "McpUiHostContextChangedNotification",
    "ui/resource-teardown": "McpUiResourceTeardownRequest",
}
RESULTS = {
    "ui/initialize": "McpUiInitializeResult",
    "ui/open-link": "McpUiOpenLinkResult",
    "ui/message": "McpUiMessageResult",
    "ui/request-display-mode": "McpUiRequestDisplayModeResult",
    "ui/download-file": "McpUiDownloadFileResult",
}
# Notifications and requests of the core protocol, which that schema does not have.
CORE = {"ping", "tools/call", "tools/list"}
CORE_PREFIX = "notifications/"


def relax(node: Any) -> None:
    """Undo what the module's docstring names, wherever it stands in a definition."""
    if isinstance(node, list):
        for part in node:
            relax(part)
    elif isinstance(node, dict):
        properties = node.get("properties", {})
        if isinstance(properties.get("containerDimensions"), dict):
            for half, axis in zip(properties["containerDimensions"]["allOf"], ("height", "width"), strict=True):
                fixed, flexible = half["anyOf"]
                del fixed["additionalProperties"], flexible["additionalProperties"]
                flexible["properties"][axis] = False  # one or the other, as the text says
        if isinstance(properties.get("variables"), dict):
            properties["variables"].pop("required", None)
        for part in node.values():
            relax(part)


class AppsSchema:
    """The schema, ready to judge."""

    def __init__(self, shared: Path) -> None:
        schema = json.loads((shared / "spec/apps/ext-apps-2.0.4.schema.json").read_text(encoding="utf-8"))
        definitions: dict[str, Any] = copy.deepcopy(schema["$defs"])
        relax(definitions)
        definitions["McpUiResourceTeardownRequest"]["properties"]["params"]["properties"] = {
            "reason": {"type": "string"}
        }
        self._definitions = definitions
        self._validators: dict[str, Any] = {}

    def check(self, message: dict[str, Any], asked: dict[Any, str]) -> None:
        """Check one message of the host's; `asked` maps the ids of the View's requests to their methods."""
        assert message["jsonrpc"] == "2.0"
        if "method" in message:
            method = message["method"]
            if method in CORE or method.startswith(CORE_PREFIX):
                return
            self._validate(METHODS[method], {key: message[key] for key in ("method", "params") if key in message})
        elif "error" in message:
            assert set(message["error"]) <= {"code", "message", "data"}
        elif (name := RESULTS.get(asked[message["id"]])) is not None:
            self._validate(name, message["result"])

    def _validate(self, name: str, value: Any) -> None:
        if name not in self._validators:
            self._validators[name] = jsonschema_rs.validator_for(self._definitions[name])
        self._validators[name].validate(value)
