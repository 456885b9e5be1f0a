"""2025-11-25: icons, URL elicitation, tools in sampling, tasks (experimental). Spec: spec/mcp-2025-11-25/changelog."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import structs

from mcpd.errors import LocalProtocolError, UrlElicitationRequired
from mcpd.protocol.types.base import ClientCapabilities, ElicitationCapability, Implementation, SamplingCapability
from mcpd.protocol.types.features import CallToolParams, Prompt, Resource, ResourceLink, ResourceTemplate, Tool
from mcpd.protocol.versions.table import Revision

if TYPE_CHECKING:
    from mcpd.protocol.types.interaction import ElicitFormParams, SamplingMessage


def _older_form(params: ElicitFormParams) -> ElicitFormParams:
    """Convert a form to older schemas, which had `enum` with `enumNames` and defaults for booleans only."""
    schema = params.requested_schema
    members = {name: _older_member(name, member) for name, member in schema.get("properties", {}).items()}
    older = {key: value for key, value in schema.items() if key != "$schema"} | {"properties": members}
    return structs.replace(params, requested_schema=older)


def _older_member(name: str, member: dict[str, Any]) -> dict[str, Any]:
    if member.get("type") == "array":
        raise LocalProtocolError(
            f"form field {name!r}: this client's protocol version does not support multiple choice"
        )
    older = {
        key: value
        for key, value in member.items()
        if key != "oneOf" and (key != "default" or member.get("type") == "boolean")
    }
    choices = member.get("oneOf")
    if choices:
        older["enum"] = [choice["const"] for choice in choices]
        older["enumNames"] = [choice.get("title", choice["const"]) for choice in choices]
    return older


def _one_block(message: SamplingMessage) -> SamplingMessage:
    """Return the message with its single content block; older messages could not hold several."""
    content = message.content
    if not isinstance(content, list):
        return message
    if len(content) != 1:
        raise LocalProtocolError("this client's protocol version allows one content block per sampling message")
    return structs.replace(message, content=content[0])


REVISION = Revision(
    version="2025-11-25",
    polling=True,
    server_notifications=("notifications/elicitation/complete",),
    fields={
        Implementation: ("icons", "description", "website_url"),
        Tool: ("icons", "execution"),
        Resource: ("icons",),
        ResourceTemplate: ("icons",),
        Prompt: ("icons",),
        ResourceLink: ("icons",),
        CallToolParams: ("task",),
        "ElicitFormParams": ("mode",),
        "CreateMessageParams": ("tools", "tool_choice"),
        "SamplingMessage": ("meta",),
        ElicitationCapability: ("form", "url"),
        SamplingCapability: ("tools", "context"),
        ClientCapabilities: ("tasks",),
    },
    back={"ElicitFormParams": _older_form, "SamplingMessage": _one_block},
    errors=(UrlElicitationRequired,),
)
