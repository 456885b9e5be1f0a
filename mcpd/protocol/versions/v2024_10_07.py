"""2024-10-07, the first revision named by a date, known only from the histories of both SDKs.

No page or schema was published. This is 2024-11-05 without its additions.
"""

from mcpd.protocol.types.base import (
    InitializeParams,
    NotificationParams,
    PageParams,
    Params,
    ProgressParams,
    SetLevelParams,
)
from mcpd.protocol.types.features import CallToolParams, GetPromptParams, ReadResourceParams, SubscribeParams
from mcpd.protocol.versions.table import Revision

REVISION = Revision(
    version="2024-10-07",
    null_id=True,
    requests={
        "initialize": InitializeParams,
        "ping": Params,
        "tools/list": PageParams,
        "tools/call": CallToolParams,
        "resources/list": PageParams,
        "resources/templates/list": PageParams,
        "resources/read": ReadResourceParams,
        "resources/subscribe": SubscribeParams,
        "resources/unsubscribe": SubscribeParams,
        "prompts/list": PageParams,
        "prompts/get": GetPromptParams,
        "completion/complete": "CompleteParams",
        "logging/setLevel": SetLevelParams,
    },
    notifications={
        "notifications/initialized": NotificationParams,
        "notifications/progress": ProgressParams,
    },
    server_requests=("ping", "sampling/createMessage"),
    server_notifications=(
        "notifications/progress",
        "notifications/message",
        "notifications/resources/updated",
        "notifications/resources/list_changed",
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
    ),
)
