"""`mcpd publish-info`: server.json as the registry takes it, and what it would refuse."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from conftest import REPOSITORY, Child

from mcpd.cli.bundle.server_json import SCHEMA, ServerJson, bundle_package, checked, pypi_package, remote, shortened
from mcpd.errors import ConfigurationError

SERVER = """
from mcpd import Server
server = Server("garden", version="1.2.0", title="The garden", instructions="Waters beds.")

@server.tool
def water(bed: str) -> str:
    "Water a bed."
    return bed
"""
PROJECT = """
[project]
name = "garden-mcp"
version = "1.3.0"
description = "Waters beds, and looks after them when nobody is there. It knows of soil, of rain, and of the full moon."

[project.scripts]
garden-mcp = "server:main"

[project.urls]
Repository = "https://github.com/you/garden.git"
Homepage = "https://example.com"
"""
RELEASE = "https://github.com/you/garden/releases/download/v1.3.0/garden.mcpb"

OFFICIAL = REPOSITORY / ".tools" / "schema" / "skillsaw" / "schemas" / "mcp_registry" / "v2025_12_11"
OFFICIAL_SHA256 = "3fba09590c99f61735d234822279f4223fab9e300c0a81e81c91ab62a4114de0"

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def official() -> Any:
    """The schema as the registry has published it, with the formats of texts."""
    path = OFFICIAL / "server.schema.json"
    if not path.exists():
        pytest.skip("needs the schema of the registry: make setup-test gets it")
    data = path.read_bytes()
    assert hashlib.sha256(data).hexdigest() == OFFICIAL_SHA256
    schema = json.loads(data)
    assert schema["$id"] == SCHEMA
    return jsonschema_rs.Draft7Validator(schema, validate_formats=True)


@pytest.fixture
def run(child: Child, tmp_path: Path) -> Run:
    (tmp_path / "server.py").write_text(SERVER, encoding="utf-8")

    def start(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            child.mcpd("publish-info", "server.py", *words),
            env=child.env, cwd=tmp_path, capture_output=True, text=True, timeout=90, check=False,
        )  # fmt: skip

    return start


def test_of_a_package(run: Run, official: Any, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    done = run("--name", "io.github.you/garden", "--env", "API_KEY", "--env", "LEVEL=info")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "wrote server.json: io.github.you/garden 1.3.0\n"
    assert "mcp-name: io.github.you/garden" in done.stderr
    said = json.loads((tmp_path / "server.json").read_text(encoding="utf-8"))
    assert said == {
        "$schema": SCHEMA,
        "name": "io.github.you/garden",
        "title": "The garden",
        "description": "Waters beds, and looks after them when nobody is there.",
        "version": "1.3.0",
        "websiteUrl": "https://example.com",
        "repository": {"url": "https://github.com/you/garden", "source": "github"},
        "packages": [
            {
                "registryType": "pypi",
                "identifier": "garden-mcp",
                "version": "1.3.0",
                "runtimeHint": "uvx",
                "transport": {"type": "stdio"},
                "environmentVariables": [
                    {"name": "API_KEY", "description": "The variable API_KEY of the server.", "isRequired": True,
                     "isSecret": True},
                    {"name": "LEVEL", "description": "The variable LEVEL of the server.", "default": "info"},
                ],
            }
        ],
    }  # fmt: skip
    official.validate(said)
    (tmp_path / "README.md").write_text("<!-- mcp-name: io.github.you/garden -->", encoding="utf-8")
    assert "warning" not in run("--name", "io.github.you/garden").stderr


def test_of_a_bundle_and_of_a_server_that_runs(run: Run, official: Any, tmp_path: Path) -> None:
    (tmp_path / "garden.mcpb").write_bytes(b"zip")
    words = ["--bundle", "garden.mcpb", "--bundle-url", RELEASE, "--remote", "https://example.com/mcp", "-o", "-"]
    done = run("--name", "com.example/garden", *words)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    official.validate(said)
    (package,) = said["packages"]
    assert package == {
        "registryType": "mcpb",
        "identifier": RELEASE,
        "fileSha256": hashlib.sha256(b"zip").hexdigest(),
        "transport": {"type": "stdio"},
    }
    assert said["remotes"] == [{"type": "streamable-http", "url": "https://example.com/mcp"}]
    assert said["version"] == "1.2.0"
    assert not (tmp_path / "server.json").exists()


@pytest.mark.parametrize(
    ("words", "text", "code"),
    [
        (["--name", "garden", "--pypi", "g"], "must be NAMESPACE/NAME", 1),
        (["--name", "a/b"], "server.json needs a package or a URL", 1),
        (["--name", "a/b", "--pypi", "g", "--description", "d" * 101], "101 characters", 1),
        (["--name", "a/b", "--pypi", "g", "--version", ">=1.0"], "is a range", 1),
        (["--name", "a/b", "--pypi", "g==latest"], "is a range", 1),
        (["--name", "a/b", "--pypi", "g", "--env", "API_KEY=k"], "do not put a secret into a file for others", 1),
        (["--name", "a/b", "--remote", "http://localhost:8080/mcp"], "only https URLs that everybody can reach", 1),
        (["--name", "a/b", "--bundle", "g.mcpb"], "require each other", 2),
        (["--name", "a/b", "--bundle", "g.mcpb", "--bundle-url", RELEASE], "g.mcpb: No such file", 1),
        (["--pypi", "g"], "--name", 2),
    ],
)
def test_what_the_registry_would_refuse(run: Run, tmp_path: Path, words: list[str], text: str, code: int) -> None:
    done = run(*words)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False)
    assert text in done.stderr.splitlines()[-1]
    assert not (tmp_path / "server.json").exists()


@pytest.mark.parametrize("url", ["https://127.0.0.1/mcp", "https://u:p@example.com/mcp", "ftp://example.com", "mcp"])
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        remote(url)
    assert "u:p" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://github.com/a/releases/x.mcpb", "https://example.com/releases/x.mcpb",
                                 "https://github.com/a/b/releases/download/v1/x.zip"])  # fmt: skip
def test_bundles_that_are_not_released(url: str) -> None:
    with pytest.raises(ConfigurationError, match="registry"):
        bundle_package(url, "0" * 64)


def test_members_are_held_to_the_schema() -> None:
    good: dict[str, Any] = {
        "schema": SCHEMA, "name": "a/b", "description": "d", "version": "1.0.0", "packages": (pypi_package("g", "1"),),
    }  # fmt: skip
    assert json.loads(checked(ServerJson(**good)))["packages"][0]["version"] == "1"
    for bad in ({"name": "a/b/c"}, {"title": "t" * 101}, {"version": ""}, {"description": ""}, {"version": "1.x"}):
        with pytest.raises(ConfigurationError):
            checked(ServerJson(**good | bad))


WHOLE: dict[str, Any] = {
    "$schema": SCHEMA,
    "name": "io.github.you/garden",
    "title": "The garden",
    "description": "Waters beds.",
    "version": "1.3.0",
    "websiteUrl": "https://example.com",
    "repository": {"url": "https://github.com/you/garden", "source": "github"},
    "packages": [
        {
            "registryType": "pypi",
            "identifier": "garden-mcp",
            "version": "1.3.0",
            "runtimeHint": "uvx",
            "fileSha256": "0" * 64,
            "transport": {"type": "stdio"},
            "environmentVariables": [{"name": "API_KEY", "isRequired": True, "isSecret": True, "default": "x"}],
        }
    ],
    "remotes": [{"type": "streamable-http", "url": "https://example.com/mcp"}],
}
VALUES: tuple[Any, ...] = ("", "x" * 101, "x" * 256, "a/b/c", "nothing: of this", 1, True, None, [], {}, ["x"])


def test_nothing_is_written_that_the_registrys_schema_refuses(official: Any) -> None:
    """Each member in turn is left out, and is each of these values: it is refused, or what is written is valid."""
    official.validate(WHOLE)
    assert json.loads(checked(msgspec.convert(WHOLE, ServerJson))) == WHOLE
    refused = 0
    for path in paths(WHOLE):
        for bad in (*map(json.dumps, VALUES), ""):
            changed = with_member(path, bad)
            try:
                written = checked(msgspec.convert(changed, ServerJson))
            except (ConfigurationError, msgspec.ValidationError):
                refused += not official.is_valid(changed)
            else:
                official.validate(json.loads(written))
    assert refused > 200


def paths(value: Any, *before: Any) -> list[tuple[Any, ...]]:
    """The way to each member of a value, and of what is in it."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [way for key, held in members for way in ((*before, key), *paths(held, *before, key))]


def with_member(path: tuple[Any, ...], text: str) -> Any:
    """The whole file with another value there; "" for none."""
    whole = json.loads(json.dumps(WHOLE))
    at = whole
    for key in path[:-1]:
        at = at[key]
    if text:
        at[path[-1]] = json.loads(text)
    else:
        del at[path[-1]]
    return whole


def test_long_descriptions_are_cut_at_words() -> None:
    assert shortened("word " * 30) == ("word " * 19).strip() + "…"
    assert len(shortened("x" * 300)) == 100
    assert shortened(" a\n b ") == "a b"
