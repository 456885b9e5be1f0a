"""`[docs]` of mcpd.toml: what it may say, and each mistake with its line; every profile that is named is there."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import jsonschema_rs
import msgspec
import pytest
from support.folders import write

from mcpd.errors import ConfigurationError
from mcpd.sources.configuration import read
from mcpd.sources.docs.source import index_file, profile_of
from mcpd.sources.docs.tools import shape_of
from mcpd.sources.docs.wording import wordings
from mcpd.sources.scaffold import shipped_file
from mcpd.sources.tables import PROFILES, DocsTable, ToolTable

WHOLE = """
[docs]
enabled = true
folder = "handbook"
title = "The handbook"
uri = "handbook://"
include = ["*.md"]
exclude = ["drafts/*"]
max-files = 10
max-bytes = 1000
index = "memory"
base-url = "https://x.example/docs/"

[docs.tools.search]
name = "find"
arguments = { query = "words", limit = { default = 3 } }
result = { hits = { of = "results", title = "title" } }

[docs.tools.command]
does = "look_up"
section = "reference/cli"
"""

WRONG = """
[docs]
folder = ""
max-file = 3
uri = "no slash"
base-url = "ftp://x/"

[docs.tools.search]
name = "a b"
nam = "x"

[docs.tools.search.arguments]
quer = "q"
limit = { defaul = 3 }
query = "two words"

[docs.tools.mine]
name = "x"

[docs.tools]
read_page = 3
"""


def test_all_that_it_may_say(tmp_path: Path) -> None:
    found = read(str(write(tmp_path, {"mcpd.toml": WHOLE}) / "mcpd.toml")).docs
    assert (found.folder, found.title, found.include, found.index) == ("handbook", "The handbook", ("*.md",), "memory")
    assert isinstance(found.tools, dict)
    assert found.tools["command"] == {"does": "look_up", "section": "reference/cli"}
    schema = json.loads(Path(shipped_file()).read_text(encoding="utf-8"))
    jsonschema_rs.validate(schema, tomllib.loads(WHOLE))
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(schema, {"docs": {"tools": {"search": {"arguments": {"limit": {"defaul": 3}}}}}})


def test_each_mistake_with_its_line(tmp_path: Path) -> None:
    path = write(tmp_path, {"mcpd.toml": WRONG}) / "mcpd.toml"
    with pytest.raises(ConfigurationError) as error:
        read(str(path))
    lines = [line.partition(", line ")[2] for line in str(error.value).splitlines()]
    assert [line[:64] for line in lines] == [
        "3: docs.folder: expected string of length >= 1",
        "4: unknown key docs.max-file; did you mean max-files?",
        "5: docs.uri: expected a URI prefix with a scheme other than ui t",
        "6: docs.base-url: expected an http or https URL that ends in /, ",
        "9: docs.tools.search.name: expected a name of up to 128 letters,",
        "10: unknown key docs.tools.search.nam; did you mean name?",
        "13: unknown key docs.tools.search.arguments.quer; did you mean q",
        "14: unknown key docs.tools.search.arguments.limit.defaul; did yo",
        "15: docs.tools.search.arguments.query: expected a name of up to ",
        "17: docs.tools.mine: unknown operation; add does = one of search",
        "21: docs.tools.read_page: expected a table such as [docs.tools.r",
    ]


def test_a_profile_that_is_not_there(tmp_path: Path) -> None:
    path = write(tmp_path, {"mcpd.toml": '[docs]\n\ntools = "terraform"\n'}) / "mcpd.toml"
    with pytest.raises(
        ConfigurationError, match=r"line 3: docs\.tools: unknown profile terraform; known profiles: terra"
    ):
        read(str(path))


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_can_be_used(name: str) -> None:
    table = msgspec.structs.replace(DocsTable(), tools=name)
    profile = profile_of(table)
    worded = wordings(msgspec.convert(profile.tools, dict[str, ToolTable]), "X")
    assert len({one.name for one in worded}) == len(worded)
    for one in worded:
        assert shape_of(one.does, one.result, name).kind


def test_where_the_index_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the user's cache, one for each folder; where there is no home, in memory."""
    assert index_file("memory", "/x", "/r") is None
    assert index_file("/a/b.sqlite", "/x", "/r") == "/a/b.sqlite"
    assert index_file("b.sqlite", "/x", "/r") == "/r/b.sqlite"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    one, other = index_file("disk", "/x", "/r"), index_file("disk", "/y", "/r")
    assert one
    assert other
    assert one != other
    assert one.startswith(str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert str(index_file("disk", "/x", "/r")).startswith(str(tmp_path / ".cache" / "mcpd"))
    monkeypatch.setenv("HOME", str(tmp_path / "nothing"))
    assert index_file("disk", "/x", "/r") is None
