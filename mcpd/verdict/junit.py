"""The report as JUnit XML, which CI systems read: a suite for each app, a case for each check."""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement, indent, tostring

from mcpd.verdict.report import AppsReport, Check


def junit_xml(report: AppsReport) -> str:
    """The whole document. Unless the report is strict, a check with warnings passes and has them as its output."""
    suites = [("server", report.checks, report.seconds - sum(app.seconds for app in report.apps))]
    suites += [(app.uri, app.checks, app.seconds) for app in report.apps]

    root = Element("testsuites", name=_clean(f"mcpd apps test {report.target}"), time=f"{report.seconds:.3f}")
    totals = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    for name, checks, seconds in suites:
        counts = {
            "tests": len(checks),
            "failures": sum(_fails(check, report) for check in checks),
            "errors": 0,
            "skipped": sum(check.status == "skipped" for check in checks),
        }
        totals = {key: totals[key] + count for key, count in counts.items()}
        told = {key: str(count) for key, count in counts.items()}
        suite = SubElement(root, "testsuite", {"name": _clean(name), **told, "time": f"{max(seconds, 0):.3f}"})
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
    """Without what XML 1.0 cannot hold, not even escaped."""
    return "".join(
        c if c in "\t\n" or " " <= c < "\ud800" or "\ue000" <= c < "\ufffe" or c > "\uffff" else "�" for c in text
    )
