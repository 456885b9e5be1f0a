"""The host context of a View: its members, changes of it, sizes, display modes, and the default style variables.

An absent member says nothing, which is None here. A View merges a change member by member, so a change contains whole
members. Spec: MCP Apps 2026-01-26, "Host Context in McpUiInitializeResult", "Container Dimensions", "Display Modes",
"Theming".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
    """Values of style variables (`STYLE_VARIABLES` has the names) and CSS."""

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
        """Return the new size of the frame for the size that a View reports, per axis; None if it does not change.

        The report of a fixed axis is ignored. `limit` bounds an axis without a maximum.
        """
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
    """Return the modes that both sides support, in the order of the host. A View that declares none supports all.

    Spec: "Host MUST NOT switch the View to a display mode that does not appear in its
    `appCapabilities.availableDisplayModes`, if set."
    """
    if view is None:
        return list(host)
    declared = set(view)
    return [mode for mode in host if mode in declared]


class ContextFeed:
    """The host context of one View, and the part of it that the View has received."""

    __slots__ = ("_host_modes", "_sent", "_view_modes", "context")

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
        """The modes in which the View may be shown."""
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
    """Bound a size by one pixel and the maximum. A View without a height would be hidden for good and report no more
    sizes.
    """
    return None if size is None else max(1.0, min(size, limit if maximum is None else maximum))


def _palette(role: str, **pairs: tuple[str, str]) -> dict[str, str]:
    return {f"--color-{role}-{name}": f"light-dark({light}, {dark})" for name, (light, dark) in pairs.items()}


DEFAULT_VARIABLES: Final[dict[str, str]] = {
    **_palette(
        "background",
        primary=("#ffffff", "#1b1c1e"),
        secondary=("#f5f5f4", "#252629"),
        tertiary=("#e9e9e7", "#303236"),
        inverse=("#1b1c1e", "#f5f5f4"),
        ghost=("transparent", "transparent"),
        info=("#e6f0fb", "#16304d"),
        danger=("#fcebea", "#4c1d1b"),
        success=("#e8f5ec", "#163a24"),
        warning=("#fdf3dc", "#46340c"),
        disabled=("#f0f0ee", "#2a2b2e"),
    ),
    **_palette(
        "text",
        primary=("#1b1c1e", "#f2f2f0"),
        secondary=("#55575c", "#b8babf"),
        tertiary=("#6f7177", "#94979d"),
        inverse=("#ffffff", "#1b1c1e"),
        info=("#12569e", "#8ec1f7"),
        danger=("#a3201b", "#f6a5a1"),
        success=("#17663a", "#86d6a4"),
        warning=("#7a5200", "#ecc569"),
        disabled=("#a0a2a7", "#6a6c72"),
        ghost=("#6f7177", "#94979d"),
    ),
    **_palette(
        "border",
        primary=("#d6d6d3", "#43454a"),
        secondary=("#e4e4e1", "#37393d"),
        tertiary=("#efefec", "#2d2f32"),
        inverse=("#43454a", "#d6d6d3"),
        ghost=("transparent", "transparent"),
        info=("#9cc4ee", "#2f5f92"),
        danger=("#eda9a5", "#8c3a36"),
        success=("#a3d6b5", "#2f7047"),
        warning=("#e8ca86", "#85661f"),
        disabled=("#e4e4e1", "#37393d"),
    ),
    **_palette(
        "ring",
        primary=("#1f6fc4", "#6fb0f2"),
        secondary=("#a0a2a7", "#6a6c72"),
        inverse=("#ffffff", "#1b1c1e"),
        info=("#1f6fc4", "#6fb0f2"),
        danger=("#c9302a", "#ee7d78"),
        success=("#22874d", "#5cbd81"),
        warning=("#a87300", "#d9a63a"),
    ),
    "--font-sans": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif",
    "--font-mono": "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace",
    "--font-weight-normal": "400",
    "--font-weight-medium": "500",
    "--font-weight-semibold": "600",
    "--font-weight-bold": "700",
    "--font-text-xs-size": "0.75rem",
    "--font-text-sm-size": "0.875rem",
    "--font-text-md-size": "1rem",
    "--font-text-lg-size": "1.125rem",
    "--font-heading-xs-size": "0.875rem",
    "--font-heading-sm-size": "1rem",
    "--font-heading-md-size": "1.25rem",
    "--font-heading-lg-size": "1.5rem",
    "--font-heading-xl-size": "1.875rem",
    "--font-heading-2xl-size": "2.25rem",
    "--font-heading-3xl-size": "3rem",
    "--font-text-xs-line-height": "1.33",
    "--font-text-sm-line-height": "1.43",
    "--font-text-md-line-height": "1.5",
    "--font-text-lg-line-height": "1.56",
    "--font-heading-xs-line-height": "1.43",
    "--font-heading-sm-line-height": "1.5",
    "--font-heading-md-line-height": "1.4",
    "--font-heading-lg-line-height": "1.33",
    "--font-heading-xl-line-height": "1.27",
    "--font-heading-2xl-line-height": "1.22",
    "--font-heading-3xl-line-height": "1.17",
    "--border-radius-xs": "2px",
    "--border-radius-sm": "4px",
    "--border-radius-md": "6px",
    "--border-radius-lg": "8px",
    "--border-radius-xl": "12px",
    "--border-radius-full": "9999px",
    "--border-width-regular": "1px",
    "--shadow-hairline": "0 0 0 1px light-dark(rgb(0 0 0 / 6%), rgb(255 255 255 / 8%))",
    "--shadow-sm": "0 1px 2px light-dark(rgb(0 0 0 / 8%), rgb(0 0 0 / 40%))",
    "--shadow-md": "0 2px 8px light-dark(rgb(0 0 0 / 10%), rgb(0 0 0 / 50%))",
    "--shadow-lg": "0 8px 24px light-dark(rgb(0 0 0 / 14%), rgb(0 0 0 / 60%))",
}
"""A value for every variable. Text colours have a contrast of at least 4.5:1 on the primary background.

The values use `light-dark()`, so that a change of the theme needs no new variables. Set all variables or none: for a
missing one a View uses a value of its own, and the mixture may be unreadable.
"""

STYLE_VARIABLES: Final = frozenset(DEFAULT_VARIABLES)
"""The 76 names in the specification."""


def styles(variables: Mapping[str, str] = DEFAULT_VARIABLES, *, fonts: str | None = None) -> HostStyles:
    """Return the `styles` member of a host context. Raises ValueError for a variable that the specification does not
    have.
    """
    unknown = sorted(set(variables) - STYLE_VARIABLES)
    if unknown:
        raise ValueError(f"not a style variable of MCP Apps: {', '.join(unknown)}")
    return HostStyles(variables=dict(variables), css=HostCss(fonts=fonts) if fonts is not None else None)
