"""The tools over documents as entries: functions with the arguments and results that their wording gives them."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any

from msgspec import UNSET, Meta, to_builtins

from mcpd.extensions.ui.results import VIEW_DATA, view_result
from mcpd.registry.entries import ToolEntry
from mcpd.server import Server
from mcpd.server.entries import tool_entry
from mcpd.sources.docs.answers import Answers
from mcpd.sources.docs.shapes import Project, shape_of
from mcpd.sources.docs.texts import links_of, text_of
from mcpd.sources.docs.wording import Argument, Wording
from mcpd.sources.docs_table import Doing
from mcpd.types.tools import CallToolResult

_READ_ONLY = {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False}

Answer = Callable[..., Awaitable[Any]]


def tool_of(
    server: Server, answers: Answers, wording: Wording, names: dict[Doing, str], options: Mapping[str, Any]
) -> ToolEntry:
    """One tool, with further `options` of `@server.tool`; `names` are those of all tools.

    Raises ConfigurationError for a shape of results that cannot be had, RegistrationError for what else cannot be.
    """
    said: Any = {
        "name": wording.name,
        "title": wording.title,
        "description": wording.description,
        "annotations": {"title": wording.title, **_READ_ONLY},
        **options,
    }
    function = _function(wording, getattr(answers, wording.does), names)
    return tool_entry(server.catalog, server.extensions.values(), function, said)


def _function(wording: Wording, answer: Answer, names: dict[Doing, str]) -> Callable[..., Awaitable[CallToolResult]]:
    """A function with the signature that the wording says, which calls `answer` with what it was given."""
    shape = shape_of(wording.does, wording.result, f"docs.tools.{wording.name}.result")
    seen = {argument.name: argument for argument in wording.arguments.values() if not argument.hidden}
    inner = {argument.name: name for name, argument in wording.arguments.items() if not argument.hidden}
    fixed: dict[str, Any] = {
        name: argument.default for name, argument in wording.arguments.items() if argument.hidden and argument.default
    }
    if wording.section is not None:
        fixed["section"] = wording.section
    cursor = wording.arguments["cursor"].name if "cursor" in wording.arguments else "cursor"

    async def call(**given: Any) -> CallToolResult:
        result = await answer(**fixed, **{inner[name]: value for name, value in given.items()})
        return _told(result, text_of(result, wording.name, names, cursor), shape.project)

    parameters = [_parameter(argument) for argument in seen.values()]
    call.__signature__ = inspect.Signature(parameters, return_annotation=shape.kind)  # type: ignore[attr-defined]
    call.__annotations__ = {**{one.name: one.annotation for one in parameters}, "return": shape.kind}
    call.__name__ = wording.name
    return call


def _parameter(argument: Argument) -> inspect.Parameter:
    default = inspect.Parameter.empty if argument.is_required else argument.default
    kind: Any = argument.kind
    annotation: Any = Annotated[kind, Meta(description=argument.description)]
    return inspect.Parameter(argument.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _told(result: Any, text: str, project: Project) -> CallToolResult:
    """An answer as text, as data under the names that callers know, and for a View under those that it knows."""
    data = to_builtins(result)
    is_error = getattr(result, "error", UNSET) is not UNSET and not hasattr(result, "results")
    return view_result([text, *links_of(result)], project(data), meta={VIEW_DATA: data}, is_error=is_error)
