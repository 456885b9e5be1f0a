"""Host context, container dimensions, display modes."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from mcpd.apps.host.view.context import (
    DISPLAY_MODES,
    ContainerDimensions,
    ContextFeed,
    DeviceCapabilities,
    HostContext,
    difference,
    merge,
    shared_modes,
)
from mcpd.errors import LocalProtocolError

contexts = st.builds(
    HostContext,
    theme=st.sampled_from(["light", "dark"]) | st.none(),
    locale=st.sampled_from(["de-DE", "en-US"]) | st.none(),
    display_mode=st.sampled_from(DISPLAY_MODES) | st.none(),
    available_display_modes=st.lists(st.sampled_from(DISPLAY_MODES), unique=True) | st.none(),
    device_capabilities=st.builds(DeviceCapabilities, touch=st.booleans() | st.none()) | st.none(),
)


@given(contexts, st.lists(contexts))
def test_a_view_that_merges_every_delta_has_the_hosts_context(start: HostContext, changes: list[HostContext]) -> None:
    """mcp-apps-life-07: "Contains partial HostContext update; UI merges with existing context"."""
    feed = ContextFeed(start)
    view = feed.snapshot(None)
    for change in changes:
        feed.change(change)
        delta = feed.due()
        if delta is not None:
            view = merge(view, delta)
        assert view == feed.context
        assert feed.due() is None


def test_a_delta_holds_what_is_different_and_nothing_else() -> None:
    before = HostContext(theme="dark", locale="de-DE")
    assert difference(before, HostContext(theme="light", locale="de-DE")) == HostContext(theme="light")
    assert difference(before, before) is None


@pytest.mark.parametrize(
    ("host", "view", "shared"),
    [
        (["inline", "fullscreen"], ["fullscreen", "inline", "pip"], ["inline", "fullscreen"]),
        (["inline"], ["fullscreen"], []),
        (["inline", "pip"], None, ["inline", "pip"]),
        (["inline", "pip"], [], []),
        (["inline", "pip"], ["pip", "cinema"], ["pip"]),
    ],
)
def test_shared_modes_are_the_intersection_in_the_hosts_order(
    host: list[str], view: list[str] | None, shared: list[str]
) -> None:
    """mcp-apps-ctx-02, APP-H-15."""
    assert shared_modes(host, view) == shared  # type: ignore[arg-type]


def test_the_view_is_offered_only_shared_modes_also_later() -> None:
    """mcp-apps-ctx-02: also when the host's own list changes."""
    feed = ContextFeed(HostContext(available_display_modes=["inline", "pip"]))
    assert feed.snapshot(["inline", "fullscreen"]).available_display_modes == ["inline"]
    feed.change(HostContext(available_display_modes=["inline", "fullscreen", "pip"]))
    assert feed.due() == HostContext(available_display_modes=["inline", "fullscreen"])


def test_the_host_cannot_switch_to_a_mode_the_view_does_not_declare() -> None:
    """APP-H-15: M never switch to a mode outside the View's declared list (if set)."""
    feed = ContextFeed(HostContext(display_mode="inline"))
    feed.change(HostContext(display_mode="fullscreen"))  # nobody has declared anything yet
    feed.change(HostContext(display_mode="inline"))
    feed.snapshot(["inline"])
    with pytest.raises(LocalProtocolError, match="fullscreen"):
        feed.change(HostContext(display_mode="fullscreen"))
    assert feed.mode == "inline"
    with pytest.raises(LocalProtocolError, match="not a display mode"):
        feed.change(HostContext(display_mode="cinema"))  # type: ignore[arg-type]
    feed.snapshot(None)
    feed.change(HostContext(display_mode="fullscreen"))
    assert feed.mode == "fullscreen"


def test_a_change_that_is_refused_leaves_nothing_behind() -> None:
    """APP-H-15: the modes that came with it were not taken either."""
    feed = ContextFeed(HostContext(available_display_modes=["inline", "pip"]))
    feed.snapshot(["inline", "pip"])
    with pytest.raises(LocalProtocolError, match="fullscreen"):
        feed.change(HostContext(available_display_modes=["inline", "fullscreen"], display_mode="fullscreen"))
    assert feed.modes == ["inline", "pip"]
    assert feed.due() is None


def test_fixed_dimensions_are_the_hosts() -> None:
    """mcp-apps-ctx-04: the View fills a fixed container; what it reports changes nothing."""
    fixed = ContainerDimensions(width=400, height=300)
    assert fixed.fit(900, 900, limit=1e4) == (None, None)


def test_flexible_dimensions_follow_the_view_up_to_the_maximum() -> None:
    """mcp-apps-ctx-05, APP-H-14."""
    flexible = ContainerDimensions(max_width=500, max_height=600)
    assert flexible.fit(450, 700, limit=1e4) == (450, 600)
    assert flexible.fit(0, None, limit=1e4) == (1, None)
    mixed = ContainerDimensions(width=400, max_height=600)
    assert mixed.fit(900, 200, limit=1e4) == (None, 200)
    assert ContainerDimensions().fit(1e9, 5, limit=16384) == (16384, 5)


@given(
    st.builds(ContainerDimensions, max_width=st.floats(1, 5000) | st.none(), max_height=st.floats(1, 5000) | st.none()),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(allow_nan=False, allow_infinity=False),
)
def test_no_report_leaves_the_container(container: ContainerDimensions, width: float, height: float) -> None:
    fitted = container.fit(width, height, limit=16384)
    for size, maximum in zip(fitted, (container.max_width, container.max_height), strict=True):
        assert size is not None
        assert 1 <= size <= (16384 if maximum is None else maximum)


@pytest.mark.parametrize(
    "dimensions", [{"width": 1, "max_width": 2}, {"height": 1, "max_height": 2}, {"width": 0}, {"max_height": -1}]
)
def test_an_axis_is_fixed_or_flexible_and_has_a_size(dimensions: dict[str, float]) -> None:
    """The text: "Specify either width or maxWidth, and either height or maxHeight"."""
    with pytest.raises(ValueError, match=r"axis|positive"):
        ContainerDimensions(**dimensions)
