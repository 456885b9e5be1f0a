"""What hosts, frameworks and model vendors take, of what the specification allows: for `check` and `doctor`.

Each rule has broken servers in some host. Looks at what a server offers, as it is listed; nothing is run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mcpd.registry.portable_schemas import input_schema_problems, output_schema_problems
from mcpd.registry.problems import Problem

MOST_TOOLS_ANYWHERE = 100
"""Windsurf takes so many tools, of all servers together."""

_MOST_TOOLS = 128
"""VS Code and OpenAI's models take so many in one request."""

_MOST_TEXT_BYTES = 2048
"""Claude Code cuts descriptions of tools and instructions behind it."""

_ALONE_CHARACTERS = 512
"""So much of the instructions has to make sense alone in Codex."""

_MOST_LIST_BYTES = 100_000
"""About 25,000 tokens: an eighth of what many models can look at."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def tool_problems(tool: Mapping[str, Any], *, any_output: bool) -> Iterator[Problem]:
    """What is wrong with a tool as it is listed. `any_output`: in a version whose results need not be objects."""
    name = tool.get("name")
    where = f"tool {name}"
    yield from name_problems(where, str(name))
    yield from description_problems(where, tool.get("description"))
    yield from input_schema_problems(where, tool.get("inputSchema"))
    if tool.get("outputSchema") is not None and not any_output:
        yield from output_schema_problems(where, tool["outputSchema"])


def name_problems(where: str, name: str) -> Iterator[Problem]:
    """What is wrong with a tool's name."""
    if not _NAME.fullmatch(name):
        yield _warning(where, "its name: some hosts take 1 to 64 letters, digits, '_' and '-' only")


def description_problems(where: str, description: str | None) -> Iterator[Problem]:
    """What is wrong with a tool's description."""
    if not (description or "").strip():
        yield _warning(where, "no description: models choose tools by it; write a docstring")
    elif len((description or "").encode("utf-8", "replace")) > _MOST_TEXT_BYTES:
        yield _warning(where, f"its description: Claude Code cuts it behind {_MOST_TEXT_BYTES:,} bytes; shorten it")


def list_problems(tools: Sequence[str], size: int = 0) -> Iterator[Problem]:
    """What is wrong with a list of tools as a whole: their names, and its size in bytes of JSON."""
    for name, times in Counter(tools).items():
        if times > 1:
            yield Problem(
                f"tool {name}", f"listed {times} times: hosts take one of them, or none; give each its own name"
            )
    if len(tools) > _MOST_TOOLS:
        text = f"{len(tools)} tools: VS Code and OpenAI's models take {_MOST_TOOLS} at most, Windsurf"
        yield _warning(
            "tools", f"{text} {MOST_TOOLS_ANYWHERE}, those of other servers among them; offer fewer at a time"
        )
    elif len(tools) > MOST_TOOLS_ANYWHERE:
        text = f"{len(tools)} tools: Windsurf takes {MOST_TOOLS_ANYWHERE} at most, those of other servers among them"
        yield _warning("tools", text)
    if size > _MOST_LIST_BYTES:
        text = f"their list has {size:,} bytes, about {size // 4000 * 1000:,} tokens of what a model can look at"
        yield _warning("tools", f"{text}: some hosts search it instead of showing it; shorten descriptions and schemas")


def instructions_problems(instructions: str | None) -> Iterator[Problem]:
    """What is wrong with a server's instructions."""
    text = instructions or ""
    if len(text.encode("utf-8", "replace")) > _MOST_TEXT_BYTES:
        yield _warning("instructions", f"Claude Code cuts them behind {_MOST_TEXT_BYTES:,} bytes; shorten them")
    elif len(text) > _ALONE_CHARACTERS:
        said = f"{len(text)} characters: the first {_ALONE_CHARACTERS} have to make sense alone in Codex"
        yield _warning("instructions", f"{said}; put there what matters most")


def resource_problems(resource: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with a resource as it is listed."""
    uri = resource.get("uri")
    if not isinstance(uri, str) or not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", uri):
        yield Problem(f"resource {uri}", "its URI has no scheme: clients drop it; write for example file:///notes.txt")


def _warning(where: str, text: str) -> Problem:
    return Problem(where, text, is_error=False)
