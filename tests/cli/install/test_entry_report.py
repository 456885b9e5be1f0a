"""Entries of hosts that say one thing and mean another to the host."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mcpd.cli.doctor.report import Report, Step
from mcpd.cli.install.checks import examine_entry

FILES = {
    "claude-code": ".claude.json",
    "windsurf": ".codeium/windsurf/mcp_config.json",
    "gemini-cli": ".gemini/settings.json",
    "cline": ".cline/data/settings/cline_mcp_settings.json",
}


def looked(home: Path, host: str, entry: Any) -> list[Step]:
    path = home / FILES[host]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"mcpServers": {"bed": entry}}), encoding="utf-8")
    report = Report()
    examine_entry(f"{host}:bed", report)
    return report.steps


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CLINE_MCP_SETTINGS_PATH", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("host", "entry", "text", "advice"),
    [
        (
            "claude-code",
            {"url": "https://x/mcp", "transport": "http"},
            "does not read `transport`",
            'write "type": "http"',
        ),
        ("claude-code", {"url": "https://x/mcp"}, "it has no `type`", 'write "type": "http"'),
        ("cline", {"url": "https://x/mcp"}, "it has no `type`", 'write "type": "streamableHttp"'),
        ("windsurf", {"url": "https://x/mcp"}, "does not read `url`", "serverUrl"),
        ("gemini-cli", {"url": "https://x/mcp"}, "means HTTP+SSE", "httpUrl"),
        ("cline", {"command": "npx", "disabled": True}, "switched off", "switch it on"),
        ("claude-code", {"command": "npx -y server"}, "has spaces", "each other word into `args`"),
        ("claude-code", {"command": "./server"}, "whatever folder", "write its absolute path"),
    ],
)
def test_what_the_host_takes_otherwise(home: Path, host: str, entry: Any, text: str, advice: str) -> None:
    (step,) = looked(home, host, entry)
    assert step.status == "problem"
    assert text in step.text
    assert advice in step.advice


@pytest.mark.parametrize(
    ("host", "entry"),
    [
        ("claude-code", {"type": "http", "url": "https://x/mcp"}),
        ("windsurf", {"serverUrl": "https://x/mcp"}),
        ("gemini-cli", {"httpUrl": "https://x/mcp"}),
        ("gemini-cli", {"url": "https://x/sse"}),
        ("cline", {"command": "/usr/bin/npx", "args": ["-y", "server"]}),
    ],
)
def test_what_is_as_it_says(home: Path, host: str, entry: Any) -> None:
    (step,) = looked(home, host, entry)
    assert (step.name, step.status) == ("configuration", "ok")
    assert step.details["file"] == str(home / FILES[host])


def test_other_targets_have_none(home: Path) -> None:
    report = Report()
    for target in ("server.py:server", "claude-code:bed", "https://x/mcp", "claude-code"):
        examine_entry(target, report)
    assert report.steps == []
    assert looked(home, "windsurf", "must contain an object") == []
