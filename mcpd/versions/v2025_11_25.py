"""2025-11-25: icons, URL elicitation, tools in sampling, tasks (experimental). Spec: spec/mcp-2025-11-25/changelog."""

from ..types.content import ResourceLink
from ..types.lifecycle import Implementation
from ..types.prompts import Prompt
from ..types.resources import Resource, ResourceTemplate
from ..types.tools import CallToolParams, Tool
from .revision import Revision

__all__ = ["REVISION"]

REVISION = Revision(
    version="2025-11-25",
    server_notifications=("notifications/elicitation/complete",),
    fields={
        Implementation: ("icons", "description", "website_url"),
        Tool: ("icons", "execution"),
        Resource: ("icons",),
        ResourceTemplate: ("icons",),
        Prompt: ("icons",),
        ResourceLink: ("icons",),
        CallToolParams: ("task",),
    },
)
