"""`mcpd apps test` as it is typed, and the fixture of our plugin."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from mcpd import Server
from mcpd.apps.verdict.report import AppsReport
from mcpd.cli.commands.apps import apps_command as command
from mcpd.cli.group import run as main

BAD = """
from mcpd import Server

server = Server("garden")
server.app("beds", '''<!doctype html><html lang="en"><meta charset="utf-8"><title>Beds</title>
<script src="https://cdn.example.com/chart.js"></script>''')


@server.tool(ui="beds")
def show_beds(bed: str) -> str:
    "The beds."
    return bed
"""


@pytest.fixture(autouse=True)
def level() -> Iterator[None]:
    """The command silences the log of the host, which other tests of this process read."""
    log = logging.getLogger("mcpd.host")
    before = log.level
    yield
    log.setLevel(before)


def typed(*words: str) -> Result:
    return CliRunner().invoke(command, ["test", *words], standalone_mode=False)


def test_a_verdict_is_printed_and_kept(tmp_path: Path) -> None:
    """Names what is loaded, with the domain and the field; exit code 1; the same as JSON and JUnit."""
    server = tmp_path / "server.py"
    server.write_text(BAD)
    shown = typed(str(server), "--static", "--junit", str(tmp_path / "apps.xml"))
    assert shown.return_value == 1, shown.output
    assert "https://cdn.example.com/chart.js is blocked by script-src (<script src>, line 2)" in shown.output
    assert '{"ui": {"csp": {"resourceDomains": ["https://cdn.example.com"]}}} into the .json file' in shown.output
    assert ": 1 failure; 1 app did not pass" in shown.output
    failed = ElementTree.parse(tmp_path / "apps.xml").findall(".//failure")
    assert [element.get("type") for element in failed] == ["loads"]

    told = json.loads(typed(str(server), "--static", "--json", "--call", 'show_beds={"bed": "north"}').stdout)
    assert (told["format"], told["passed"], told["server"].split()[0]) == (1, False, "garden")
    assert told["apps"][0]["called"] == {"tool": "show_beds", "arguments": {"bed": "north"}}


def test_each_cause_is_one_line_below_the_verdict(tmp_path: Path) -> None:
    """Several addresses that one declaration lets through are one cause; --verbose prints every finding."""
    server = tmp_path / "server.py"
    more = '<script src="https://cdn.example.com/more.js"></script><img src="https://img.example.com/x.png" alt="">'
    server.write_text(BAD.replace("</script>", f"</script>{more}"))
    lines = typed(str(server), "--static").output.splitlines()
    assert lines[0].endswith("(show_beds): does not work in every host")
    assert [line.split()[1] for line in lines[1:-1]] == [
        "https://cdn.example.com/chart.js",
        "https://img.example.com/x.png",
    ]
    assert "and 1 more like it" in lines[1]
    assert ": 2 failures; 1 app did not pass" in lines[-1]
    verbose = typed(str(server), "--static", "--verbose").output
    assert "https://cdn.example.com/more.js" in verbose
    assert " text-fallback " in verbose


def test_strict_counts_warnings_as_failures(tmp_path: Path) -> None:
    server = tmp_path / "server.py"
    server.write_text(
        BAD.replace(' lang="en"', "").replace('<script src="https://cdn.example.com/chart.js">', "<script>")
    )
    assert typed(str(server), "--static").return_value == 0
    shown = typed(str(server), "--static", "--strict", "--junit", str(tmp_path / "apps.xml"))
    assert shown.return_value == 1
    assert "1 warning; 1 app did not pass" in shown.output
    assert ElementTree.parse(tmp_path / "apps.xml").getroot().get("failures") == "1"
    assert json.loads(typed(str(server), "--static", "--strict", "--json").stdout)["passed"] is False


@pytest.mark.parametrize("wrapped", ['{"_meta": {"ui": %s}}', '{"_meta.ui": %s}', '{"ui": %s}'])
def test_the_declaration_that_is_advised_lets_the_address_through(tmp_path: Path, wrapped: str) -> None:
    (tmp_path / "apps").mkdir()
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "beds.py").write_text('def beds() -> str:\n    """The beds."""\n    return "north"\n')
    html = BAD.partition("'''")[2].partition("'''")[0]
    (tmp_path / "apps" / "beds.html").write_text(html)
    told = json.loads(typed(str(tmp_path), "--static", "--json").stdout)
    (cause,) = told["apps"][0]["causes"]
    declared = json.loads(cause["advice"].partition("write ")[2].partition(" into ")[0])
    (tmp_path / "apps" / "beds.json").write_text(wrapped % json.dumps(declared["ui"]))
    shown = typed(str(tmp_path), "--static", "--strict")
    assert shown.return_value == 0, shown.output


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--call", "x"], "--call 'TOOL={\"name\": value}'"),
        (["--app", "nothing"], "no app is named 'nothing'"),
        (["--call", "nothing={}"], "no such tool opens an app; there are apps_diagnostics"),
        (["nowhere.py"], "nowhere.py"),
    ],
)
def test_what_cannot_be_tried_is_one_line_and_exit_code_2(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["apps", "test", *words, "--static"]) == 2
    out, err = capsys.readouterr()
    assert says in err
    assert (out, err.count("\n")) == ("", 1)


def test_with_json_the_error_is_json_too() -> None:
    told = json.loads(typed("nowhere.py", "--static", "--json").stdout)
    assert told["passed"] is False
    assert "nowhere.py" in told["error"]


async def test_the_fixture_gives_the_report(mcpd_apps: Callable[..., AppsReport]) -> None:
    server = Server("garden")

    @server.tool(view="table")
    def beds() -> list[dict[str, str]]:
        """The beds."""
        return [{"bed": "north"}]

    report = mcpd_apps(server, static=True, app="beds")
    assert report.passed
    assert report.failures == []
    assert report.app("beds").tools == ["beds"]
