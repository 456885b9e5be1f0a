"""The options of the built-in extensions for servers, tools and Views, for type checkers and error messages.

At run time the constructors and `tool_options` of the extensions define the options.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypedDict, get_args

from mcpd.server.extensions.files.settings import FileSettings
from mcpd.server.extensions.tasks.settings import TaskMode, TaskSettings
from mcpd.server.extensions.ui.constants import AppsMode
from mcpd.server.extensions.ui.meta import Csp, Permissions, Visibility
from mcpd.server.extensions.ui.view import View, ViewKind
from mcpd.server.registry.options import Described
from mcpd.server.settings import Option


class AppsServerOptions(TypedDict, total=False):
    """The keyword arguments of `AppsExtension`, which has the defaults."""

    apps: Annotated[
        AppsMode,
        Option(
            "--apps",
            "MCP Apps",
            "Enable MCP Apps: auto (for clients that offer them), always or never.",
            "WHO",
            get_args(AppsMode),
        ),
    ]
    """Which clients get MCP Apps."""
    strict_model_list: Annotated[
        bool,
        Option(
            "--strict-model-list",
            "MCP Apps",
            "Leave tools that only apps may call out of tools/list. Some hosts then cannot call them.",
        ),
    ]
    """Whether `tools/list` leaves out tools that only Views may call."""


class AppToolOptions(TypedDict, total=False):
    """The options of a tool for MCP Apps."""

    ui: str | None
    """The View that shows the result: its `ui://` URI, or its name in `Server.app`."""
    view: ViewKind | View | None
    """The bundled page that shows the result, instead of `ui`."""
    ui_when: Callable[..., Any] | None
    """A function, with or without a Context, that returns whether the tool has its View for a request."""
    visibility: Visibility | None
    """["app"] keeps the tool from the model."""


class AppOptions(Described, total=False):
    """The options of a View besides its HTML."""

    csp: Csp | None
    permissions: Permissions | None
    domain: str | None
    prefers_border: bool | None
    replace: bool


class TasksServeOptions(TypedDict, total=False):
    """The options of `TasksExtension` that operators choose."""

    task_store: Annotated[
        str | None,
        Option(
            "--task-store",
            "Tasks",
            "Keep tasks there: sqlite:///path/to/file survives a restart, redis://HOST:PORT/0 is shared by several "
            "processes. Default: the backplane of --backplane, or memory.",
            "URL",
        ),
    ]
    """Where tasks are kept."""


class TasksServerOptions(TasksServeOptions, total=False):
    """The keyword arguments of `TasksExtension`, which has the defaults."""

    tasks: TaskSettings | None
    """The limits of tasks."""
    task_fallback: Literal["poll"] | None
    """With "poll", clients without tasks get tools to ask for the result of long calls."""


class TaskToolOptions(TypedDict, total=False):
    """The options of a tool that can be a task."""

    task: TaskMode
    """Whether a call becomes a task: "never", "auto" if it takes long, or "required"."""
    task_after: float | None
    """The seconds that a call may take without becoming a task: 1 for auto, 0 for required. None means that only
    `ctx.become_task` makes it one.
    """
    retry: bool | int
    """How often a task may begin again after a crash, from the top. Tools that are only read or can be repeated,
    according to their annotations, may once.
    """


class FilesServeOptions(TypedDict, total=False):
    """The options of `FilesExtension` that operators choose."""

    files: Annotated[
        str | None,
        Option(
            "--files",
            "Files",
            "Keep the files of calls in this folder, which several processes may share. Default: a temporary folder.",
            "DIR",
        ),
    ]
    """The folder of files."""
    allow_path: Annotated[
        tuple[str, ...],
        Option(
            "--allow-path",
            "Files",
            "Let clients on stdio name files below this folder by their paths. Can be repeated.",
            "DIR",
        ),
    ]
    """The folders whose files clients on stdio may name."""


class FilesServerOptions(FilesServeOptions, total=False):
    """The keyword arguments of `FilesExtension`, which has the defaults."""

    file_limits: FileSettings | None
    """The limits of files."""


class BuiltInServeOptions(AppsServerOptions, TasksServeOptions, FilesServeOptions, total=False):
    """Options of `Server.run(…)`."""


class BuiltInOptions(AppsServerOptions, TasksServerOptions, FilesServerOptions, total=False):
    """Options of `Server(…)`."""


class BuiltInToolOptions(AppToolOptions, TaskToolOptions, total=False):
    """Options of `@server.tool(…)`."""
