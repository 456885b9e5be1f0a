"""Checks of what the browser blocked and of what failed in it, and what an app has to declare to load an address.

The browser reports each violation of the policy of a View, whatever caused it: an element, a style sheet or a script.
`refusal` also answers for an address that has not been loaded. The matching of sources is that of CSP Level 3, section
6.7.2, for the sources that `csp_sources` accepts; the policy is the strict one of `apps.host.document`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Final, Literal, NamedTuple, TypeAlias
from urllib.parse import SplitResult, urlsplit

from mcpd.apps.verdict.report import Check, Finding, Severity, checked, reported_url
from mcpd.apps.verdict.trial import Trial, Violation, without_address
from mcpd.server.extensions.ui.csp_sources import SourceKind, UiCsp

Kind: TypeAlias = Literal[
    "script", "style", "image", "font", "media", "resource", "connect", "frame", "base",
    "form", "object", "manifest", "worker", "navigation",
]  # fmt: skip

_DIRECTIVES: Final[dict[Kind, tuple[str, SourceKind]]] = {
    "script": ("script-src", "resourceDomains"),
    "style": ("style-src", "resourceDomains"),
    "image": ("img-src", "resourceDomains"),
    "font": ("font-src", "resourceDomains"),
    "media": ("media-src", "resourceDomains"),
    "resource": ("default-src", "resourceDomains"),
    "connect": ("connect-src", "connectDomains"),
    "frame": ("frame-src", "frameDomains"),
    "base": ("base-uri", "baseUriDomains"),
}
_NAVIGATION_ADVICE: Final = "no host lets an app navigate away; send ui/open-link to have the link opened"
_NEVER: Final[dict[Kind, str]] = {
    "form": "no host lets a form be sent; listen for its submit event and use fetch or a tool of the server",
    "object": "no host loads plug-ins; use <img>, <video> or an <iframe>",
    "manifest": "no host loads a web app manifest; leave it out",
    "worker": "strict hosts start no workers; do the work in the page or in a tool of the server",
    "navigation": _NAVIGATION_ADVICE,
}
_KINDS: Final[dict[str, Kind]] = {
    **{directive: kind for kind, (directive, _) in _DIRECTIVES.items()},
    "script-src-elem": "script",
    "style-src-elem": "style",
    "form-action": "form",
    "object-src": "object",
    "manifest-src": "manifest",
    "worker-src": "worker",
}
_DEFAULT_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_UPGRADES: Final = {"http": ("http", "https"), "ws": ("ws", "wss", "http", "https"), "wss": ("wss", "https")}
_ALLOWED_AS_DATA: Final = ("image", "media")
"""Kinds that may come from `data:` without a declaration."""

_CODE: Final = ("eval", "wasm-eval", "trusted-types-policy", "inline")
_SCRIPT_ERROR: Final = re.compile(r"\b(?:Type|Reference|Range|Syntax|Eval)Error\b")
_AWAITED_TYPES: Final = ("script", "fetch", "xhr", "websocket")
"""Types of resources that an app may wait for before its handshake."""


# ----------------------------------------------------------------------------------- declared sources


class Refusal(NamedTuple):
    """Why an address is not loaded. `domain` and `field` are what to declare; they are empty if nothing helps."""

    text: str
    advice: str
    domain: str = ""
    field: str = ""

    def cause(self, url: str) -> str:
        """Return the cause that all addresses have in common that one declaration would allow, or one host serves."""
        if self.domain:
            return f"{self.field} {self.domain}"
        parts = _split(url)
        return f"not loaded {(parts and parts.hostname) or reported_url(url)}"


def refusal(kind: Kind, url: str, granted: UiCsp | None) -> Refusal | None:
    """Return why the strict policy of these granted sources blocks an address, or None if it allows it."""
    shown = url if len(url) <= 120 else f"{url[:119]}…"
    parts = _split(url)
    if parts is None:
        return Refusal(f"{shown} is not a URL", "correct it")
    if parts.scheme in ("about", "javascript", "mailto", "tel"):
        return None
    if kind in _NEVER:
        return Refusal(f"{shown} is not loaded", _NEVER[kind])
    directive, field = _DIRECTIVES[kind]
    if not parts.scheme:
        text = f"{shown} is relative, and an app is one file: there is nothing to load it from"
        return Refusal(text, "put it into the HTML, or load it from an origin that you declare")

    declared = granted.sources(field) if granted is not None else []
    if parts.scheme in ("data", "blob"):
        return _local_refusal(kind, parts.scheme, declared, field)
    if parts.scheme not in _DEFAULT_PORTS:
        return Refusal(f"{shown}: no policy allows {parts.scheme}:", "use https")
    if any(matches(url, source) for source in declared):
        return None
    domain = _origin(url)
    return Refusal(f"{shown} is blocked by {directive}", _declaration(domain, field), domain, field)


def matches(url: str, source: str) -> bool:
    """Return whether a source that `csp_sources` accepts covers a URL."""
    wanted, offered = _split(url), _split(source.replace("*.", "", 1).replace(":*", ""))
    if wanted is None or offered is None or not wanted.hostname or not offered.hostname:
        return False
    if wanted.scheme != offered.scheme and wanted.scheme not in _UPGRADES.get(offered.scheme, ()):
        return False
    host, pattern = wanted.hostname, offered.hostname
    if not (host.endswith(f".{pattern}") if "://*." in source else host == pattern):
        return False
    if source.endswith(":*"):
        return True
    port = wanted.port or _DEFAULT_PORTS.get(wanted.scheme)
    allowed = offered.port or _DEFAULT_PORTS.get(offered.scheme)
    return port == allowed or (allowed == 80 and port == 443)


def _local_refusal(kind: Kind, scheme: str, declared: Iterable[str], field: str) -> Refusal | None:
    if scheme == "data" and kind in _ALLOWED_AS_DATA:
        return None
    text = f"a {kind} from {scheme}: is blocked"
    if kind in ("frame", "base", "script"):
        return Refusal(text, "put it into the HTML" if kind == "script" else "use https")
    if f"{scheme}:" in declared:
        return None
    return Refusal(text, f"{_declaration(f'{scheme}:', field)}; some hosts still do not grant it", f"{scheme}:", field)


def _declaration(source: str, field: str) -> str:
    declared = json.dumps({"ui": {"csp": {field: [source]}}})
    return f"declare it: write {declared} into the .json file beside the .html file, or into _meta of the resource"


def _origin(url: str) -> str:
    """Return the source to declare for a URL: scheme and host, and the port unless it is the default one."""
    parts = _split(url)
    if parts is None or not parts.hostname:
        return ""
    port = "" if parts.port in (None, _DEFAULT_PORTS.get(parts.scheme)) else f":{parts.port}"
    return f"{parts.scheme}://{parts.hostname}{port}"


def _split(url: str) -> SplitResult | None:
    # A browser removes white space and line ends, and a URL without a scheme gets the scheme of the page.
    text = "".join(url.split())
    if text.startswith("//"):
        text = f"https:{text}"
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return None
    return None if parts.scheme in _DEFAULT_PORTS and not parts.hostname else parts


# ------------------------------------------------------------------------------------------- checks


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
            finding = Finding(severity="failure", text=text, advice=advice, rule="APP-V-05")
            found.setdefault(trial.shown_refusal, finding)
    return checked("policy", "Nothing is blocked by the policy", found.values(), "nothing", ["APP-X-04", "APP-V-05"])


def _violation_finding(violation: Violation, granted: UiCsp | None) -> Finding:
    directive = str(violation.get("effective-directive") or violation.get("violated-directive") or "").split(" ")[0]
    blocked = str(violation.get("blocked-uri") or "")
    line = violation.get("line-number")
    place = f", line {line}" if isinstance(line, int) and line > 1 else ""
    if violation.get("ofProxy"):
        text = f"the app tries to navigate to {blocked}" if blocked else "the app tries to navigate away"
        return Finding(severity="failure", text=text, advice=_NAVIGATION_ADVICE, url=blocked)
    if blocked in _CODE:
        # Libraries try eval and work without it. One that needs it throws, or shows the refusal.
        text = f"the app tries {blocked}, which strict hosts do not allow ({directive}{place})"
        severity: Severity = "note" if blocked == "eval" else "warning"
        return Finding(severity=severity, text=text, rule="APP-V-05", cause=blocked)
    if directive == "base-uri":
        return Finding(severity="note", text=f"<base href={blocked!r}> has no effect", cause="base")

    if blocked in ("data", "blob"):
        blocked = f"{blocked}:"
    text = f"{blocked} is blocked by {directive}{place}"
    refused = refusal(_KINDS.get(directive, "resource"), blocked, granted)
    if refused is None:
        return Finding(severity="failure", text=text, advice="the browser refused it", url=blocked)
    cause = refused.cause(blocked)
    if not refused.domain:
        return Finding(severity="failure", text=text, advice=refused.advice, url=blocked, cause=cause)
    return Finding(
        severity="failure", text=text, advice=refused.advice, url=blocked,
        domain=refused.domain, field=refused.field, cause=cause,
    )  # fmt: skip


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
    blocked = {reported_url(str(violation.get("blocked-uri") or "")) for violation in trial.violations}
    lost = {url: why for url, (why, _) in trial.unloaded.items() if reported_url(url) not in blocked}
    unloaded = (_unloaded_finding(url, why, trial.guest_origin) for url, why in lost.items())
    # The browser logs the same addresses.
    known = {text for text in trial.console_errors if any(without_address(url) in text for url in trial.unloaded)}
    found = [*unloaded, *new_errors(trial, frozenset(known))]
    return checked("console", "No exception and no error", found, "none", [])


def _unloaded_finding(url: str, why: str, origin: str) -> Finding:
    advice = "check the address, the network and CORS; what depends on it was not tried"
    cause = f"not loaded {_origin(url)}"
    if url.startswith(f"{origin}/"):
        url = url.removeprefix(origin)
        cause = f"not loaded {reported_url(url)}"
        advice = "an app is one file: put it into the HTML, or declare its origin and write the whole address"
    return Finding(severity="warning", text=f"{url} could not be loaded: {why}", advice=advice, url=url, cause=cause)


def start_failure(trial: Trial) -> Finding | None:
    """Return why a View did not complete its handshake: a missing script or data, its own policy, or an exception."""
    for url, (why, kind) in trial.unloaded.items():
        if kind in _AWAITED_TYPES:
            return _unloaded_finding(url, why, trial.guest_origin)
    for violation in trial.violations:
        finding = _violation_finding(violation, trial.view.grant.csp)
        if finding.url and str(violation.get("effective-directive", "")).startswith(("script-src", "connect-src")):
            return finding
    # The policy of the host reports what it blocks, so this is one of the app's own.
    if trial.own_policy_refusal and not trial.violations:
        advice = "remove the policy from the <meta>: the host sets one from _meta.ui.csp"
        return Finding(severity="failure", text=f"a policy of its own: {trial.own_policy_refusal}", advice=advice)
    return next(new_errors(trial), None)


def new_errors(
    trial: Trial, known: frozenset[str] = frozenset(), *, has_error_result: bool = False
) -> Iterator[Finding]:
    """Yield the exceptions and console errors of a trial that are not `known` from another one.

    With `has_error_result` the result was an error, which an app may write to the console.
    """
    for text in dict.fromkeys(trial.exceptions):
        if text not in known:
            yield Finding(severity="failure", text=f"an exception: {text}", cause=text)
    for text in dict.fromkeys(trial.console_errors):
        if text in known:
            continue
        if "Failed to load resource" in text or "net::ERR_" in text:
            yield Finding(severity="warning", text=f"could not be loaded: {text}", advice="check the address")
        else:
            severity: Severity = "failure" if _SCRIPT_ERROR.search(text) else "note" if has_error_result else "warning"
            yield Finding(severity=severity, text=f"an error on the console: {text}", cause=text)
