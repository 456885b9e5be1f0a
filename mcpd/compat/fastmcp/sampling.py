"""`Context.sample`: questions to the client's model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mcpd.compat.missing import refuse
from mcpd.compat.types import asking
from mcpd.compat.types.content import TextContent

__all__ = ["SamplingResult", "sample"]

_LONGEST = 512


@dataclass
class SamplingResult:
    """What the model said."""

    text: str | None
    result: Any
    content: Any = None
    history: list[Any] = field(default_factory=list)
    type: str = "text"


async def sample(session: Any, messages: Any, system_prompt: str | None = None, **options: Any) -> SamplingResult:
    """Ask it. Raises NotHere for tools and typed results, which mcpd.compat does not have."""
    for name in ("tools", "result_type", "tool_choice"):
        if options.pop(name, None) not in (None, str):
            refuse(f"ctx.sample({name}=…)", "fastmcp")
    asked = [_message(one) for one in (messages if isinstance(messages, (list, tuple)) else [messages])]
    answer = await session.create_message(
        asked,
        max_tokens=options.get("max_tokens") or _LONGEST,
        system_prompt=system_prompt,
        include_context=options.get("include_context"),
        temperature=options.get("temperature"),
        model_preferences=_preferences(options.get("model_preferences")),
    )
    content = answer.content
    text = getattr(content, "text", None)
    return SamplingResult(text, text if text is not None else content, content, [*asked, answer])


def _message(given: Any) -> asking.SamplingMessage:
    if isinstance(given, asking.SamplingMessage):
        return given
    block = TextContent(text=given) if isinstance(given, str) else given
    return asking.SamplingMessage(role="user", content=block)


def _preferences(given: Any) -> asking.ModelPreferences | None:
    if given is None or isinstance(given, asking.ModelPreferences):
        return given
    names = [given] if isinstance(given, str) else given
    return asking.ModelPreferences(hints=[asking.ModelHint(name=name) for name in names])
