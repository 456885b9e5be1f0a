"""What a View is told about its surroundings: HostContext, how it is merged, and sizes.

An absent member says nothing and None stands for it; a View merges what it gets member by member, so a
delta holds whole members. Spec: MCP Apps 2026-01-26, "Host Context in McpUiInitializeResult",
"Container Dimensions", "Display Modes", "Theming".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

from msgspec import structs

from mcpd.errors import LocalProtocolError
from mcpd.protocol.types.base import Wire
from mcpd.protocol.types.tools import Tool

DisplayMode: TypeAlias = Literal["inline", "fullscreen", "pip"]

DISPLAY_MODES: Final[tuple[DisplayMode, ...]] = get_args(DisplayMode)


class ToolInfo(Wire, kw_only=True):
    """The call that opened the View: its JSON-RPC id, if it has one yet, and the tool as listed."""

    id: int | str | None = None
    tool: Tool


class HostCss(Wire, kw_only=True):
    """CSS blocks a View may inject; `fonts` is one string of @font-face and @import rules."""

    fonts: str | None = None


class HostStyles(Wire, kw_only=True):
    """Style variables (see `theme.STYLE_VARIABLES` for the names there are) and CSS blocks."""

    variables: dict[str, str] | None = None
    css: HostCss | None = None


class ContainerDimensions(Wire, kw_only=True):
    """The View's container in pixels: each axis fixed (`width`), flexible (`max_width`) or, with neither, unbounded."""

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
        """What a View's reported size means for its frame, per axis; None where the size does not change.

        A fixed axis is the host's: the report is ignored. `limit` bounds an axis without a maximum.
        """
        return (
            None if self.width is not None else _clamp(width, self.max_width, limit),
            None if self.height is not None else _clamp(height, self.max_height, limit),
        )


class DeviceCapabilities(Wire, kw_only=True):
    """How the user can point at things. Both may be False and say so."""

    touch: bool | None = None
    hover: bool | None = None


class SafeAreaInsets(Wire, kw_only=True):
    """What a notch or a home bar takes, in pixels."""

    top: float
    right: float
    bottom: float
    left: float


class HostContext(Wire, kw_only=True):
    """All of it, or a delta of it."""

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
    """The context after `delta`, the way a View merges it: member by member."""
    return structs.replace(context, **_present(delta))


def difference(before: HostContext, after: HostContext) -> HostContext | None:
    """The delta that makes `before` into `after`; None if there is nothing to tell."""
    changed = {name: value for name, value in _present(after).items() if getattr(before, name) != value}
    return HostContext(**changed) if changed else None


def shared_modes(host: Iterable[DisplayMode], view: Iterable[str] | None) -> list[DisplayMode]:
    """The modes both know, in the host's order; a View that declares none accepts the host's.

    Spec: "Host MUST NOT switch the View to a display mode that does not appear in its
    `appCapabilities.availableDisplayModes`, if set."
    """
    if view is None:
        return list(host)
    declared = set(view)
    return [mode for mode in host if mode in declared]


class ContextFeed:
    """What is true of the surroundings, and how much of it the View knows."""

    __slots__ = ("_host_modes", "_told", "_view_modes", "context")

    def __init__(self, context: HostContext) -> None:
        self.context = context
        self._host_modes = context.available_display_modes
        self._view_modes: list[str] | None = None
        self._told = context

    @property
    def mode(self) -> DisplayMode:
        """How the View is shown; inline unless the host said otherwise."""
        return self.context.display_mode or "inline"

    @property
    def modes(self) -> list[DisplayMode]:
        """The modes the View may be shown in: those both sides know."""
        host = self._host_modes if self._host_modes is not None else [self.mode]
        return shared_modes(host, self._view_modes)

    def snapshot(self, view_modes: list[str] | None) -> HostContext:
        """The whole context, for the answer to `ui/initialize` of a View that declares these modes."""
        self._view_modes = view_modes
        self._share_modes()
        self._told = self.context
        return self.context

    def change(self, delta: HostContext) -> None:
        """Something is different now. Raises LocalProtocolError for a mode that is not open to this View."""
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
        """What the View does not know yet; it is taken to know it from now on."""
        delta = difference(self._told, self.context)
        self._told = self.context
        return delta

    def _share_modes(self) -> None:
        if self._host_modes is not None:
            self.context = structs.replace(self.context, available_display_modes=self.modes)


def _present(context: HostContext) -> dict[str, Any]:
    return {name: value for name, value in structs.asdict(context).items() if value is not None}


def _clamp(size: float | None, maximum: float | None, limit: float) -> float | None:
    """Between one pixel and the maximum: zero would hide the View for good, since it reports no more."""
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
"""A value for every variable there is; the colours of text reach 4.5:1 on the primary background."""

STYLE_VARIABLES: Final = frozenset(DEFAULT_VARIABLES)
"""Every name the specification knows."""


def styles(variables: Mapping[str, str] = DEFAULT_VARIABLES, *, fonts: str | None = None) -> HostStyles:
    """The `styles` member of a host context. Raises ValueError for a variable no View would know."""
    unknown = sorted(set(variables) - STYLE_VARIABLES)
    if unknown:
        raise ValueError(f"not a style variable of MCP Apps: {', '.join(unknown)}")
    return HostStyles(variables=dict(variables), css=HostCss(fonts=fonts) if fonts is not None else None)
