"""Tasks as an extension of a server, and the options of its tools.

It is loaded with every server, so modules that only servers with tasks need are imported on first use.
Spec: tasks-extension; 2025-11-25 basic/utilities/tasks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from mcpd.errors import ConfigurationError, RegistrationError
from mcpd.protocol.envelope import ClientIdentity
from mcpd.protocol.types.base import Meta
from mcpd.server.context.exchange import Exchange
from mcpd.server.extensions.base import Extension, ExtensionHost, Method, ToolAddition
from mcpd.server.registry.entries import Problem
from .settings import TASKS, TaskSettings, TaskTool

if TYPE_CHECKING:
    from mcpd.protocol.channel import Ending
    from mcpd.protocol.types.interaction import ListenResult, SubscriptionFilter
    from mcpd.server.backplane.base import Backplane
    from .registry import Tasks

    Follow: TypeAlias = Callable[[Exchange, list[str]], tuple[list[str], list[Coroutine[Any, Any, None]]]]

# Seconds after which a call of a client without tasks is answered with a text, if `task_fallback` is "poll". Hosts
# give up after 60 s.
FALLBACK_AFTER = 45.0

_AFTER = 1.0


class TasksExtension(Extension):
    """The tasks of a server. It is announced with the first tool that can be a task.

    `tasks` are the limits. `task_store` is the URL of the backplane on which tasks are kept: sqlite:///PATH survives a
    restart, redis://HOST is shared by several processes. By default that is the backplane of the processes that serve
    together, or memory. With `task_fallback` "poll" a client without tasks gets a text after 45 s, and two tools to ask
    for the result and to stop the work.
    """

    tool_options = ("task", "task_after", "retry")

    def __init__(
        self,
        *,
        tasks: TaskSettings | None = None,
        task_store: str | None = None,
        task_fallback: Literal["poll"] | None = None,
    ) -> None:
        super().__init__(TASKS)
        if task_fallback not in (None, "poll"):
            raise RegistrationError(f'task_fallback={task_fallback!r}: use "poll", or leave it out')
        self.limits = tasks or TaskSettings()
        self.task_store: str | Backplane | None = task_store
        self.fallback_after = None if task_fallback is None else FALLBACK_AFTER
        self._is_offered = False
        self._tasks: Tasks | None = None
        self._shared: Backplane | None = None
        self._joined: TasksExtension | None = None
        self._counted: tuple[int, bool] = (-1, False)
        self._follow: Follow | None = None

    def serve_options(self) -> type:
        """Return the options that operators choose."""
        from mcpd.server.extensions.options import TasksServeOptions  # few programs read them

        return TasksServeOptions

    # -- its tasks ---------------------------------------------------------------------------

    @property
    def tasks(self) -> Tasks:
        """The tasks of all servers that are served together."""
        if self._joined is not None:
            return self._joined.tasks
        if self._tasks is None:
            from mcpd.server.backplane.node import namespace_of
            from .registry import Tasks
            from .running import run_again

            assert self.server is not None
            self._tasks = Tasks(self.limits, self._open_store, f"{namespace_of(self.server.name)}:", run_again)
            self._tasks.hosts[self.server.name] = self.server

        return self._tasks

    def _open_store(self) -> tuple[Backplane | None, bool]:
        # Return the backplane of the tasks, None for the memory of this process, and whether it is theirs alone.
        if self.task_store is None or not isinstance(self.task_store, str):
            return (self._shared if self.task_store is None else self.task_store), False
        from mcpd.server.backplane.node import open_backplane

        assert self.server is not None
        scheme, _, path = self.task_store.partition("://")
        if scheme == "memory":
            return None, True
        if scheme == "sqlite" and os.path.dirname(path):
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)  # for nobody else (TASK-079)
        return open_backplane(self.task_store, self.server.name), True

    def _offer(self) -> None:
        if self._is_offered:
            return
        assert self.server is not None
        self._is_offered = True
        from .methods import METHODS, NOTIFICATIONS
        from .running import wrapping

        self.requests.update(METHODS)
        self.server_notifications.update(NOTIFICATIONS)
        self.server.announce(self)
        self.server.catalog.tasks = self
        self.server.handlers.wrap(wrapping(lambda: self.tasks, self.server, self.fallback_after), rank=3)
        if self.fallback_after is not None:
            from .fallback import add_tools

            add_tools(lambda: self.tasks, self.server)

        if self._joined is not None:
            self._joined._offer()

    def carry(self, follow: Follow) -> None:
        """Announce tasks to clients of 2026-07-28, although the tasks are those of another server.

        `follow` returns which tasks of a subscription these are, and coroutines that send their notifications.
        """
        self._follow = follow
        self._offer()

    @property
    def has_tools(self) -> bool:
        """Whether calls of a tool can become tasks now."""
        assert self.server is not None
        tools = self.server.catalog.tools
        if self._counted[0] != tools.generation:
            self._counted = tools.generation, any(TASKS in entry.extension_meta for entry in tools)
        return self._counted[1]

    # -- for the server ----------------------------------------------------------------------

    def problems(self) -> list[Problem]:
        """Return a problem if tasks cannot be kept where `task_store` says."""
        if isinstance(self.task_store, str):
            from mcpd.server.backplane.node import check_backplane

            try:
                check_backplane(self.task_store)
            except ConfigurationError as error:
                return [Problem("task_store", str(error))]
        return []

    def bind(self, server: ExtensionHost) -> None:
        """Add the extension to a server, without announcing it."""
        self.server = server

    def tool(self, name: str, options: Mapping[str, Any], meta: Meta) -> ToolAddition | None:
        """Handle `task=`, `task_after=` and `retry=`."""
        mode = options.get("task", "never")
        where = f"tool {name!r}"
        if mode not in ("never", "auto", "required"):
            raise RegistrationError(f'{where}, task: expected "auto", "required" or "never", not {mode!r}')
        if mode == "never":
            if options.get("task_after") is not None or options.get("retry"):
                raise RegistrationError(
                    f'{where}: task_after and retry belong to a tool with task="auto" or "required"'
                )
            return None

        after = options.get("task_after", 0.0 if mode == "required" else _AFTER)
        if after is not None and not (isinstance(after, (int, float)) and after >= 0):
            raise RegistrationError(f"{where}, task_after: expected a number of seconds, or None, not {after!r}")
        retry = options.get("retry")
        if retry is not None and not (isinstance(retry, int) and retry >= 0):
            raise RegistrationError(f"{where}, retry: expected True, False or how often, not {retry!r}")
        self._offer()
        return TaskTool(mode, after, None if retry is None else int(retry))

    def capabilities_for(self, exchange: Exchange, extensions: dict[str, Any]) -> dict[str, Any] | None:
        """Return the capability of 2025-11-25, or put the extension into `extensions` (TASK-001, TASK-002)."""
        extensions.pop(TASKS, None)
        if not self.has_tools and not (self._follow is not None and exchange.call.version.is_modern):
            return None
        from .methods import form_of

        return form_of(exchange.call).capability(self.tasks, exchange, extensions)

    def listen(
        self, exchange: Exchange, honoured: SubscriptionFilter, ids: list[str]
    ) -> Coroutine[Any, Any, ListenResult]:
        """Serve a subscription that names tasks."""
        from .methods import listen  # few clients do

        carried, work = ([], []) if self._follow is None else self._follow(exchange, ids)
        return listen(self.tasks, exchange, honoured, ids, carried, work)

    def handler(self, name: str, method: Method) -> Callable[[Exchange, Any], Any]:
        """Return the handler of a method, whose function also gets the tasks."""
        run: Any = method.run

        def handle(exchange: Exchange, params: Any) -> Any:
            return run(self.tasks, exchange, params)

        return handle

    def admits(self, client: ClientIdentity) -> bool:
        """Whether a client of 2026-07-28 accepts tasks."""
        return isinstance((client.capabilities.extensions or {}).get(TASKS), dict)

    def joined(self, other: Extension) -> None:
        """Keep the tasks of another server too, which is served together with this one."""
        if isinstance(other, TasksExtension):
            other._joined = self
            if other._is_offered:
                self._offer()

    def succeed(self, other: Extension) -> None:
        """Take over the tasks of a server that is replaced with this extension's server."""
        if isinstance(other, TasksExtension) and other._tasks is not None:
            assert self.server is not None
            self._tasks, self._shared = other._tasks, other._shared
            self._tasks.settings = self.limits
            self._tasks.hosts[self.server.name] = self.server

    # -- serving -----------------------------------------------------------------------------

    def share(self, backplane: Backplane) -> None:
        """Keep tasks on the backplane of the processes that serve together, unless they have a store of their own."""
        self._shared = backplane

    async def start(self) -> None:
        """Continue or end the tasks of processes that have died."""
        if self._tasks is not None:
            self._tasks.is_ending = False
        if self._is_offered and self._joined is None and (self.task_store is not None or self._shared is not None):
            await self.tasks.open()

    @property
    def work(self) -> Ending | None:
        """The running tasks."""
        return self._tasks

    @property
    def is_busy(self) -> bool:
        """Whether tasks are running."""
        return self._tasks is not None and bool(self._tasks.runs)

    async def aclose(self) -> None:
        """Close the store."""
        if self._tasks is not None:
            await self._tasks.aclose()
