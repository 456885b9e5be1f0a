"""What was found: checks with findings, for each app and for the server; and the same as JSON.

The JSON is documented in docs/testing-apps.md, and stable: members are added, none changes its meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType, field, to_builtins

__all__ = ["FORMAT", "AppReport", "AppsReport", "Check", "Finding", "Severity", "Status", "checked", "skipped"]

FORMAT = 1
"""The version of the JSON: another number means that a member has changed its meaning."""

Severity: TypeAlias = Literal["failure", "warning", "note"]
"""`failure`: it does not work in a strict host. `warning`: not everywhere, or not well. `note`: worth knowing."""

Status: TypeAlias = Literal["ok", "warning", "failure", "skipped"]


class Finding(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One thing that was found, and what to do about it."""

    severity: Severity
    text: str
    advice: str = ""
    rule: str = ""
    """The rule that it breaks, as in docs/rules.toml, where there is one."""
    url: str | UnsetType = UNSET
    """What was to be loaded, where it is about that."""
    domain: str | UnsetType = UNSET
    """The source to declare, if declaring one helps."""
    field: str | UnsetType = UNSET
    """The member of `_meta.ui.csp` to declare it in."""
    element: str | UnsetType = UNSET
    """The element or the place in the code, shortened."""
    line: int | UnsetType = UNSET
    """The line of the HTML, from 1."""


class Check(Struct, frozen=True, kw_only=True, rename="camel"):
    """One question that was put to an app or to the server."""

    name: str
    """The same for every app: `loads`, `quirk-no-tool-input`."""
    title: str
    """The question in a few words."""
    status: Status
    text: str
    """What was found, in a sentence."""
    rules: tuple[str, ...] = ()
    """Which rules it holds the app to, as in docs/rules.toml."""
    findings: Sequence[Finding] = ()


class AppReport(Struct, kw_only=True, rename="camel"):
    """What was found about one app."""

    uri: str
    tools: list[str]
    """The tools that open it."""
    checks: list[Check] = field(default_factory=list)
    called: dict[str, Any] | None = None
    """The tool that was called to show it and its arguments, `{"tool", "arguments"}`."""
    screenshots: list[str] = field(default_factory=list)
    """Paths of the files."""
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether nothing was found that does not work."""
        return not any(check.status == "failure" for check in self.checks)

    @property
    def failures(self) -> list[str]:
        """Each finding that is a failure, in a line, for an assertion's message."""
        return _lines(self.checks, "failure")

    @property
    def warnings(self) -> list[str]:
        """Each finding that is a warning, in a line."""
        return _lines(self.checks, "warning")

    def check(self, name: str) -> Check:
        """The check of this name. Raises KeyError."""
        for check in self.checks:
            if check.name == name:
                return check
        raise KeyError(name)


class AppsReport(Struct, kw_only=True, rename="camel"):
    """What was found about all apps of a server."""

    target: str
    server: str
    """Name and version."""
    protocol_version: str
    browser: str | None = None
    """The browser that the apps were shown in; None if only the texts were looked at."""
    checks: list[Check] = field(default_factory=list)
    """Those of the server as a whole."""
    apps: list[AppReport] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether nothing was found that does not work."""
        return all(app.passed for app in self.apps) and not _lines(self.checks, "failure")

    @property
    def failures(self) -> list[str]:
        """Each finding that is a failure, in a line that begins with its app."""
        return self._all("failure")

    @property
    def warnings(self) -> list[str]:
        """Each finding that is a warning, in a line that begins with its app."""
        return self._all("warning")

    def app(self, name: str) -> AppReport:
        """The app of this URI, or that this tool opens. Raises KeyError."""
        for app in self.apps:
            if app.uri == name or name in app.tools:
                return app
        raise KeyError(name)

    def as_json(self) -> dict[str, Any]:
        """The documented JSON, as a dict."""
        said: dict[str, Any] = {"format": FORMAT, "passed": self.passed, **to_builtins(self)}
        for app, report in zip(said["apps"], self.apps, strict=True):
            app["passed"] = report.passed
        return said

    def _all(self, severity: Severity) -> list[str]:
        found = _lines(self.checks, severity)
        return found + [f"{app.uri}: {line}" for app in self.apps for line in _lines(app.checks, severity)]


def checked(name: str, title: str, findings: Iterable[Finding], ok: str, rules: Sequence[str] = ()) -> Check:
    """A check from its findings; `ok` is what it says if nothing was found."""
    found = list(findings)
    failures = [finding for finding in found if finding.severity == "failure"]
    warnings = [finding for finding in found if finding.severity == "warning"]
    status: Status = "failure" if failures else "warning" if warnings else "ok"
    worst = failures or warnings
    text = ok if not worst else worst[0].text if len(worst) == 1 else f"{worst[0].text}; and {len(worst) - 1} more"
    return Check(name=name, title=title, status=status, text=text, rules=tuple(rules), findings=tuple(found))


def skipped(name: str, title: str, why: str, rules: Sequence[str] = ()) -> Check:
    """A check that was not made."""
    return Check(name=name, title=title, status="skipped", text=why, rules=tuple(rules))


def _lines(checks: Iterable[Check], severity: Severity) -> list[str]:
    return [
        f"{check.name}: {finding.text}{f' ({finding.advice})' if finding.advice else ''}"
        for check in checks
        for finding in check.findings
        if finding.severity == severity
    ]
