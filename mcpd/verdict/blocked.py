"""Checks of what the browser refused and what went wrong in it: violations of the policy, exceptions, the console."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from mcpd.extensions.ui.csp_sources import UiCsp
from mcpd.verdict.report import Check, Finding, Severity, checked
from mcpd.verdict.scene import Scene, Violation, in_app
from mcpd.verdict.sources import Kind, address, origin_of, refusal

_KINDS: Final[dict[str, Kind]] = {
    "script-src": "script",
    "script-src-elem": "script",
    "style-src": "style",
    "style-src-elem": "style",
    "img-src": "image",
    "font-src": "font",
    "media-src": "media",
    "connect-src": "connect",
    "frame-src": "frame",
    "base-uri": "base",
    "form-action": "form",
    "object-src": "object",
    "manifest-src": "manifest",
    "worker-src": "worker",
    "default-src": "resource",
}
_FAULT: Final = re.compile(r"\b(?:Type|Reference|Range|Syntax|Eval)Error\b")
"""What a script did wrong, whatever it was given."""
_NEEDED: Final = ("script", "fetch", "xhr", "websocket")
"""Kinds of resources that an app may wait for before it begins."""
_CODE: Final = ("eval", "wasm-eval", "trusted-types-policy", "inline")


def policy_check(scenes: Iterable[Scene], granted: UiCsp | None) -> Check:
    """What the policy blocked, in any of the showings, with what would have to be declared."""
    found: dict[str, Finding] = {}
    for scene in scenes:
        for violation in scene.violations:
            finding = _of_violation(violation, granted)
            found.setdefault(finding.text, finding)
        if scene.refusal:
            found.setdefault(scene.refusal, _of_refusal(scene.refusal))
    return checked("policy", "Nothing is blocked by the policy", found.values(), "nothing", ["APP-X-04", "APP-V-05"])


def _of_violation(violation: Violation, granted: UiCsp | None) -> Finding:
    directive = str(violation.get("effective-directive") or violation.get("violated-directive") or "").split(" ")[0]
    blocked = str(violation.get("blocked-uri") or "")
    if violation.get("ofProxy"):
        text = f"it tries to leave for {blocked}" if blocked else "it tries to leave"
        advice = "no host lets an app navigate away; ask by ui/open-link for the link to be opened"
        return Finding(severity="failure", text=text, advice=advice, url=blocked)
    if blocked in _CODE:
        # Libraries try whether they may, and go on without: what really needs it throws, or shows that it was refused.
        text = f"it tries {blocked}, which strict hosts do not allow ({directive}{_place(violation)})"
        severity: Severity = "note" if blocked == "eval" else "warning"
        return Finding(severity=severity, text=text, rule="APP-V-05", cause=blocked)
    if directive == "base-uri":
        return Finding(severity="note", text=f"<base href={blocked!r}> has no effect", cause="base")
    if blocked in ("data", "blob"):
        blocked = f"{blocked}:"
    refused = refusal(_KINDS.get(directive, "resource"), blocked, granted)
    text = f"{blocked} is blocked by {directive}{_place(violation)}"
    if refused is None:
        return Finding(severity="failure", text=text, advice="the browser refused it", url=blocked)
    cause = refused.cause(blocked)
    if not refused.domain:
        return Finding(severity="failure", text=text, advice=refused.advice, url=blocked, cause=cause)
    return Finding(
        severity="failure", text=text, advice=refused.advice, url=blocked,
        domain=refused.domain, field=refused.field, cause=cause,
    )  # fmt: skip


def _of_refusal(words: str) -> Finding:
    return Finding(
        severity="failure",
        text=f"it does not do without, and shows the browser's refusal: {words}",
        advice="do it without eval and new Function: strict hosts allow neither, and nothing can be declared for them",
        rule="APP-V-05",
    )


def _place(violation: Violation) -> str:
    line = violation.get("line-number")
    return f", line {line}" if isinstance(line, int) and line > 1 else ""


def console_check(scene: Scene) -> Check:
    """Exceptions and errors of the first showing, and what the network did not give it."""
    blocked = {address(str(violation.get("blocked-uri") or "")) for violation in scene.violations}
    lost = {url: why for url, (why, _) in scene.unloaded.items() if address(url) not in blocked}
    unloaded = (_of_unloaded(url, why, scene.guest_origin) for url, why in lost.items())
    # The browser's own words on the same addresses.
    known = {text for text in scene.complaints if any(in_app(url) in text for url in scene.unloaded)}
    found = [*unloaded, *errors_of(scene, frozenset(known))]
    return checked("console", "No exception and no error", found, "none", [])


def _of_unloaded(url: str, why: str, origin: str) -> Finding:
    advice = "is the address right, reached from here, and open to other origins (CORS)? What needs it was not tried"
    cause = f"not loaded {origin_of(url)}"
    if url.startswith(f"{origin}/"):
        url = url.removeprefix(origin)
        cause = f"not loaded {address(url)}"
        advice = "an app is one document, with nothing beside it: put it in, or name it by its whole address, declared"
    return Finding(severity="warning", text=f"{url} could not be loaded: {why}", advice=advice, url=url, cause=cause)


def why_not_started(scene: Scene) -> Finding | None:
    """Return what kept a View from its handshake: a missing script, missing data, its own policy or an exception."""
    for url, (why, kind) in scene.unloaded.items():
        if kind in _NEEDED:
            return _of_unloaded(url, why, scene.guest_origin)
    for violation in scene.violations:
        finding = _of_violation(violation, scene.view.grant.csp)
        if finding.url and str(violation.get("effective-directive", "")).startswith(("script-src", "connect-src")):
            return finding
    if scene.refused and not scene.violations:  # the host's policy reports what it blocks
        advice = "take the policy out of its <meta>: the host sets one, for what _meta.ui.csp declares"
        return Finding(severity="failure", text=f"a policy of its own: {scene.refused}", advice=advice)
    return next(errors_of(scene), None)


def errors_of(scene: Scene, known: frozenset[str] = frozenset(), *, is_told_error: bool = False) -> Iterator[Finding]:
    """What went wrong in a showing, but for what is `known` from another.

    With `is_told_error` its result was an error: to write that to the console is right.
    """
    for text in dict.fromkeys(scene.errors):
        if text not in known:
            yield Finding(severity="failure", text=f"an exception: {text}", cause=text)
    for text in dict.fromkeys(scene.complaints):
        if text in known:
            continue
        if "Failed to load resource" in text or "net::ERR_" in text:
            yield Finding(severity="warning", text=f"could not be loaded: {text}", advice="is the address right?")
        else:
            severity: Severity = "failure" if _FAULT.search(text) else "note" if is_told_error else "warning"
            yield Finding(severity=severity, text=f"an error on the console: {text}", cause=text)
