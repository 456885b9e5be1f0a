"""`mcpd bundle`: what is in the file and what is not, what it needs, and that the same files give the same bytes."""

from __future__ import annotations

import base64
import json
import os
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Child

import mcpd
from mcpd.cli.bundle.manifest import Author, Launch, Manifest, ServerPart, checked, make_question, split_variables
from mcpd.cli.bundle.pack import BundleOptions, gather, make_bundle
from mcpd.cli.bundle.project import Selection, collect, distributions_of, ignored_here, local_files, read_project
from mcpd.cli.install.launch import Offers
from mcpd.client.targets.named import FileTarget
from mcpd.errors import ConfigurationError

PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 512, 256) + b"\x08\x06\0\0\0" + b"\0" * 4

SERVER = """
from mcpd import Server
import helper
server = Server("garden", version="1.2.0", title="The garden", instructions="Waters beds.\\nAnd more.")

@server.tool
def water(bed: str) -> str:
    "Water a bed."
    return helper.wet(bed)

@server.prompt
def ask(topic: str) -> str:
    "Ask."
    return f"Tell me of {topic}"

@server.prompt
def count(beds: int) -> str:
    "Count."
    return "x" * beds
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def garden(tmp_path: Path) -> Path:
    """A folder with a server in a file, and all that is not to be shown to others."""
    folder = tmp_path / "garden"
    (folder / "tool set" / "deep").mkdir(parents=True)
    files: dict[str, str | bytes] = {
        "server.py": SERVER,
        "helper.py": "import json\nfrom parts.soil import DRY\ndef wet(bed): return bed + DRY\n",
        "parts/soil.py": "DRY = '.'\n",
        "parts/.secret": "x",
        "unrelated.py": "import nowhere\n",
        ".env": "API_KEY=k",
        "icon.png": PNG,
    }
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


@pytest.fixture
def run(child: Child, tmp_path: Path) -> Run:
    def start(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            child.mcpd(*words),
            env=child.env | env,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )

    return start


def inside(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def test_a_file_and_what_it_imports(run: Run, garden: Path, tmp_path: Path) -> None:
    done = run(
        "bundle", "garden/server.py", "--env", "API_KEY", "--env", "DEPTH=3", "--author", "Ada", API_KEY="s3cret"
    )
    assert done.returncode == 0, done.stderr
    assert "started: The garden" not in done.stdout
    assert "tools (1): water" in done.stderr
    path = tmp_path / "garden-1.2.0.mcpb"
    assert f"garden-1.2.0.mcpb: {path.stat().st_size:,} bytes, 8 files" in done.stdout
    assert "parts/.secret  hidden" in done.stdout

    found = inside(path)
    own = {"src/server.py", "src/helper.py", "src/parts/soil.py", "src/icon.png"}
    assert set(found) == own | {"main.py", "manifest.json", "pyproject.toml", "icon.png"}
    assert list(found) == sorted(found)
    assert b"s3cret" not in path.read_bytes() + b"".join(found.values())

    manifest = json.loads(found["manifest.json"])
    assert manifest["manifest_version"] == "0.4"
    assert (manifest["name"], manifest["display_name"], manifest["version"]) == ("garden", "The garden", "1.2.0")
    assert manifest["author"] == {"name": "Ada"}
    assert manifest["icons"] == [{"src": "icon.png", "size": "512x256"}]
    assert manifest["server"]["type"] == "uv"
    assert manifest["server"]["entry_point"] == "main.py"
    assert manifest["server"]["mcp_config"]["args"] == ["run", "--directory", "${__dirname}", "main.py"]
    assert manifest["server"]["mcp_config"]["env"]["API_KEY"] == "${user_config.api_key}"
    assert manifest["tools"] == [{"name": "water", "description": "Water a bed."}]
    # One prompt has a text that holds for all; the other takes numbers only.
    (prompt,) = manifest["prompts"]
    assert (prompt["text"], prompt["arguments"]) == ("Tell me of ${arguments.topic}", ["topic"])
    assert manifest["prompts_generated"] is True
    assert manifest["user_config"]["api_key"]["sensitive"] is True
    assert manifest["user_config"]["api_key"]["required"] is True
    assert manifest["user_config"]["depth"]["default"] == "3"
    assert f'"mcpd-server=={mcpd.__version__}"' in found["pyproject.toml"].decode()


def test_data_beside_a_file_goes_in(run: Run, garden: Path, tmp_path: Path) -> None:
    """Also for the folder, if it is no server by itself; Python files that nobody imports do not."""
    for name, text in {
        "apps/bed.html": "<p>",
        "data/rows.csv": "1",
        "data/.hidden.csv": "2",
        "notes/a.txt": "3",
        "other/mcpd.toml": "",
        "other/apps/shed.html": "<p>",
    }.items():
        (garden / name).parent.mkdir(exist_ok=True, parents=True)
        (garden / name).write_text(text, encoding="utf-8")
    (garden / "server.py").write_text(
        SERVER.replace("return helper.wet(bed)", 'return open(__file__[:-9] + "data/rows.csv").read()')
        + "\nassert open(__file__[:-9] + 'data/rows.csv').read() == '1'\n",
        encoding="utf-8",
    )
    for target in ("garden/server.py", "garden"):
        done = run("bundle", target, "--exclude", "notes", "--include", "data/.hidden.csv", "-o", "x.mcpb")
        assert done.returncode == 0, done.stderr
        assert "tools (1): water" in done.stderr
        found = {name for name in inside(tmp_path / "x.mcpb") if name.startswith("src/")}
        assert found == {
            f"src/{name}"
            for name in ("server.py", "helper.py", "parts/soil.py", "icon.png", "apps/bed.html", "data/rows.csv")
        } | {"src/data/.hidden.csv"}
        assert "unrelated.py  not imported by the server; --include takes it" in done.stdout
        assert "notes/  excluded" in done.stdout
        assert "other/  another server; --include takes it" in done.stdout
    assert "server.py is the server of the bundle" in done.stderr

    (garden / "prompts").mkdir()
    done = run("bundle", "garden")
    assert done.returncode == 1
    assert "has the server server.py beside prompts/" in done.stderr
    (garden / "prompts").rmdir()
    (garden / "second.py").write_text("import mcpd", encoding="utf-8")
    assert "more than one server, second.py, server.py: name the file" in run("bundle", "garden").stderr


def test_a_file_in_the_home_folder_takes_only_modules(run: Run, garden: Path, tmp_path: Path) -> None:
    (garden / "deep").mkdir()
    (garden / "deep" / "letter.txt").write_text("private", encoding="utf-8")
    done = run("bundle", "garden/server.py", "--include", "icon.png", "-o", "x.mcpb", HOME=str(garden))
    assert done.returncode == 0, done.stderr
    assert "name data files with --include" in done.stderr
    assert {name for name in inside(tmp_path / "x.mcpb") if name.startswith("src/")} == {
        "src/server.py", "src/helper.py", "src/parts/soil.py", "src/icon.png"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("specifiers", "found"),
    [
        (">=3.11,<4", ">=3.11.0 <4.0.0"),
        ("~=3.11", ">=3.11.0 <4.0.0"),
        ("~=3.11.2", ">=3.11.2 <3.12.0"),
        ("==3.12.*", ">=3.12.0 <3.13.0"),
        ("==3.12", ">=3.12.0 <3.13.0"),
        ("==3.12.1", "=3.12.1"),
        (">= 3.10, !=3.12.0", ">=3.10.0"),
        ("", ">=3.11"),
    ],
)
def test_ranges_of_python_are_those_of_npm(tmp_path: Path, specifiers: str, found: str) -> None:
    """Hosts read the manifest's range with npm's semver, which knows no commas and no `~=`."""
    text = f'[project]\nname = "x"\nversion = "1.0.0"\nrequires-python = "{specifiers}"\n'
    (tmp_path / "pyproject.toml").write_text(text if specifiers else "", encoding="utf-8")
    (tmp_path / "x.py").write_text("", encoding="utf-8")
    gathered = gather(FileTarget(str(tmp_path / "x.py")))
    manifest = make_bundle(gathered, Offers(), BundleOptions()).manifest
    assert manifest.compatibility.runtimes == {"python": found}


def test_the_same_files_give_the_same_bytes(run: Run, garden: Path, tmp_path: Path) -> None:
    assert run("bundle", "garden/server.py", "-o", "one.mcpb").returncode == 0
    for path in garden.rglob("*"):
        os.utime(path, (10**9, 10**9))
        path.chmod(0o755)
    assert run("bundle", str(garden / "server.py"), "-o", "two.mcpb", TZ="Asia/Tokyo").returncode == 0
    assert (tmp_path / "one.mcpb").read_bytes() == (tmp_path / "two.mcpb").read_bytes()


def test_what_was_unpacked_starts_elsewhere(run: Run, tmp_path: Path, child: Child) -> None:
    """A folder that is a server, from `mcpd init`, as a bundle, in a place with a space in its name."""
    assert run("init", "plot").returncode == 0
    assert run("bundle", "plot", "--json", "-o", "plot.mcpb").returncode == 0
    place = tmp_path / "un packed"
    with zipfile.ZipFile(tmp_path / "plot.mcpb") as archive:
        archive.extractall(place)
    done = run("list", "--json", "--", sys.executable, str(place / "main.py"))
    assert done.returncode == 0, done.stderr
    manifest = json.loads((place / "manifest.json").read_text(encoding="utf-8"))
    listed = json.loads(done.stdout)
    assert {tool["name"] for tool in manifest["tools"]} == {tool["name"] for tool in listed["tools"]}


def test_a_server_that_does_not_start_is_not_written(run: Run, garden: Path, tmp_path: Path) -> None:
    (garden / "server.py").write_text("import sys\nsys.exit('no soil')\n", encoding="utf-8")
    done = run("bundle", "garden/server.py")
    assert done.returncode == 1
    assert "it does not start" in done.stderr
    assert "no soil" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("*.mcpb"))
    said = json.loads(run("bundle", "--json", "garden/server.py").stdout)
    assert said["written"] is None


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "there is no server here"),
        (["https://example.com/mcp"], "has no files to bundle"),
        (["garden/server.py", "--env", "API_KEY=x"], "do not put a secret into a file for others"),
        (["garden/server.py", "--env", "1X"], "--env 1X"),
        (["garden/server.py", "--icon", "garden/helper.py"], "PNG"),
        (["garden/server.py", "-o", "nowhere/x.mcpb"], "nowhere/x.mcpb cannot be written"),
        (["garden/server.py", "--version", "1.x"], ""),
    ],
)
def test_mistakes(run: Run, garden: Path, tmp_path: Path, words: list[str], text: str) -> None:
    done = run("bundle", *words)
    assert done.returncode == (1 if text else 0)
    assert (text or "using 1.0.0 instead") in done.stderr
    assert "Traceback" not in done.stderr
    assert len(list(tmp_path.glob("**/*.mcpb"))) == (0 if text else 1)


def test_a_device_is_not_replaced_by_a_bundle(run: Run, garden: Path, tmp_path: Path) -> None:
    """As root, `-o /dev/null` would otherwise end /dev/null."""
    os.mkfifo(tmp_path / "pipe")
    done = run("bundle", "garden/server.py", "-o", "pipe")
    assert done.returncode == 1
    assert "pipe cannot be written: not a regular file" in done.stderr
    assert (tmp_path / "pipe").is_fifo()


# ------------------------------------------------------------------------------------------- parts


def test_what_is_left_out(tmp_path: Path) -> None:
    names = [
        "server.py", "tools/a.py", "data/notes.md", "token.py", "secrets.md",
        ".git/config", ".hidden", "venv/pyvenv.cfg", "venv/bin/python", "node_modules/x.js", "tools/__pycache__/a.pyc",
        "server.pem", "id_rsa", "secrets.toml", "my-credentials-2.json", "old.mcpb", "drafts/x.md", "big.bin",
    ]  # fmt: skip
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x", encoding="utf-8")
    (tmp_path / "deploy").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n", encoding="utf-8")
    (tmp_path / ".mcpbignore").write_text("# more\n\ndrafts/\n*.bin\n", encoding="utf-8")
    (tmp_path / "linked").symlink_to("/etc")
    (tmp_path / "passwd").symlink_to("/etc/passwd")
    (tmp_path / "same.md").symlink_to("data/notes.md")

    found = collect(str(tmp_path), Selection(ignored=ignored_here(str(tmp_path))))
    assert set(found.files) == {"server.py", "tools/a.py", "data/notes.md", "token.py", "secrets.md", "same.md"}
    why = found.left_out
    assert why["venv/"] == "a virtual environment"
    assert why["deploy"] == "a private key"
    assert why["drafts/"] == why["big.bin"] == "named in .mcpbignore"
    assert why["passwd"] == "a link to a file elsewhere"
    assert {why[name] for name in ("server.pem", "id_rsa", "secrets.toml", "my-credentials-2.json")} == {
        "may be a secret"
    }


def test_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcpd.cli.bundle.project.MAX_BYTES", 3)
    (tmp_path / "a.txt").write_text("four", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"\.mcpbignore"):
        collect(str(tmp_path))


def test_imports(tmp_path: Path) -> None:
    (tmp_path / "pack" / "in").mkdir(parents=True)
    (tmp_path / "pack" / "__init__.py").write_text("from . import other\nimport far", encoding="utf-8")
    (tmp_path / "pack" / "other.py").write_text("import yaml", encoding="utf-8")
    (tmp_path / "far.py").write_text("def f():\n    import os, msgspec, no_such_thing\n", encoding="utf-8")
    (tmp_path / "broken.py").write_text("def (", encoding="utf-8")
    (tmp_path / "server.py").write_text("import pack.other\nfrom broken import x\nimport json", encoding="utf-8")
    (tmp_path / "not_imported.py").write_text("import x", encoding="utf-8")
    found = local_files(str(tmp_path / "server.py"))
    assert [os.path.basename(path) for path in found] == ["broken.py", "far.py", "pack", "server.py"]
    packages = distributions_of([str(tmp_path / "far.py"), str(tmp_path / "pack" / "other.py")], ["far"])
    assert packages["yaml"] == ["PyYAML"]
    assert packages["msgspec"] == ["msgspec"]
    assert packages["no_such_thing"] == []
    assert "os" not in packages


def test_what_a_project_says(tmp_path: Path) -> None:
    assert read_project(str(tmp_path)).dependencies is None
    (tmp_path / "requirements.txt").write_text("-r more.txt\nhttpx>=0.28  # to ask\n\n# no\nrich\n", encoding="utf-8")
    assert read_project(str(tmp_path)).dependencies == ("httpx>=0.28", "rich")
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "x"\nversion = "2"\ndependencies = ["anyio"]\nauthors = [{name = "Ada", email = "a@b.cd"}]\n'
        '[project.urls]\nRepository = "https://github.com/a/b"\n',
        encoding="utf-8",
    )
    found = read_project(str(tmp_path))
    assert (found.dependencies, found.author.name, found.urls["repository"]) == (
        ("anyio",),
        "Ada",
        "https://github.com/a/b",
    )
    script = tmp_path / "s.py"
    head = '# /// script\n# requires-python = ">=3.12"\n# dependencies = [\n#   "numpy",\n# ]\n# ///\nimport numpy\n'
    script.write_text(head, encoding="utf-8")
    found = read_project(str(tmp_path), str(script))
    assert (found.dependencies, found.requires_python, found.version) == (("numpy",), ">=3.12", "2")
    script.write_text("# /// script\n# dependencies = [\n# ///\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="script"):
        read_project(str(tmp_path), str(script))


def test_packages_of_a_bundle(run: Run, garden: Path) -> None:
    (garden / "server.py").write_text(f"import yaml, hypothesis\n{SERVER}", encoding="utf-8")
    said = json.loads(run("bundle", "--json", "garden/server.py").stdout)
    assert [each.partition("==")[0] for each in said["requirements"]] == ["mcpd-server", "hypothesis", "PyYAML"]
    (garden / "requirements.txt").write_text("pyyaml\nmcpd-server[apps]>=0.1\n", encoding="utf-8")
    said = json.loads(run("bundle", "--json", "garden/server.py").stdout)
    assert said["requirements"] == ["pyyaml", "mcpd-server[apps]>=0.1"]
    assert (
        said["warnings"][0]
        == "hypothesis is imported, but hypothesis is not among the dependencies in requirements.txt"
    )


def test_questions(tmp_path: Path) -> None:
    here = {"ROOT": str(tmp_path), "FAST": "true", "API_TOKEN": str(tmp_path)}
    variables = split_variables(["ROOT", "FAST", "API_TOKEN", "LEVEL=info"])
    found = {name: make_question(name, value, here.get(name, "")) for name, value in variables.items()}
    kinds: dict[str, Any] = {name: each.type for name, each in found.items()}
    assert kinds == {"ROOT": "directory", "FAST": "boolean", "API_TOKEN": "string", "LEVEL": "string"}
    assert str(tmp_path) not in repr(found)


@pytest.mark.parametrize(
    ("how", "member"),
    [({"version": "one"}, "version"), ({"name": "a b"}, "name"), ({"homepage": "example.com"}, "homepage"),
     ({"author": Author(name="x", email="nobody")}, "email"), ({"description": ""}, "description")],
)  # fmt: skip
def test_a_manifest_that_is_not_valid_is_not_written(how: dict[str, Any], member: str) -> None:
    server = ServerPart(type="uv", entry_point="main.py", mcp_config=Launch(command="uv"))
    good: dict[str, Any] = {
        "manifest_version": "0.4", "name": "x", "version": "1.0.0", "description": "d", "author": Author(name="A"),
        "server": server,
    }  # fmt: skip
    checked(Manifest(**good))
    with pytest.raises(ConfigurationError, match=member):
        checked(Manifest(**good | how))


def test_an_icon_of_the_server_itself(run: Run, garden: Path) -> None:
    (garden / "icon.png").unlink()
    url = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    text = SERVER.replace('title="The garden"', f'icons=[Icon(src="{url}")]').replace("Server\n", "Icon, Server\n", 1)
    (garden / "server.py").write_text(text, encoding="utf-8")
    done = run("bundle", "--json", "garden/server.py")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["manifest"]["icons"] == [{"src": "icon.png", "size": "512x256"}]


def test_a_folder_that_says_no_name(run: Run, tmp_path: Path) -> None:
    (tmp_path / "shed" / "tools").mkdir(parents=True)
    (tmp_path / "shed" / "tools" / "rake.py").write_text("def rake(bed: str) -> str:\n    return bed\n")
    done = run("bundle", "--json", "shed")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["manifest"]["name"], said["manifest"].get("display_name", "")) == ("shed", "")
    with zipfile.ZipFile(tmp_path / said["written"]) as archive:
        archive.extractall(tmp_path / "elsewhere")
    done = run("list", "--json", "--", sys.executable, str(tmp_path / "elsewhere" / "main.py"))
    assert json.loads(done.stdout)["server"]["name"] == "shed"


def test_what_is_said_of_files_names_their_author_s(run: Run, tmp_path: Path) -> None:
    """Not those that were unpacked for the try: of a server that does not start, and of one with a file left out."""
    (tmp_path / "shed" / "tools").mkdir(parents=True)
    (tmp_path / "shed" / "tools" / "rake.py").write_text("def rake(bed: str) -> str:\n    return bed\n")
    (tmp_path / "shed" / "tools" / "bad.py").write_text("def bad(\n")
    done = run("bundle", "shed")
    assert done.returncode == 0, done.stderr
    assert "warning: stderr: ERROR mcpd: tools/bad.py, line 1" in done.stderr

    (tmp_path / "shed" / "mcpd.toml").write_text("[server\n")
    (tmp_path / "none.py").write_text("x = 1\n")
    for target, named in (
        ("shed", "shed/mcpd.toml is not valid TOML"),
        ("none.py", "none.py: it has no server"),
    ):
        done = run("bundle", target)
        assert done.returncode == 1
        assert f"stderr: mcpd: {tmp_path}/{named}" in done.stderr
        assert "mcpd-bundle-" not in done.stderr


def test_documents_need_more_of_us(run: Run, tmp_path: Path) -> None:
    assert run("init", "plot").returncode == 0
    (tmp_path / "plot" / "docs").mkdir()
    (tmp_path / "plot" / "docs" / "beds.md").write_text("# Beds\n", encoding="utf-8")
    done = run("bundle", "--json", "plot")
    assert done.returncode == 0, done.stderr
    (needed, *_) = json.loads(done.stdout)["requirements"]
    assert needed.partition("==")[0].endswith("docs]")
