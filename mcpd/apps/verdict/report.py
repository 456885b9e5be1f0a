"""The report of `mcpd apps test`: checks with findings for each app and for the server, as an object, JSON and JUnit
XML.

docs/testing-apps.md documents the JSON. It is stable: members are added, and none changes its meaning.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from msgspec import UNSET, Struct, UnsetType, field, to_builtins

FORMAT = 1
"""The version of the JSON. It changes if a member changes its meaning."""

Severity: TypeAlias = Literal["failure", "warning", "note"]
"""`failure`: the app breaks in some host. `warning`: accessibility, or advice. `note`: worth knowing."""

Status: TypeAlias = Literal["ok", "warning", "failure", "skipped"]

# The checks without which an app works in no host.
_ESSENTIAL = {"link", "type", "handshake", "layout-1280", "shows-result"}


class TryOptions(Struct, frozen=True, kw_only=True):
    """How apps are tried.

    `static` checks only metadata and HTML, without a browser. `browser` is the path or name of a Chromium; None uses
    the first that is found. `app` names the apps to try, each by its URI, its name or one of its tools; empty for all.
    `calls` has the arguments of tools by their names; for other tools they are made from the schema. `timeout` is in
    seconds, for the handshake of an app and for each of its answers. `screenshots` is the folder for pictures, None for
    none. `at_once` is the number of apps that are tried at the same time. With `strict`, an app with a warning does not
    pass.
    """

    static: bool = False
    browser: str | None = None
    app: tuple[str, ...] = ()
    calls: Mapping[str, Mapping[str, Any]] = {}
    timeout: float = 10.0
    screenshots: str | None = None
    at_once: int = 4
    strict: bool = False


class Finding(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One problem, and what to do about it."""

    severity: Severity
    text: str
    advice: str = ""
    rule: str = ""
    """The rule of docs/rules.toml that is broken, if there is one."""
    url: str | UnsetType = UNSET
    """The address that was to be loaded."""
    domain: str | UnsetType = UNSET
    """The source to declare, if a declaration helps."""
    field: str | UnsetType = UNSET
    """The member of `_meta.ui.csp` in which to declare it."""
    element: str | UnsetType = UNSET
    """The element, shortened."""
    line: int | UnsetType = UNSET
    """The line of the HTML, from 1."""
    cause: str = ""
    """Findings with the same cause are reported together. The default is the text."""


def failure(text: str, advice: str = "", rule: str = "", **details: Any) -> Finding:
    return Finding(severity="failure", text=text, advice=advice, rule=rule, **details)


def warning(text: str, advice: str = "", rule: str = "", **details: Any) -> Finding:
    return Finding(severity="warning", text=text, advice=advice, rule=rule, **details)


def note(text: str, advice: str = "", rule: str = "", **details: Any) -> Finding:
    return Finding(severity="note", text=text, advice=advice, rule=rule, **details)


class Cause(Struct, frozen=True, kw_only=True, rename="camel"):
    """The failures and warnings with one cause, as one line."""

    severity: Severity
    text: str
    advice: str
    checks: list[str]
    """The names of the checks that found it."""


class Check(Struct, frozen=True, kw_only=True, rename="camel"):
    """One question about an app or about the server."""

    name: str
    """The same for every app, such as `loads` or `quirk-no-tool-input`."""
    title: str
    """The question in a few words."""
    status: Status
    text: str
    """The answer in a sentence."""
    rules: tuple[str, ...] = ()
    """The rules of docs/rules.toml that the check covers."""
    findings: Sequence[Finding] = ()


class _Report(Struct, kw_only=True, rename="camel"):
    """The members that the report about one app and the report about all apps share."""

    checks: list[Check] = field(default_factory=list)
    seconds: float = 0.0
    strict: bool = False
    """Whether a warning counts like a failure."""

    @property
    def passed(self) -> bool:
        """True without failures, and with `strict` without warnings."""
        return not (self.failures or (self.strict and self.warnings))

    @property
    def causes(self) -> list[Cause]:
        """The failures, then the warnings of `checks`, grouped by cause."""
        groups: dict[str, list[tuple[str, Finding]]] = {}
        for check in self.checks:
            for finding in check.findings:
                if finding.severity != "note":
                    groups.setdefault(finding.cause or finding.text, []).append((check.name, finding))

        found = []
        for group in groups.values():
            worst = next((finding for _, finding in group if finding.severity == "failure"), group[0][1])
            places = {reported_url(finding.url) if finding.url else finding.text for _, finding in group}
            # A browser reports only the origin of some addresses.
            others = len({place for place in places if not re.fullmatch(r"\w+://[^/]*", place)} or places) - 1
            text = f"{worst.text}; and {others} more like it" if others else worst.text
            names = list(dict.fromkeys(name for name, _ in group))
            found.append(Cause(severity=worst.severity, text=text, advice=worst.advice, checks=names))

        return sorted(found, key=lambda cause: cause.severity != "failure")

    @property
    def failures(self) -> list[str]:
        """One line for each cause of a failure, for the message of an assertion."""
        return self._lines("failure")

    @property
    def warnings(self) -> list[str]:
        """One line for each cause of a warning."""
        return self._lines("warning")

    def _lines(self, severity: Severity) -> list[str]:
        return [
            f"{cause.checks[0]}: {cause.text}{f' ({cause.advice})' if cause.advice else ''}"
            for cause in self.causes
            if cause.severity == severity
        ]


class AppReport(_Report, kw_only=True):
    uri: str
    tools: list[str]
    """The tools that open the app."""
    called: dict[str, Any] | None = None
    """The tool that was called to show the app and its arguments, `{"tool", "arguments"}`."""
    screenshots: list[str] = field(default_factory=list)
    """Paths of files."""

    @property
    def verdict(self) -> str:
        """Whether the app works, in a few words."""
        failed = {check.name for check in self.checks if check.status == "failure"}
        is_shown = any(check.name == "handshake" and check.status != "skipped" for check in self.checks)
        if failed & _ESSENTIAL:
            return "does not work"
        if failed:
            return "works, but not in every host" if is_shown else "does not work in every host"
        return "works" if is_shown else "no failure in its metadata and HTML; it was not shown in a browser"

    def check(self, name: str) -> Check:
        """Return the check of this name. Raises KeyError."""
        return {check.name: check for check in reversed(self.checks)}[name]


class AppsReport(_Report, kw_only=True):
    """The report about all apps of a server. `checks` are the checks of the server as a whole.

    The lines of `failures` and `warnings` about an app begin with its URI.
    """

    target: str
    server: str
    """Name and version."""
    protocol_version: str
    browser: str | None = None
    """The browser in which the apps were shown; None if they were not shown."""
    apps: list[AppReport] = field(default_factory=list)

    def app(self, name: str) -> AppReport:
        """Return the app with this URI or tool. Raises KeyError."""
        for app in self.apps:
            if app.uri == name or name in app.tools:
                return app
        raise KeyError(name)

    def as_json(self) -> dict[str, Any]:
        """Return the documented JSON as a dict."""
        report: dict[str, Any] = {"format": FORMAT, "passed": self.passed, **to_builtins(self)}
        for app, app_report in zip(report["apps"], self.apps, strict=True):
            causes = to_builtins(app_report.causes)
            app |= {"passed": app_report.passed, "verdict": app_report.verdict, "causes": causes}
        return report

    def _lines(self, severity: Severity) -> list[str]:
        of_apps = [f"{app.uri}: {line}" for app in self.apps for line in app._lines(severity)]
        return super()._lines(severity) + of_apps


def checked(name: str, title: str, findings: Iterable[Finding], ok: str, rules: Sequence[str] = ()) -> Check:
    """Return a check with its findings; `ok` is its text without findings."""
    found = list(findings)
    failures = [finding for finding in found if finding.severity == "failure"]
    warnings = [finding for finding in found if finding.severity == "warning"]
    status: Status = "failure" if failures else "warning" if warnings else "ok"
    worst = failures or warnings
    text = ok if not worst else worst[0].text if len(worst) == 1 else f"{worst[0].text}; and {len(worst) - 1} more"
    return Check(name=name, title=title, status=status, text=text, rules=tuple(rules), findings=tuple(found))


def skipped(name: str, title: str, why: str, rules: Sequence[str] = ()) -> Check:
    return Check(name=name, title=title, status="skipped", text=why, rules=tuple(rules))


def reported_url(url: str) -> str:
    """Return an address as a browser reports it, so that findings about one address are counted once."""
    text = "".join(url.split()).partition("#")[0]
    if text.startswith(("data:", "blob:")):
        return text[:5]
    return f"https:{text}" if text.startswith("//") else text.removeprefix("./").lstrip("/")


def junit_xml(report: AppsReport) -> str:
    # Unless the report is strict, a check with warnings passes and has them as its output.
    suites = [("server", report.checks, report.seconds - sum(app.seconds for app in report.apps))]
    suites += [(app.uri, app.checks, app.seconds) for app in report.apps]

    root = Element("testsuites", name=_clean(f"mcpd apps test {report.target}"), time=f"{report.seconds:.3f}")
    totals: Counter[str] = Counter()
    for name, checks, seconds in suites:
        counts = {
            "tests": len(checks),
            "failures": sum(_fails(check, report) for check in checks),
            "errors": 0,
            "skipped": sum(check.status == "skipped" for check in checks),
        }
        totals.update(counts)
        attributes = {key: str(count) for key, count in counts.items()}
        suite = SubElement(root, "testsuite", {"name": _clean(name), **attributes, "time": f"{max(seconds, 0):.3f}"})
        for check in checks:
            _add_case(suite, name, check, fails=_fails(check, report))

    for key in ("tests", "failures", "errors"):
        root.set(key, str(totals[key]))
    indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, encoding="unicode")}\n'


def _fails(check: Check, report: AppsReport) -> bool:
    return check.status == "failure" or (report.strict and check.status == "warning")


def _add_case(suite: Element, app: str, check: Check, *, fails: bool) -> None:
    case = SubElement(suite, "testcase", {"classname": _clean(app), "name": check.name, "time": "0"})
    lines = [
        f"{finding.severity}: {finding.text}{f' → {finding.advice}' if finding.advice else ''}"
        for finding in check.findings
    ]
    if fails:
        failure = SubElement(case, "failure", {"message": _clean(check.text), "type": check.name})
        failure.text = _clean("\n".join(lines))
    elif check.status == "skipped":
        SubElement(case, "skipped", {"message": _clean(check.text)})
    elif lines:
        SubElement(case, "system-out").text = _clean("\n".join(lines))


def _clean(text: str) -> str:
    # Replace the characters that XML 1.0 cannot contain, not even escaped.
    return "".join(
        c if c in "\t\n" or " " <= c < "\ud800" or "\ue000" <= c < "\ufffe" or c > "\uffff" else "�" for c in text
    )
