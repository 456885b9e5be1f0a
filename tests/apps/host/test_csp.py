"""Policies, sandbox tokens and the `allow` attribute of a View (apps.md 3.1, 3.3, 3.4)."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from mcpd.apps.host.document import OUTER_TOKENS, Grant, Profile, grant
from mcpd.errors import ConfigurationError
from mcpd.server.extensions.ui.csp_sources import UiCsp, UiPermissions

EVERYTHING = UiPermissions(camera={}, microphone={}, geolocation={}, clipboard_write={})
FULL = UiCsp(
    connect_domains=["https://api.example.com", "wss://live.example.com"],
    resource_domains=["https://cdn.example.com"],
    frame_domains=["https://player.example.com"],
    base_uri_domains=["https://base.example.com"],
)


def build_policy(granted: UiCsp | None, profile: Profile = "strict", frame_ancestors: list[str] | None = None) -> str:
    return Grant(csp=granted, profile=profile).policy(frame_ancestors)


def directives(policy: str) -> dict[str, str]:
    return dict(part.split(" ", 1) for part in policy.split("; "))


def test_without_csp_the_restrictive_default() -> None:
    """mcp-apps-sbox-02, APP-H-05, APP-X-04: the six directives of the text, then what closes the gaps it leaves."""
    assert build_policy(None) == (
        "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; media-src 'self' data:; connect-src 'none'; "
        "frame-src 'none'; object-src 'none'; base-uri 'self'; form-action 'none'"
    )


def test_with_csp_only_declared_domains() -> None:
    """mcp-apps-sbox-02, APP-H-05, APP-X-04: "CSP Construction from Metadata", directive for directive."""
    assert build_policy(FULL) == (
        "default-src 'none'; script-src 'self' 'unsafe-inline' https://cdn.example.com; "
        "style-src 'self' 'unsafe-inline' https://cdn.example.com; "
        "connect-src 'self' https://api.example.com wss://live.example.com; "
        "img-src 'self' data: https://cdn.example.com; font-src 'self' https://cdn.example.com; "
        "media-src 'self' data: https://cdn.example.com; frame-src https://player.example.com; "
        "object-src 'none'; base-uri https://base.example.com; form-action 'none'"
    )


def test_an_empty_csp_is_not_an_absent_one() -> None:
    """Present but empty, the text allows the View's own origin to be connected to and its own fonts."""
    policy = directives(build_policy(UiCsp()))
    assert policy["connect-src"] == "'self'"
    assert policy["font-src"] == "'self'"
    assert policy["frame-src"] == "'none'"
    assert policy["base-uri"] == "'self'"


@pytest.mark.parametrize("profile", ["strict", "opaque"])
def test_nothing_grants_eval_workers_or_blob(profile: Profile) -> None:
    for policy in (build_policy(None, profile), build_policy(FULL, profile)):
        assert not any(word in policy for word in ("eval", "blob:", "worker-src", "*"))


def test_compat_is_the_example_hosts_policy_with_forms_closed() -> None:
    policy = directives(build_policy(None, "compat"))
    assert policy["script-src"] == "'self' 'unsafe-inline' 'unsafe-eval' blob: data:"
    assert policy["worker-src"] == "'self' blob:"
    assert policy["base-uri"] == "'none'"
    assert policy["form-action"] == "'none'"
    assert directives(build_policy(FULL, "compat"))["connect-src"].startswith("'self' https://api.example.com")


def test_frame_ancestors_are_for_responses() -> None:
    assert "frame-ancestors" not in build_policy(None)
    assert build_policy(None, frame_ancestors=[]).endswith("; frame-ancestors 'none'")
    page = "http://mcpd.localhost:8000"
    assert build_policy(None, frame_ancestors=[page]).endswith(f"; frame-ancestors {page}")


@pytest.mark.parametrize("origin", ["https://a.example; script-src *", "*", "https://a.example/path", "null"])
def test_frame_ancestors_are_plain_origins(origin: str) -> None:
    with pytest.raises(ConfigurationError, match="plain origins"):
        build_policy(None, frame_ancestors=[origin])


sources = st.lists(st.text(st.characters(codec="ascii"), max_size=40) | st.sampled_from(["https://a.example", "data:"]))


@given(sources, sources, sources, sources)
def test_no_declaration_changes_the_shape_of_a_policy(a: list[str], b: list[str], c: list[str], d: list[str]) -> None:
    """APP-H-05: whatever a server declares, the directives and what they hold on their own stay as they are."""
    declared = UiCsp(connect_domains=a, resource_domains=b, frame_domains=c, base_uri_domains=d)
    policy, plain = directives(grant(declared).policy()), directives(build_policy(UiCsp()))
    assert list(policy) == list(plain)
    assert policy["default-src"] == policy["object-src"] == policy["form-action"] == "'none'"
    for name in ("script-src", "style-src", "connect-src", "img-src"):
        assert policy[name].startswith(plain[name])
        assert "'" not in policy[name][len(plain[name]) :]


def test_granted_sources_can_be_reported() -> None:
    """mcp-apps-sbox-02: what was dropped is neither in the policy nor in hostCapabilities.sandbox."""
    decision = grant(UiCsp(connect_domains=["https://a.example", "*", "https://b.example/x"]))
    assert decision.csp == UiCsp(connect_domains=["https://a.example", "https://b.example"])
    assert "connect-src 'self' https://a.example https://b.example;" in decision.policy()
    assert len(decision.problems) == 2
    assert grant(UiCsp(connect_domains=["*"]), profile="compat").csp == UiCsp(connect_domains=["*"])


def test_a_user_can_be_warned_of_everything_external() -> None:
    """APP-H-06: S warn on external domains."""
    assert Grant(csp=FULL).external_sources == [
        "https://api.example.com",
        "https://base.example.com",
        "https://cdn.example.com",
        "https://player.example.com",
        "wss://live.example.com",
    ]
    assert Grant(csp=UiCsp(connect_domains=["data:"])).external_sources == Grant().external_sources == []


def test_permissions_are_denied_unless_allowed() -> None:
    """mcp-apps-sbox-03: "Host may deny permissions not granted"."""
    assert grant(None, EVERYTHING).permissions is None
    assert grant(None, None, allowed=["camera"]).permissions is None
    granted = grant(None, UiPermissions(camera={}, geolocation={}), allowed=["camera", "microphone"])
    assert granted.permissions == UiPermissions(camera={})


def test_the_allow_attribute_is_joined_with_semicolons() -> None:
    """mcp-apps-sbox-03: with the spaces of the text's sample a browser grants nothing (measured)."""
    granted = grant(None, EVERYTHING, allowed=["camera", "microphone", "geolocation", "clipboardWrite"])
    assert granted.allow == "camera; microphone; geolocation; clipboard-write"
    assert Grant().allow == ""
    assert grant(None, EVERYTHING, allowed=["clipboardWrite"]).allow == "clipboard-write"


def test_sandbox_tokens() -> None:
    """APP-X-02, APP-H-20: the outer frame has what the text asks for, the View's never more than that."""
    assert {"allow-scripts", "allow-same-origin"} <= set(OUTER_TOKENS)
    assert Grant().sandbox == Grant(profile="compat").sandbox == "allow-scripts allow-same-origin allow-forms"
    assert Grant(profile="opaque").sandbox == "allow-scripts allow-forms"
