"""mcpd.toml: what it may say, and each mistake in it with its line; the schema for editors says the same."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from support.configuration_schema import written

from mcpd.errors import ConfigurationError
from mcpd.sources.configuration import line_of, read, serve_keys
from mcpd.sources.scaffold import shipped_file
from mcpd.sources.tables import Configuration

WHOLE = """
name = "garden"
version = "1.0"
title = "The garden"
description = "Beds and plants"
instructions = '''
[serve]
http = "this is text"
'''
website-url = "https://garden.example"
lifespan = "lifespan.py:lifespan"
page-size = 50
tool-timeout = 30
show-errors = true

[serve]
http = ":8080"
apps = "always"
token-file = "secret"
max-memory = "512M"
max-threads = 4
grace = 1.5
allow-host = ["garden.example"]
insecure = false
log-level = "debug"

[tools]
enabled = true
folder = "functions"
import-timeout = 2.5

[apps]
folder = "pages/apps"

[resources]
uri = "notes://"
max-files = 100
max-bytes = 1000
exclude = ["*.bak"]

[prompts]
enabled = false
"""


def written_to(folder: Path, text: str, name: str = "mcpd.toml") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_all_that_it_may_say(tmp_path: Path) -> None:
    found = read(written_to(tmp_path, WHOLE))
    assert (found.name, found.page_size, found.tool_timeout, found.show_errors) == ("garden", 50, 30, True)
    assert found.serve == {
        "http": ":8080",
        "apps": "always",
        "token-file": "secret",
        "max-memory": 512 * 1024 * 1024,
        "max-threads": 4,
        "grace": 1.5,
        "allow-host": ("garden.example",),
        "insecure": False,
        "log-level": "debug",
    }
    assert (found.tools.folder, found.tools.import_timeout) == ("functions", 2.5)
    assert (found.apps.folder, found.prompts.enabled) == ("pages/apps", False)
    assert (found.resources.uri, found.resources.exclude) == ("notes://", ("*.bak",))
    assert read(written_to(tmp_path, "")) == Configuration()


def test_as_part_of_a_project_file(tmp_path: Path) -> None:
    text = '[project]\nname = "x"\n[tool.other]\nname = 1\n[tool.mcpd]\nname = "yard"\n'
    text += "[tool.mcpd.tools]\nenabled = false\n"
    found = read(written_to(tmp_path, text, "pyproject.toml"))
    assert (found.name, found.tools.enabled) == ("yard", False)
    with pytest.raises(
        ConfigurationError, match=r"pyproject\.toml, line 8: tools\.enabled: expected true or false, got whole number$"
    ):
        read(written_to(tmp_path, text.replace("false", "1"), "pyproject.toml"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('nam = "x"', "line 1: unknown key nam; did you mean name?"),
        ('name = "x"\n\nzzz = 1', "line 3: unknown key zzz; known keys: name, version, "),
        ("name = 3", "line 1: name: expected string, got whole number"),
        ('name = ""', "line 1: name: expected string of length >= 1"),
        ("[tools]\n\nfoldr = 'x'", "line 3: unknown key tools.foldr; did you mean folder?"),
        ("tools = 3", "line 1: tools: expected table, got whole number"),
        ("tools.enabled = 3", "line 1: tools.enabled: expected true or false, got whole number"),
        ("[tools]\nimport-timeout = 0", "line 2: tools.import-timeout: expected number > 0.0"),
        ("[resources]\nexclude = ['a', 3]", "line 2: resources.exclude: expected string, got whole number"),
        (
            "[resources]\nuri = 'no uri'",
            'line 2: resources.uri: expected a URI prefix with a scheme other than ui, such as "notes:',
        ),
        (
            "[resources]\nuri = 'ui://x/'",
            "line 2: resources.uri: expected a URI prefix with a scheme other than",
        ),
        ("[apps]\nfolder = '../x'", "line 2: apps.folder: ../x is not below the folder of this file"),
        ("[apps]\nfolder = '/x'", "line 2: apps.folder: /x is not below the folder of this file"),
        ("[serve]\nhttpp = ':1'", "line 2: unknown key serve.httpp; did you mean http?"),
        ("[serve]\nhttp = 8080", "line 2: serve.http: expected a string, not 8080"),
        ("[serve]\napps = 'some'", "line 2: serve.apps: expected one of auto, always, never, not some"),
        ("[serve]\ngrace = true", "line 2: serve.grace: expected a number of seconds, not True"),
        ("[serve]\nmax-threads = 0", "line 2: serve.max-threads: expected a whole number, 1 or more, not 0"),
        (
            "[serve]\nmax-memory = 'lots'",
            "line 2: serve.max-memory: expected bytes, or for example 512M or 2G, not lots",
        ),
        ("[serve]\nallow-host = 'x'", "line 2: serve.allow-host: expected a list of strings, not x"),
        ("[serve]\ninsecure = 1", "line 2: serve.insecure: expected true or false, not 1"),
        ("serve = 1", "line 1: serve: expected table, got whole number"),
        ("name = ", "is not valid TOML: Invalid value (at "),
        ("x = " + "[" * 100_000, "is not valid TOML: "),
        ('"a\\u202eb" = 1', "line 1: unknown key a\\u202eb; known keys: name"),
    ],
)
def test_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError) as caught:
        read(written_to(tmp_path, text))
    assert str(caught.value).removeprefix("mcpd.toml").lstrip(", ").startswith(said)
    if "is not valid TOML" not in said:
        assert "\n" not in str(caught.value)


def test_all_mistakes_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(written_to(tmp_path, "[serve]\nx = 1\n[tools]\nfolder = 3\n[apps]\ny = 2\n"))
    lines = [line.partition("mcpd.toml, ")[2] for line in str(caught.value).split("\n")]
    assert [line.partition(":")[0] for line in lines] == ["line 2", "line 4", "line 6"]


@pytest.mark.parametrize(("content", "said"), [(b"\xff", "is not UTF-8"), (b"#" * 1_100_000, "is larger than")])
def test_what_is_no_text(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "mcpd.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=said):
        read(str(path))


def test_the_lines_of_keys() -> None:
    text = "a = '''\nb = 1\n[t]\n'''\nb = 2\n[t.u]\n'c d' = 3\n[[v]]\nw.x = 4\n"
    assert line_of(text, ["b"]) == 5
    assert line_of(text, ["t", "u", "c d"]) == 7
    assert line_of(text, ["t", "u", "gone"]) == 6
    assert line_of(text, ["v", "w", "x"]) == 9
    assert line_of(text, ["nowhere"]) is None


# ------------------------------------------------------------------------------- for editors


def test_the_schema_is_the_one_that_ships() -> None:
    """Written by `.venv/bin/python tests/support/configuration_schema.py`."""
    assert Path(shipped_file()).read_text(encoding="utf-8") == written()


def test_the_schema_takes_what_is_read_and_refuses_what_is_not(tmp_path: Path) -> None:
    schema = json.loads(written())
    check = jsonschema_rs.validator_for(schema)
    assert check.is_valid(tomllib.loads(WHOLE))
    assert set(schema["properties"]["serve"]["properties"]) == set(serve_keys())
    for text in ("nam = 'x'", "name = 3", "[tools]\nfoldr = 'x'", "[serve]\nhttp = 1", "[serve]\napps = 'x'",
                 "[resources]\nmax-files = 0", "[serve]\nhttpp = ''"):  # fmt: skip
        members: Any = tomllib.loads(text)
        assert not check.is_valid(members), text
