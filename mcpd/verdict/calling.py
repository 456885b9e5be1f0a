"""The call that an app is opened for: which tool, which arguments, and what its result gives a host without Apps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from msgspec import Raw
from msgspec.json import decode

from mcpd.errors import McpdError, RemoteError
from mcpd.host.call import ToolCall
from mcpd.host.host import Host
from mcpd.host.visibility import is_for_model
from mcpd.protocol.types.tools import CallToolResult, Tool
from mcpd.verdict.arguments import make_arguments
from mcpd.verdict.metadata import App
from mcpd.verdict.report import Check, Finding, checked, skipped

_CALL = ("call", "Its tool can be called")
_FALLBACK = ("text-fallback", "Hosts without Apps get a text")


class Called(NamedTuple):
    """The call of an app's tool, and what was found about it."""

    call: ToolCall | None
    """None if nothing was called."""
    arguments: dict[str, Any]
    checks: list[Check]


async def call_for(host: Host, app: App, given: Mapping[str, Mapping[str, Any]]) -> Called:
    """Call one of an app's tools: one with `given` arguments, else the first that the model may call.

    A tool that says it destroys something is called only with arguments that somebody gave.
    """
    tool, why = _pick(app, given)
    if tool is None:
        return Called(None, {}, [skipped(*_CALL, why), skipped(*_FALLBACK, why, ["APP-S-06"])])

    is_made_up = tool.name not in given
    arguments = make_arguments(_schema(tool)) if is_made_up else dict(given[tool.name])
    call = host.begin_call(tool.name)
    try:
        result = await call.run(arguments)
    except McpdError as error:
        finding = _of_error(tool, error, is_made_up)
        return Called(call, arguments, [
            checked(*_CALL, [finding], ""),
            skipped(*_FALLBACK, "there is no result", ["APP-S-06"]),
        ])  # fmt: skip
    ok = f"{tool.name} {'with arguments made from its schema' if is_made_up and arguments else 'was called'}"
    return Called(call, arguments, [
        checked(*_CALL, _of_result(tool, result, is_made_up), ok),
        checked(*_FALLBACK, _of_fallback(tool, result), "the result has content that a model can read", ["APP-S-06"]),
    ])  # fmt: skip


def _pick(app: App, given: Mapping[str, Mapping[str, Any]]) -> tuple[Tool | None, str]:
    """The tool to call; None, and why there is none."""
    tools = [tool for tool in app.tools if is_for_model(tool)]
    if not tools:
        return None, "only an app may call its tools" if app.tools else "no tool opens it"
    for tool in tools:
        if tool.name in given:
            return tool, ""
    for tool in tools:
        if tool.annotations is None or not tool.annotations.destructive_hint:
            return tool, ""
    return (
        None,
        f"{tools[0].name} says that it destroys something: --call '{tools[0].name}={{…}}' calls it all the same",
    )


def _schema(tool: Tool) -> Mapping[str, Any]:
    return decode(tool.input_schema, type=dict[str, Any]) if isinstance(tool.input_schema, Raw) else tool.input_schema


def _of_error(tool: Tool, error: McpdError, is_made_up: bool) -> Finding:
    text = error.message if isinstance(error, RemoteError) else str(error)
    if is_made_up:
        return _give(tool, f"{tool.name} took no arguments made from its schema: {text}")
    return Finding(severity="failure", text=f"{tool.name} gave an error: {text}", advice="correct the tool, or --call")


def _of_result(tool: Tool, result: CallToolResult, is_made_up: bool) -> Iterator[Finding]:
    if not result.is_error:
        return
    said = " ".join(str(getattr(block, "text", "")) for block in result.content)[:300]
    text = f"{tool.name} failed: {said}"
    yield _give(tool, text) if is_made_up else Finding(severity="warning", text=text, advice="give other arguments")


def _give(tool: Tool, text: str) -> Finding:
    return Finding(
        severity="warning", text=text, advice=f"give arguments that it can take by --call '{tool.name}={{…}}'"
    )


def _of_fallback(tool: Tool, result: CallToolResult) -> Iterator[Finding]:
    blocks = list(result.content)
    if not blocks:
        advice = "return a text that says the same in words: hosts without Apps show it, and the model reads it"
        yield Finding(severity="failure", text=f"{tool.name} gives no content", advice=advice, rule="APP-S-06")
    elif all(getattr(block, "text", None) == "" for block in blocks):
        text = f"all that {tool.name} gives as content is an empty text"
        yield Finding(severity="failure", text=text, advice="say in words what the app shows", rule="APP-S-06")
