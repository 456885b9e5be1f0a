"""What other hosts do wrong, done on purpose to one View: what it is told of its call, changed on the way.

Which host does what is in docs/preview.md. What a quirk leaves out is left out of the notifications about the call that
opened the View, and of the results of its own calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Raw
from msgspec.json import decode

from mcpd.host.documents.csp import Profile
from mcpd.host.treatment import Treatment
from mcpd.host.view.messages import TOOL_INPUT, TOOL_INPUT_PARTIAL, TOOL_RESULT
from mcpd.preview.messages import Quirks
from mcpd.protocol.jsonrpc import encode

FAILED_RESULT = {"content": [{"type": "text", "text": "The tool failed (mcpd preview: errorResult)"}], "isError": True}
"""What a View is told in place of its result."""

OPENAI = {"theme": "light", "locale": "en", "displayMode": "inline", "toolInput": None, "toolOutput": None}
"""What `window.openai` is where it is there: as ChatGPT has it, without functions."""


def treatment(quirks: Quirks, profile: Profile, permissions: tuple[str, ...]) -> Treatment:
    """How a View is treated under these quirks."""
    return Treatment(
        profile="opaque" if quirks.opaque_origin else profile,
        permissions=permissions,
        rewrite=rewriter(quirks),
        tells_early=quirks.input_before_initialized,
    )


def rewriter(quirks: Quirks) -> Callable[[str, Raw], Raw | None] | None:
    """What changes params and results on their way to a View; None if these quirks change nothing."""
    left_out = [
        name
        for name, is_left_out in (("_meta", quirks.drop_meta), ("structuredContent", quirks.drop_structured_content))
        if is_left_out
    ]
    if not (left_out or quirks.no_tool_input or quirks.error_result):
        return None

    def rewrite(method: str, params: Raw) -> Raw | None:
        if method in (TOOL_INPUT, TOOL_INPUT_PARTIAL):
            return None if quirks.no_tool_input else params
        if method == TOOL_RESULT and quirks.error_result:
            return Raw(encode(FAILED_RESULT))
        if method in (TOOL_RESULT, "tools/call") and left_out:
            return _without(params, left_out)
        return params

    return rewrite


def _without(raw: Raw, names: list[str]) -> Raw:
    result: dict[str, Any] = decode(raw)
    return Raw(encode({name: value for name, value in result.items() if name not in names}))
