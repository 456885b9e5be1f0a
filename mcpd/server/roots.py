"""`server.roots_changed`: runs an author's functions when a client's roots changed. Spec: 2025-11-25 client/roots."""

from __future__ import annotations

import logging
from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

from mcpd.context.context import Context
from mcpd.context.exchange import Exchange
from mcpd.context.input_required import is_failure
from mcpd.errors import as_told
from mcpd.protocol.printable import printable
from mcpd.registry.threads import run_in_thread

log = logging.getLogger("mcpd")


class RootsWatchers:
    """The functions that an author registered for it, in order."""

    def __init__(self) -> None:
        self.functions: list[Callable[..., Any]] = []

    async def tell(self, exchange: Exchange, params: Any) -> None:
        """Run them all; one that fails keeps no other from it."""
        ctx = Context(exchange)
        for function in self.functions:
            try:
                if iscoroutinefunction(function):
                    await function(ctx)
                else:
                    await run_in_thread(function, ctx, exchange=exchange)
            except BaseException as error:
                if not is_failure(error):
                    raise
                log.error("%s failed, which runs when roots change", printable(function), exc_info=as_told(error))
