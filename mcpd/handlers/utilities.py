"""`completion/complete`, `logging/setLevel`.

Spec: 2026-07-28 server/utilities/completion; 2025-11-25 server/utilities/logging.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpd.context.exchange import Exchange
from mcpd.errors import InvalidParams
from mcpd.handlers.lifecycle import check_session
from mcpd.protocol.types.base import LOG_LEVELS, EmptyResult, SetLevelParams
from mcpd.registry.catalog import Catalog

if TYPE_CHECKING:
    from mcpd.protocol.types.interaction import CompleteParams, CompleteResult
    from mcpd.registry.entries import PromptEntry, TemplateEntry


async def complete(catalog: Catalog, exchange: Exchange, params: CompleteParams) -> CompleteResult:
    """Suggestions for one argument of a prompt or one variable of a template.

    Raises InvalidParams for a prompt, template or argument that does not exist.
    """
    from mcpd.protocol.types.interaction import CompleteResult, Completion, PromptReference  # noqa: PLC0415 - few clients ask

    active = catalog.active_extensions(exchange)
    entry: PromptEntry | TemplateEntry | None
    if isinstance(params.ref, PromptReference):
        entry = catalog.prompts.get(params.ref.name, active)
        if entry is None:
            raise InvalidParams(f"ref.name: unknown prompt {params.ref.name}")
    else:
        entry = catalog.templates.get(params.ref.uri, active)
        if entry is None:
            if not catalog.has_resource(params.ref.uri, active):
                raise InvalidParams(f"ref.uri: unknown resource template {params.ref.uri}")
            return CompleteResult(completion=Completion(values=[]))

    name = params.argument.name
    if name not in entry.arguments:
        raise InvalidParams(f"argument.name: there is no argument {name}")

    known = (params.context.arguments if params.context else None) or {}
    others = {name: value for name, value in known.items() if value is not None}
    completer = catalog.completers.get((entry.key, name))
    if completer is not None:
        return CompleteResult(completion=await completer.complete(params.argument.value, others, exchange))

    return CompleteResult(completion=await entry.complete(name, params.argument.value, others, exchange))


def set_level(catalog: Catalog, exchange: Exchange, params: SetLevelParams) -> EmptyResult:
    """From now on the session gets log messages of this level and above. Raises MethodNotFound without a session."""
    check_session(exchange)
    if params.level not in LOG_LEVELS:
        raise InvalidParams(f"level: expected one of {', '.join(LOG_LEVELS)}", {"requested": params.level})
    exchange.set_log_level(params.level)
    return EmptyResult()
