"""`mcpd apps test` as it is typed, and the fixture of our plugin."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from mcpd import Server
from mcpd.cli.apps import command
from mcpd.cli.commands import run as main
from mcpd.verdict.report import AppsReport

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


def typed(*words: str) -> Result:
    return CliRunner().invoke(command, ["test", *words], standalone_mode=False)


def test_a_verdict_is_printed_and_kept(tmp_path: Path) -> None:
    """Names what is loaded, with the domain and the field; exit code 1; the same as JSON and JUnit."""
    server = tmp_path / "server.py"
    server.write_text(BAD)
    shown = typed(str(server), "--static", "--junit", str(tmp_path / "apps.xml"))
    assert shown.return_value == 1, shown.output
    assert "https://cdn.example.com/chart.js is blocked by script-src (<script src>, line 2)" in shown.output
    assert '"https://cdn.example.com" to _meta.ui.csp.resourceDomains' in shown.output
    assert ": 1 failure; 1 app did not pass" in shown.output
    failed = ElementTree.parse(tmp_path / "apps.xml").findall(".//failure")
    assert [element.get("type") for element in failed] == ["loads"]

    told = json.loads(typed(str(server), "--static", "--json", "--call", 'show_beds={"bed": "north"}').stdout)
    assert (told["format"], told["passed"], told["server"].split()[0]) == (1, False, "garden")
    assert told["apps"][0]["called"] == {"tool": "show_beds", "arguments": {"bed": "north"}}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--call", "x"], "--call 'TOOL={\"name\": value}'"),
        (["--app", "nothing"], "there is no app 'nothing'"),
        (["--call", "nothing={}"], "no tool of that name opens an app; there are apps_diagnostics"),
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
