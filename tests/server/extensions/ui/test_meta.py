"""`_meta.ui`: refused in Python with a reason, read from data without ever failing (APP-S-12, APP-S-13, APP-S-18)."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mcpd.errors import RegistrationError
from mcpd.server.extensions.ui.csp_sources import UiCsp, UiPermissions
from mcpd.server.extensions.ui.meta import ViewMeta, read_view_meta, read_visibility, view_meta, visibility_of

# ------------------------------------------------------------------------------------ in Python


def test_nothing_said_is_nothing_sent() -> None:
    assert view_meta("app x").meta() is None
    assert ViewMeta().meta() is None


def test_what_is_good_is_sent_as_it_is() -> None:
    meta = view_meta(
        "app x",
        csp={"connectDomains": ("https://a.example", "wss://b.example:*"), "frameDomains": []},
        permissions={"geolocation": {}, "microphone": {"why": "dictation"}},
        domain="x.example",
        prefers_border=True,
    )
    assert meta.problems == ()
    assert meta.meta() == {
        "ui": {
            "csp": {"connectDomains": ["https://a.example", "wss://b.example:*"]},
            "permissions": {"geolocation": {}, "microphone": {"why": "dictation"}},
            "domain": "x.example",
            "prefersBorder": True,
        }
    }


def test_a_source_that_can_be_mended_is_with_a_word() -> None:
    meta = view_meta("app x", csp={"resourceDomains": ["https://A.example/lib?x"]})
    assert meta.csp == UiCsp(resource_domains=["https://a.example"])
    (problem,) = meta.problems
    assert not problem.is_error
    assert "path and query are cut off" in str(problem)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"csp": ["https://a.example"]}, "must be an object with lists of origins under connectDomains"),
        ({"csp": {"connect_domains": []}}, "csp has no 'connect_domains', only connectDomains"),
        ({"csp": {"connectDomains": "https://a.example"}}, "connectDomains: .*must be an array of strings"),
        ({"csp": {"connectDomains": [1]}}, "an entry must be a string"),
        ({"csp": {"connectDomains": ["*"]}}, r"'\*' dropped: matches every host"),
        ({"csp": {"connectDomains": ["https://a.example; script-src *"]}}, "white space"),
        ({"csp": {"resourceDomains": ["'unsafe-eval'"]}}, "quotes mark keywords"),
        ({"csp": {"frameDomains": ["data:"]}}, "only be declared in connectDomains"),
        ({"csp": {"connectDomains": ["https://[::1]:80"]}}, "IPv6"),
        ({"csp": UiCsp(connect_domains=["ftp://a.example"])}, "the scheme must be one of"),
        ({"csp": {"connectDomains": [f"https://h{n}.example" for n in range(65)]}}, "64 entries"),
        ({"permissions": "camera"}, "permissions: expected an object"),
        ({"permissions": ["clipboard-write"]}, "expected any of camera, .*, not 'clipboard-write'"),
        ({"permissions": {"camera": True}}, "permissions, camera: expected an object"),
        ({"permissions": 3}, "permissions: expected an object"),
        ({"domain": ""}, "as the host documents it"),
        ({"domain": 5}, "as the host documents it"),
        ({"prefers_border": "yes"}, "expected true or false"),
    ],
    ids=str,
)
def test_what_no_host_could_use_is_refused_with_a_reason(options: Any, reason: str) -> None:
    """apps.md 3.2: servers refuse at registration the sources that hosts drop; the message says where."""
    with pytest.raises(RegistrationError, match=f"app x: .*{reason}"):
        view_meta("app x", **options)


# ------------------------------------------------------------------------------------- from data


@pytest.mark.parametrize(
    ("ui", "left", "said"),
    [
        (None, None, []),
        ({}, None, []),
        ({"csp": {}}, {"csp": {}}, []),
        ([], None, ["must be an object"]),
        ("x", None, ["must be an object"]),
        ({"csp": []}, None, ["csp: '[]' dropped: must be an object"]),
        ({"csp": {"connectDomains": "x"}}, {"csp": {}}, ["must be an array"]),
        ({"csp": {"conectDomains": ["https://a.example"]}}, {"csp": {}}, ["csp has no 'conectDomains'"]),
        (
            {"csp": {"connectDomains": ["https://a.example", "*", 7]}},
            {"csp": {"connectDomains": ["https://a.example"]}},
            ["'7' dropped", "'*' dropped"],
        ),
        ({"permissions": ["camera"]}, None, ["expected an object"]),
        ({"permissions": {"camera": {}, "usb": {}}}, {"permissions": {"camera": {}}}, ["not 'usb'"]),
        ({"permissions": {"camera": True}}, {"permissions": {}}, ["permissions, camera"]),
        ({"domain": 1, "prefersBorder": "yes"}, None, ["domain: expected a string", "prefersBorder: expected"]),
        ({"prefersBorder": False}, {"prefersBorder": False}, []),
        ({"preferredSize": [1, 2]}, {"preferredSize": [1, 2]}, ["no member 'preferredSize'; it is passed on"]),
    ],
    ids=str,
)
def test_data_loses_what_cannot_stand_and_keeps_the_rest(ui: Any, left: Any, said: list[str]) -> None:
    """APP-S-13, APP-S-18: a problem for each loss, and no exception."""
    meta = read_view_meta("app x", ui)
    assert meta.meta() == (None if left is None else {"ui": left})
    assert len(meta.problems) == len(said)
    for problem, text in zip(meta.problems, said, strict=True):
        assert text in str(problem)
        assert str(problem).startswith("app x: ")
        # What hosts would do as well is an error of the author; what only may mean nothing is not.
        assert problem.is_error is ("passed on" not in text)


leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
names = st.sampled_from(
    ["csp", "permissions", "domain", "prefersBorder", "camera", "connectDomains", "resourceDomains", "visibility", "x"]
)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4), max_leaves=12
)


@given(values)
def test_no_data_is_too_strange(ui: Any) -> None:
    """APP-S-18: whatever a file holds, what comes out has the types of the specification."""
    whole = (read_view_meta("app x", ui).meta() or {}).get("ui", {})
    csp, permissions = whole.get("csp", {}), whole.get("permissions", {})
    assert all(isinstance(source, str) for sources in csp.values() for source in sources)
    assert all(isinstance(asked, dict) for asked in permissions.values())
    assert isinstance(whole.get("domain", ""), str)
    assert isinstance(whole.get("prefersBorder", True), bool)


@given(values)
def test_no_visibility_is_too_strange(value: Any) -> None:
    """mcp-apps-tool-07: "Server filters out invalid values, or defaults to safe visibility"."""
    seen, problems = read_visibility("tool x", value)
    assert seen is None or (seen and set(seen) <= {"model", "app"})
    if value is not None and seen != value:
        assert problems


# ----------------------------------------------------------------------------------- visibility


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, None),
        (["model"], ["model"]),
        (("app",), ["app"]),
        (["app", "model"], ["model", "app"]),
        ({"app"}, ["app"]),
        (["model", "model"], ["model"]),
    ],
)
def test_visibility_in_python(given: Any, expected: Any) -> None:
    assert visibility_of("tool x", given) == expected


@pytest.mark.parametrize("given", [[], "app", ["user"], ["model", "host"], [1], 1, {"app": True}, ["App"], [["app"]]])
def test_visibility_that_means_nothing_is_refused_in_python(given: Any) -> None:
    """APP-S-13."""
    with pytest.raises(RegistrationError, match=r'tool x: visibility .*: use a list of "model" and "app"'):
        visibility_of("tool x", given)


@pytest.mark.parametrize(
    ("given", "expected", "is_good"),
    [
        (["model", "app"], ["model", "app"], True),
        (["app"], ["app"], True),
        (["app", "host"], ["app"], False),
        (["host"], None, False),
        ([], None, False),
        ("app", ["app"], False),
        ("nobody", None, False),
        ({"model": True}, None, False),
        (math.inf, None, False),
    ],
)
def test_visibility_from_data(given: Any, expected: Any, is_good: bool) -> None:
    """APP-S-13, mcp-apps-tool-07: what is unknown is dropped, nothing left is the default, both."""
    seen, problems = read_visibility("tool x", given)
    assert seen == expected
    assert (problems == ()) is is_good


def test_permissions_as_a_struct() -> None:
    asked = UiPermissions(camera={})
    assert view_meta("app x", permissions=asked).permissions == asked
