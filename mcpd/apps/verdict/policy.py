"""Checks of what the browser blocked and of what failed in it.

The browser reports each violation of the policy of a View, whatever caused it: an element, a style sheet or a script.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from mcpd.apps.preview.violations import CODE_ADVICE, Refusal, Violation, origin_of, refusal_of, split_url
from mcpd.server.extensions.ui.csp_sources import UiCsp
from .report import Check, Finding, Severity, checked, failure, note, reported_url, warning
from .trial import Trial, without_address

_SCRIPT_ERROR: Final = re.compile(r"\b(?:Type|Reference|Range|Syntax|Eval)Error\b")
# Types of resources that an app may wait for before its handshake.
_AWAITED_TYPES: Final = ("script", "fetch", "xhr", "websocket")


def details_of(refused: Refusal, url: str) -> dict[str, Any]:
    """Return members of a finding. Addresses that one declaration would allow, or one host serves, have one cause."""
    if refused.domain:
        cause = f"{refused.field} {refused.domain}"
        return {"url": url, "domain": refused.domain, "field": refused.field, "cause": cause}
    parts = split_url(url)
    return {"url": url, "cause": f"not loaded {(parts and parts.hostname) or reported_url(url)}"}


def policy_check(trials: Iterable[Trial], granted: UiCsp | None) -> Check:
    """Check that the policy blocked nothing in any trial; each finding names the source to declare."""
    found: dict[str, Finding] = {}
    for trial in trials:
        for violation in trial.violations:
            finding = _violation_finding(violation, granted)
            found.setdefault(finding.text, finding)
        if trial.shown_refusal:
            advice = "do without eval and new Function: strict hosts allow neither, and no declaration helps"
            text = f"the app shows the browser's refusal: {trial.shown_refusal}"
            finding = failure(text, advice, "APP-V-05")
            found.setdefault(trial.shown_refusal, finding)

    return checked("policy", "Nothing is blocked by the policy", found.values(), "nothing", ["APP-X-04", "APP-V-05"])


def _violation_finding(violation: Violation, granted: UiCsp | None) -> Finding:
    directive, blocked = violation.directive, violation.blocked
    place = f", line {violation.line}" if violation.line is not None and violation.line > 1 else ""
    refused = refusal_of(violation, granted)
    if violation.is_navigation:
        text = f"the app tries to navigate to {blocked}" if blocked else "the app tries to navigate away"
        return failure(text, refused.advice if refused else "", url=blocked)

    if blocked in CODE_ADVICE:
        # Libraries try eval and work without it. One that needs it throws, or shows the refusal.
        text = f"the app tries {blocked}, which strict hosts do not allow ({directive}{place})"
        severity: Severity = "note" if blocked == "eval" else "warning"
        return Finding(severity=severity, text=text, rule="APP-V-05", cause=blocked)
    if directive == "base-uri":
        return note(f"<base href={blocked!r}> has no effect", cause="base")

    blocked = f"{blocked}:" if blocked in ("data", "blob") else blocked
    text = f"{blocked} is blocked by {directive}{place}"
    if refused is None:
        return failure(text, "the browser refused it", url=blocked)
    return failure(text, refused.advice, **details_of(refused, blocked))


def needs_check(trial: Trial) -> Check:
    """Check that the app does nothing that a sandbox stops without an error: windows, dialogs, saved files."""
    found: dict[str, Finding] = {}
    for stopped in trial.stopped:
        # `console_check` has what could not be loaded.
        if stopped["what"] != "unreachable":
            severity: Severity = "note" if stopped["what"] == "denied" else "warning"
            text = f"{stopped['title'].lower()}: {stopped['about']}"
            found[text] = Finding(severity=severity, text=text, advice=stopped["advice"], rule="APP-V-05")
    return checked("needs", "The app needs only what strict hosts give", found.values(), "nothing more", ["APP-V-05"])


def console_check(trial: Trial) -> Check:
    """Check for exceptions, errors on the console and allowed addresses that could not be loaded."""
    blocked = {reported_url(violation.blocked) for violation in trial.violations}
    lost = {url: why for url, (why, _) in trial.unloaded.items() if reported_url(url) not in blocked}
    unloaded = (_unloaded_finding(url, why, trial.guest_origin) for url, why in lost.items())
    # The browser logs the same addresses.
    known = {text for text in trial.console_errors if any(without_address(url) in text for url in trial.unloaded)}
    found = [*unloaded, *new_errors(trial, frozenset(known))]
    return checked("console", "No exception and no error", found, "none", [])


def _unloaded_finding(url: str, why: str, origin: str) -> Finding:
    advice = "check the address, the network and CORS; what depends on it was not tried"
    cause = f"not loaded {origin_of(url)}"
    if url.startswith(f"{origin}/"):
        url = url.removeprefix(origin)
        cause = f"not loaded {reported_url(url)}"
        advice = "an app is one file: put it into the HTML, or declare its origin and write the whole address"
    return warning(f"{url} could not be loaded: {why}", advice, url=url, cause=cause)


def start_failure(trial: Trial) -> Finding | None:
    """Return why a View did not complete its handshake: a missing script or data, its own policy, or an exception."""
    for url, (why, kind) in trial.unloaded.items():
        if kind in _AWAITED_TYPES:
            return _unloaded_finding(url, why, trial.guest_origin)

    for violation in trial.violations:
        finding = _violation_finding(violation, trial.view.grant.csp)
        if finding.url and violation.directive.startswith(("script-src", "connect-src")):
            return finding

    # The policy of the host reports what it blocks, so this is one of the app's own.
    if trial.own_policy_refusal and not trial.violations:
        advice = "remove the policy from the <meta>: the host sets one from _meta.ui.csp"
        return failure(f"a policy of its own: {trial.own_policy_refusal}", advice)

    return next(new_errors(trial), None)


def new_errors(
    trial: Trial, known: frozenset[str] = frozenset(), *, has_error_result: bool = False
) -> Iterator[Finding]:
    # With `has_error_result` the result was an error, which an app may write to the console.
    for text in dict.fromkeys(trial.exceptions):
        if text not in known:
            yield failure(f"an exception: {text}", cause=text)
    for text in dict.fromkeys(trial.console_errors):
        if text in known:
            continue
        if "Failed to load resource" in text or "net::ERR_" in text:
            yield warning(f"could not be loaded: {text}", "check the address")
        else:
            severity: Severity = "failure" if _SCRIPT_ERROR.search(text) else "note" if has_error_result else "warning"
            yield Finding(severity=severity, text=f"an error on the console: {text}", cause=text)
