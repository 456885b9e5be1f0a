"""The report as JSON and as JUnit XML."""

from __future__ import annotations

from xml.etree import ElementTree

from mcpd.apps.verdict.report import AppReport, AppsReport, Finding, checked, junit_xml, skipped

# The schema that CI systems read it by (Jenkins' JUnit plug-in): attributes, required ones first, and children.
SCHEMA = {
    "testsuites": ((), {"name", "time", "tests", "failures", "errors", "disabled"}, {"testsuite"}),
    "testsuite": (
        ("name", "tests"),
        {"failures", "errors", "time", "disabled", "skipped", "timestamp", "hostname", "id", "package"},
        {"properties", "testcase", "system-out", "system-err"},
    ),
    "testcase": (
        ("name", "classname"),
        {"assertions", "time", "status"},
        {"skipped", "error", "failure", "system-out", "system-err"},
    ),
    "failure": ((), {"type", "message"}, set()),
    "skipped": ((), {"type", "message"}, set()),
    "system-out": ((), set(), set()),
}


def report() -> AppsReport:
    bad = Finding(severity="failure", text="it broke\x00 <&>", advice="mend \ud800it", url="https://a.example/")
    odd = Finding(severity="warning", text="odd")
    checks = [
        checked("loads", "Loads", [bad, odd], "nothing"),
        checked("links", "Links", [odd], "none"),
        checked("size", "Size", [], "small"),
        skipped("call", "Call", "why"),
    ]
    app = AppReport(uri="ui://a/b", tools=["b"], checks=checks, seconds=0.5)
    server = [checked("server", "Server", [], "1 app")]
    return AppsReport(target="x", server="a 1", protocol_version="2025-11-25", checks=server, apps=[app], seconds=1.0)


def test_junit_is_what_ci_systems_read() -> None:
    root = ElementTree.fromstring(junit_xml(report()).encode())

    def hold(element: ElementTree.Element) -> None:
        required, optional, children = SCHEMA[element.tag]
        assert set(required) <= set(element.keys()) <= {*required, *optional}
        for child in element:
            assert child.tag in children
            hold(child)

    hold(root)
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("5", "1", "0")
    suite = root[1]
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", "1", "1")
    assert "https" not in str(suite[0][0].get("message"))
    assert "mend" in str(suite[0][0].text)
    assert [case[0].tag for case in suite if len(case)] == ["failure", "system-out", "skipped"]


def test_json_says_the_same() -> None:
    said = report().as_json()
    assert (said["format"], said["passed"], said["browser"]) == (1, False, None)
    app = said["apps"][0]
    assert app["passed"] is False
    assert [check["status"] for check in app["checks"]] == ["failure", "warning", "ok", "skipped"]
    assert app["checks"][0]["findings"][1] == {"severity": "warning", "text": "odd"}
    assert report().failures == ["ui://a/b: loads: it broke\x00 <&> (mend \ud800it)"]
