"""Names for a shell to complete: what a file offers. Only files and the starter are asked, and not for long.

A server behind a URL, or a command, is not asked: pressing Tab starts no program but our own, and reaches no network.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Literal

import click
from click.shell_completion import CompletionItem

from mcpd.cli.talk.reach import Reach, opened
from mcpd.errors import McpdError

_SECONDS = 4.0

What = Literal["tools", "prompts", "resources"]
_Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def complete_names(what: What) -> _Completer:
    """Completes TARGET with files, and the word behind it, or in its place, with names of what the server offers."""

    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        typed = list(ctx.params.get("words") or ())
        if len(typed) > 1:
            return []
        found = [CompletionItem(name) for name in _names(what, typed) if name.startswith(incomplete)]
        return found if typed else [*found, CompletionItem(incomplete, type="file")]

    return complete


def complete_kinds(kinds: tuple[str, ...]) -> _Completer:
    """Completes with one of few words, and the first word with files too."""

    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        found = [CompletionItem(kind) for kind in kinds if kind.startswith(incomplete)]
        return found if ctx.params.get("words") else [*found, CompletionItem(incomplete, type="file")]

    return complete


def _names(what: What, typed: list[str]) -> list[str]:
    target = typed[0] if typed else None
    if target is not None and not os.path.exists(target.partition(".py:")[0].removesuffix(".py") + ".py"):
        return []
    # What the server says meanwhile would stand in the middle of the line that is typed.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    try:
        return asyncio.run(asyncio.wait_for(_ask(what, target), _SECONDS))
    except (McpdError, TimeoutError, OSError):
        return []


async def _ask(what: What, target: str | None) -> list[str]:
    async with opened(Reach(target=target, timeout=_SECONDS)) as client:
        if what == "tools":
            return [tool.name for tool in await client.list_tools()]
        if what == "prompts":
            return [prompt.name for prompt in await client.list_prompts()]
        return [resource.uri for resource in await client.list_resources()]
