"""The 76 style variables a host may set, and a complete set of values for both colour schemes.

Values use `light-dark()`, so that a change of theme needs no new variables. All or none should be set:
a View falls back to its own value for each that is missing, and the mixture may be unreadable.

Spec: MCP Apps 2026-01-26, "Theming".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mcpd.host.view.context import HostCss, HostStyles


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
