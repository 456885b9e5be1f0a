"""The host context of a View: its members, changes of it, sizes, and display modes.

An absent member says nothing, which is None here. A View merges a change member by member, so a change contains whole
members. Spec: MCP Apps 2026-01-26, "Host Context in McpUiInitializeResult", "Container Dimensions", "Display Modes",
"Theming".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal, TypeAlias, get_args

from msgspec import structs

from mcpd.errors import LocalProtocolError
from mcpd.protocol.types.base import Wire
from mcpd.protocol.types.features import Tool

DisplayMode: TypeAlias = Literal["inline", "fullscreen", "pip"]

DISPLAY_MODES: Final[tuple[DisplayMode, ...]] = get_args(DisplayMode)


class ToolInfo(Wire, kw_only=True):
    """The call that opened the View: its JSON-RPC id, if it has one, and the tool as listed."""

    id: int | str | None = None
    tool: Tool


class HostCss(Wire, kw_only=True):
    """CSS that a View may add; `fonts` is a string of @font-face and @import rules."""

    fonts: str | None = None


class HostStyles(Wire, kw_only=True):
    variables: dict[str, str] | None = None
    css: HostCss | None = None


class ContainerDimensions(Wire, kw_only=True):
    """The container of a View in pixels. Each axis is fixed (`width`), flexible (`max_width`) or unbounded."""

    width: float | None = None
    max_width: float | None = None
    height: float | None = None
    max_height: float | None = None

    def __post_init__(self) -> None:
        if (self.width is not None and self.max_width is not None) or (
            self.height is not None and self.max_height is not None
        ):
            raise ValueError("an axis is either fixed (width, height) or flexible (max_width, max_height), not both")
        if any(value is not None and not 0 < value < float("inf") for value in structs.astuple(self)):
            raise ValueError("dimensions are positive numbers of pixels")

    def fit(self, width: float | None, height: float | None, *, limit: float) -> tuple[float | None, float | None]:
        # The report of a fixed axis is ignored. `limit` bounds an axis without a maximum.
        return (
            None if self.width is not None else _clamp(width, self.max_width, limit),
            None if self.height is not None else _clamp(height, self.max_height, limit),
        )


class DeviceCapabilities(Wire, kw_only=True):
    """How the user can point at things. Both may be False."""

    touch: bool | None = None
    hover: bool | None = None


class SafeAreaInsets(Wire, kw_only=True):
    """The space that a notch or a home bar takes, in pixels."""

    top: float
    right: float
    bottom: float
    left: float


class HostContext(Wire, kw_only=True):
    """The host context, or a change of it."""

    tool_info: ToolInfo | None = None
    theme: Literal["light", "dark"] | None = None
    styles: HostStyles | None = None
    display_mode: DisplayMode | None = None
    available_display_modes: list[DisplayMode] | None = None
    container_dimensions: ContainerDimensions | None = None
    locale: str | None = None
    time_zone: str | None = None
    user_agent: str | None = None
    platform: Literal["web", "desktop", "mobile"] | None = None
    device_capabilities: DeviceCapabilities | None = None
    safe_area_insets: SafeAreaInsets | None = None


def merge(context: HostContext, delta: HostContext) -> HostContext:
    """Return a context after a change, merged member by member as a View does."""
    return structs.replace(context, **_present(delta))


def difference(before: HostContext, after: HostContext) -> HostContext | None:
    """Return the change from one context to another, or None if they are equal."""
    changed = {name: value for name, value in _present(after).items() if getattr(before, name) != value}
    return HostContext(**changed) if changed else None


def shared_modes(host: Iterable[DisplayMode], view: Iterable[str] | None) -> list[DisplayMode]:
    # Spec: "Host MUST NOT switch the View to a display mode that does not appear in its
    # `appCapabilities.availableDisplayModes`, if set." A View that declares none supports all.
    if view is None:
        return list(host)
    declared = set(view)
    return [mode for mode in host if mode in declared]


class ContextFeed:
    """The host context of one View, and the part of it that the View has received."""

    def __init__(self, context: HostContext) -> None:
        self.context = context
        self._host_modes = context.available_display_modes
        self._view_modes: list[str] | None = None
        self._sent = context

    @property
    def mode(self) -> DisplayMode:
        """The display mode of the View; inline unless the host set another."""
        return self.context.display_mode or "inline"

    @property
    def modes(self) -> list[DisplayMode]:
        host = self._host_modes if self._host_modes is not None else [self.mode]
        return shared_modes(host, self._view_modes)

    def snapshot(self, view_modes: list[str] | None) -> HostContext:
        """Return the whole context for the answer to `ui/initialize` of a View that declares these modes."""
        self._view_modes = view_modes
        self._share_modes()
        self._sent = self.context
        return self.context

    def change(self, delta: HostContext) -> None:
        """Change the context. Raises LocalProtocolError for a mode that the View does not support."""
        mode = delta.display_mode
        if mode is not None and mode not in DISPLAY_MODES:
            raise LocalProtocolError(f"{mode!r} is not a display mode; there are {', '.join(DISPLAY_MODES)}")
        if mode is not None and mode != self.mode and self._view_modes is not None and mode not in self._view_modes:
            raise LocalProtocolError(f"the view does not know display mode {mode}; it declares {self._view_modes}")
        if delta.available_display_modes is not None:
            self._host_modes = delta.available_display_modes
        self.context = merge(self.context, delta)
        self._share_modes()

    def due(self) -> HostContext | None:
        """Return the change that the View has not received, or None. The View is assumed to receive it now."""
        delta = difference(self._sent, self.context)
        self._sent = self.context
        return delta

    def _share_modes(self) -> None:
        if self._host_modes is not None:
            self.context = structs.replace(self.context, available_display_modes=self.modes)


def _present(context: HostContext) -> dict[str, Any]:
    return {name: value for name, value in structs.asdict(context).items() if value is not None}


def _clamp(size: float | None, maximum: float | None, limit: float) -> float | None:
    # Bound a size by one pixel and the maximum. A View without a height would be hidden for good and report no more
    # sizes.
    return None if size is None else max(1.0, min(size, limit if maximum is None else maximum))
