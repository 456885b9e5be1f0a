"""The repository keeps its own rules: what is in the repository, what is in a wheel, what the test frame catches."""

from __future__ import annotations

import ast
import gc
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from conftest import Child
from support.import_graph import circles, import_graph
from support.sleeps import ALLOWED, sleeps
from support.source_code import parsed
from support.wires import initialize

import mcpd

REPOSITORY = Path(__file__).resolve().parent.parent


def tracked(*patterns: str) -> list[Path]:
    """The files in git, without those that someone has deleted and not yet committed."""
    if not (REPOSITORY / ".git").exists():
        pytest.skip("needs git: this is not a checkout")
    done = subprocess.run(
        ["git", "ls-files", "-z", "--", *patterns], cwd=REPOSITORY, capture_output=True, check=True, text=True
    )
    return [path for name in done.stdout.split("\0") if name and (path := REPOSITORY / name).is_file()]


@pytest.fixture(scope="module")
def code() -> dict[Path, list[ast.AST]]:
    """The nodes of each module of the package, read once for all tests of this file."""
    gc.disable()
    try:
        return {path: list(ast.walk(parsed(path))) for path in tracked("mcpd/*.py")}
    finally:
        gc.freeze()  # a million objects, none of which is garbage
        gc.enable()


def lines_with(pattern: re.Pattern[str], files: list[Path]) -> list[str]:
    found = []
    for path in files:
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if pattern.search(line):
                found.append(f"{path.relative_to(REPOSITORY)}:{number}: {line.strip()[:120]}")
    return found


# ------------------------------------------------------------------------------ what is in git


def test_no_file_names_a_path_of_one_machine() -> None:
    # Put together here, or this file would be the first one found.
    places = ["/work" + "/", "/tmp/" + "w/", "/root" + "/", str(REPOSITORY.parent) + "/", str(Path.home()) + "/."]
    found = lines_with(re.compile("|".join(re.escape(place) for place in places if place != "//")), tracked())
    assert not found, "\n".join(found)


def test_lock_files_carry_no_download_addresses() -> None:
    locks = tracked("*package-lock.json", "*.lock")
    assert len(locks) >= 2
    for path in locks:
        if path.suffix == ".json":
            packages = json.loads(path.read_text(encoding="utf-8"))["packages"]
            assert not [name for name, entry in packages.items() if "resolved" in entry], path
            assert all("integrity" in entry for name, entry in packages.items() if name), path
    hosts = ["registry." + "npmjs", "py" + "pi.org", "files." + "pythonhosted", "deb." + "debian.org"]
    found = lines_with(re.compile("|".join(map(re.escape, hosts))), tracked())
    assert not found, "\n".join(found)


def test_every_folder_with_a_lock_file_keeps_it_so() -> None:
    for path in tracked("*package-lock.json"):
        assert "omit-lockfile-registry-resolved=true" in (path.parent / ".npmrc").read_text(encoding="utf-8")


def test_nothing_is_left_to_be_done_later() -> None:
    """No such note without the number of an issue."""
    pattern = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b(?!.*#\d)")
    found = lines_with(pattern, tracked("*.py", "*.mjs", "*.toml", "Makefile", ":!tests/test_house.py"))
    assert not found, "\n".join(found)


def test_versions_are_compared_in_two_places_only() -> None:
    """D2: versions/ is data, and session.py alone knows where a version comes from."""
    compared = re.compile(r"""(<=?|>=?|==|!=|\bin)\s*[\[({]*["']20\d\d-\d\d-\d\d""")
    files = tracked("mcpd/*.py", ":!mcpd/protocol/versions/", ":!mcpd/protocol/session.py")
    found = lines_with(compared, files)
    assert not found, "\n".join(found)


ERA_NAMES = {"is_modern", "is_legacy", "MODERN", "LEGACY", "NEWEST_LEGACY"}
ERAS_ARE_KNOWN = {
    "mcpd/client/client.py": 2,  # the property that tells a program
    "mcpd/client/eras.py": 5,  # how a client does things: chosen here
    "mcpd/client/messages.py": 5,  # what a server may answer, and what that means
    "mcpd/client/session.py": 1,  # the probe is in the newest version
    "mcpd/server/context/asking.py": 1,  # how a client is asked: chosen here
    "mcpd/cli/doctor/dialogue.py": 2,  # in which versions a server is greeted, and how
    "mcpd/protocol/envelope.py": 1,  # what a request may name
    "mcpd/server/http/app.py": 1,  # which endpoint answers: chosen here
    "mcpd/server/http/legacy.py": 1,  # what a header may name
    "mcpd/server/http/modern.py": 1,  # what a connection begins with
    "mcpd/server/http/sealed_sessions.py": 1,  # what an id may name, by number
    "mcpd/server/extensions/events/methods.py": 1,  # which methods of events a version has
    "mcpd/server/extensions/tasks/methods.py": 5,  # which methods of tasks a version has, and their form: chosen here
    "mcpd/server/extensions/tasks/record.py": 1,  # what is stored is in the newest version
    "mcpd/server/extensions/tasks/extension.py": 1,  # tasks of mounted servers have the newest form only
    "mcpd/sources/mounts/relay.py": 12,  # each side of a mount has an era
    "mcpd/sources/mounts/shapes.py": 15,
    "mcpd/sources/mounts/upstream.py": 1,  # a request of 2026-07-28 over HTTP has a connection of its own
    "mcpd/sources/mounts/opening.py": 2,  # a mount may be told to speak the newest version
    "mcpd/apps/preview/session.py": 1,  # what the page shows of a connection
}
"""How often a file may name an era, and why, besides versions/ and session.py."""


def test_an_era_is_chosen_once(code: dict[Path, list[ast.AST]]) -> None:
    """D2: what two eras do differently is two classes or two endpoints; nothing asks in between.

    A new line here is a question to be asked: can the choice that is already made answer it?
    """
    named: dict[str, int] = {}
    for path in tracked("mcpd/*.py", ":!mcpd/protocol/versions/", ":!mcpd/protocol/session.py"):
        names = (getattr(node, "attr", getattr(node, "id", getattr(node, "name", ""))) for node in code[path])
        if count := sum(name in ERA_NAMES for name in names):
            named[str(path.relative_to(REPOSITORY))] = count
    assert named == ERAS_ARE_KNOWN


WORDS_OF_APPS = re.compile(
    r"(?i:\w*apps\w*)|\b(ui|ui_\w+|\w+_ui)\b|\bViews?\b|ui://|mcp-app|\biframes?\b|\bstrict_(model_)?list\b"
)
IMPORT_OF_APPS = re.compile(r"(?m)^ *from mcpd\.apps\..* import ")
# The extension, its host, what installs and bundles servers, the commands that show and try apps, the table of these
# commands, and `Server`, whose methods hand over to the extension.
APPS_ARE_WHAT_IT_IS_ABOUT = (
    ":!mcpd/server/app.py",
    ":!mcpd/server/extensions/", ":!mcpd/apps/", ":!mcpd/cli/install/", ":!mcpd/cli/bundle/",
    ":!mcpd/cli/commands/apps.py", ":!mcpd/cli/commands/apps.py", ":!mcpd/cli/group.py",
)  # fmt: skip
SEAMED = ("server/", "registry/", "handlers/", "dispatcher/", "protocol/session.py", "cli/", "context/")
"""What knows extensions by their interface only."""


def test_no_extension_is_known_but_by_the_table() -> None:
    """D12: what a server is made of, what serves it and what its command line reads name no extension."""
    named = {
        path.relative_to(REPOSITORY).as_posix()
        for path in tracked("mcpd/*.py", *APPS_ARE_WHAT_IT_IS_ABOUT)
        if WORDS_OF_APPS.search(IMPORT_OF_APPS.sub("", path.read_text(encoding="utf-8")))
    }
    assert "mcpd/__init__.py" in named
    assert not [name for name in named if name.startswith(tuple(f"mcpd/{place}" for place in SEAMED))]


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ('server.add_entry(ui="chart")', True),
        ("from .ui.extension import AppsExtension", True),
        ("self.has_apps(ctx)", True),
        ("strict_list=True", True),
        ("for clients with a View", True),
        ("app = HttpApp(view)", False),
        ("ValuesView, memoryview, build_ui2", False),
    ],
)
def test_what_counts_as_a_word_of_apps(text: str, is_found: bool) -> None:
    assert (WORDS_OF_APPS.search(text) is not None) is is_found


def test_what_developers_are_sent_to_is_there() -> None:
    """Each file and folder that DEVELOPERS.md names, from the top of the repository or of the package."""
    named = re.findall(
        r"`([\w./-]+(?:/|\.py|\.md|\.toml))`", (REPOSITORY / "DEVELOPERS.md").read_text(encoding="utf-8")
    )
    folder, missing = REPOSITORY, []
    for name in named:
        found = [home / name for home in (REPOSITORY, REPOSITORY / "mcpd", folder) if (home / name).exists()]
        if not found and "YYYY" not in name:
            missing.append(name)
        elif found and name.endswith("/"):
            folder = found[0]  # what follows in its row
    assert len(named) > 50
    assert not missing, missing


def test_what_tests_share_is_in_support() -> None:
    """At the top of `tests/` are tests alone, and who needs a module of `tests/support/` takes it from there."""
    flat = [
        path.name for path in (REPOSITORY / "tests").glob("*.py") if not path.name.startswith(("test_", "conftest"))
    ]
    assert not flat, flat
    names = "|".join(path.stem for path in (REPOSITORY / "tests" / "support").glob("*.py"))
    found = lines_with(re.compile(rf"^\s*(from|import) ({names})\b"), tracked("tests/*.py", "conformance/*.py"))
    assert not found, "\n".join(found)


def test_tests_sleep_only_where_nothing_can_be_awaited() -> None:
    files = [*(REPOSITORY / "tests").rglob("*.py"), *(REPOSITORY / "conformance").rglob("*.py")]
    found = {
        path.relative_to(REPOSITORY).as_posix(): number
        for path in files
        if not {"node_modules", "bench"} & set(path.parts)
        and "sleep" in (text := path.read_text(encoding="utf-8"))
        and (number := sleeps(parsed(text)))
    }
    assert "tests/support/clock.py" in found
    assert found == {name: number for name, (number, _) in ALLOWED.items()}, "await an event; see support/clock.py"
    assert sum(found.values()) <= 42


def test_module_names_say_what_lives_there() -> None:
    """No utils, helpers, managers, commons."""
    vague = re.compile(r"(^|_)(utils?|helpers?|managers?|common|misc)($|_)")
    found = [path.name for path in tracked("mcpd/*.py", "tests/*.py") if vague.search(path.stem)]
    assert not found


def test_files_stay_small(code: dict[Path, list[ast.AST]]) -> None:
    """A module is a topic: no file has over 700 lines, no function over 60."""
    sizes = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in code}
    assert not {path.name: size for path, size in sizes.items() if size > 700}
    long = [
        f"{path.name}: {node.name}"
        for path, nodes in code.items()
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (node.end_lineno or 0) - node.lineno >= 60
    ]
    assert not long


def test_functions_have_steps(code: dict[Path, list[ast.AST]]) -> None:
    """One line in 25 inside all functions together is blank. (h11 has one in 16, Starlette in 12, websockets in 7.)"""
    blank = whole = 0
    for path, nodes in code.items():
        lines = path.read_text(encoding="utf-8").splitlines()
        for node in nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
                body = lines[first.lineno - 1 : node.end_lineno]
                whole += len(body)
                blank += sum(not line.strip() for line in body)
    assert whole > 10_000
    assert blank / whole >= 0.04, f"{blank / whole:.1%} of the lines inside functions are blank"


def test_no_module_imports_one_that_imports_it() -> None:
    """No circles, by imports inside functions or for types neither: each module can be read after those below it."""
    found = circles(import_graph(REPOSITORY / "mcpd", for_types=True))
    assert not found, found


# ---------------------------------------------------------------------------- what is in a wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """A wheel built from a copy of the checkout."""
    copy = tmp_path_factory.mktemp("checkout")
    for path in tracked("mcpd", "assets", "pyproject.toml", "LICENSE", "README.md"):
        target = copy / path.relative_to(REPOSITORY)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    # Without isolation nothing is fetched: the build backend is among the test tools.
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check",
         "--no-build-isolation", "--no-deps", "--wheel-dir", str(copy / "out"), str(copy)],
        check=True, capture_output=True, timeout=100,
    )  # fmt: skip
    (built,) = (copy / "out").glob("*.whl")
    return zipfile.ZipFile(built)


@pytest.mark.slow
def test_a_wheel_has_the_package_its_assets_and_its_license(wheel: zipfile.ZipFile) -> None:
    """The distribution is mcpd-server, the command mcpd; all of assets/ ships inside."""
    names = set(wheel.namelist())
    assert {"mcpd/__init__.py", "mcpd/py.typed", "mcpd/errors.py"} <= names
    for asset in tracked("assets"):
        inside = f"mcpd/_assets/{asset.relative_to(REPOSITORY / 'assets').as_posix()}"
        assert wheel.read(inside) == asset.read_bytes()
    outside = {name.split("/")[0] for name in names}
    assert outside == {"mcpd", f"mcpd_server-{mcpd.__version__}.dist-info"}
    info = f"mcpd_server-{mcpd.__version__}.dist-info"
    metadata = wheel.read(f"{info}/METADATA").decode()
    assert "Name: mcpd-server\n" in metadata
    assert "License-Expression: Apache-2.0\n" in metadata
    points = wheel.read(f"{info}/entry_points.txt").decode()
    assert "mcpd = mcpd.cli:main" in points
    assert "[pytest11]\nmcpd = mcpd.testing.pytest_plugin" in points
    assert wheel.read(f"{info}/licenses/LICENSE") == (REPOSITORY / "LICENSE").read_bytes()


def closure(*roots: str) -> set[str]:
    """These distributions and all that they need here, without extras."""
    from importlib.metadata import requires

    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    found: set[str] = set()
    queue = list(roots)
    while queue:
        name = canonicalize_name(queue.pop())
        if name not in found:
            found.add(name)
            needs = [Requirement(line) for line in requires(name) or ()]
            queue += [need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    return found


class Installed(NamedTuple):
    """A fresh environment with mcpd's wheel and what that needs, and nothing else."""

    command: Path
    packages: Path
    env: dict[str, str]


@pytest.fixture(scope="module")
def installed(wheel: zipfile.ZipFile, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Made without a network: the dependencies are copied from the environment that runs this."""
    from importlib.metadata import distribution

    place = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True, timeout=100)
    (packages,) = place.glob("lib/python*/site-packages")
    needed = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    for name in closure(*(re.split(r"[<>=]", one)[0] for one in needed)):
        for file in distribution(name).files or ():
            if ".." not in file.parts and file.suffix != ".pyc":
                (packages / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(str(file.locate()), packages / file)
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python"), "install", "--quiet", "--no-index",
         "--no-deps", "--no-compile", "--disable-pip-version-check", str(wheel.filename)],
        check=True, capture_output=True, timeout=100,
    )  # fmt: skip
    env = {"PATH": os.defpath, "PYTHONDONTWRITEBYTECODE": "1"}
    return Installed(place / "bin" / "mcpd", packages, env)


WITHOUT_EXTRAS = [
    (["serve", "--http", "127.0.0.1:0"], "http"),
    (["serve", "--http", "127.0.0.1:0", "--issuer", "https://issuer.example"], "auth|http"),
    (["serve", "--ws", "127.0.0.1:0", "--issuer", "https://issuer.example"], "auth|http"),
    (["serve", "--http", "127.0.0.1:0", "--auth-server", "dev"], "auth|http"),
    (["serve", "--http", "127.0.0.1:0", "--backplane", "redis://127.0.0.1:1"], "redis|http"),
    (["serve", "--ws", "127.0.0.1:0", "--reload"], "watch"),
    (["call", "http://127.0.0.1:1/mcp", "x"], "client"),
    (["list", "http://127.0.0.1:1/mcp"], "client"),
    (["login", "http://127.0.0.1:1/mcp"], "client"),
    (["logout", "http://127.0.0.1:1/mcp"], "client"),
    (["whoami"], "client"),
    (["doctor", "http://127.0.0.1:1/mcp"], "client"),
    (["preview"], "http"),
    (["apps", "test", "--demo"], "apps,http|apps"),
    (["install", "goose", "--print"], "install"),
    (["check"], "yaml"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("words", "extra"), WITHOUT_EXTRAS)
def test_an_extra_that_is_missing_is_named(installed: Installed, tmp_path: Path, words: list[str], extra: str) -> None:
    """One line with what to install, in an environment that has the four packages of the core alone."""
    (tmp_path / "mcpd.toml").write_text("", encoding="utf-8")
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "ask.md").write_text("---\ntitle: Ask\n---\nAsk.", encoding="utf-8")
    env = {**installed.env, "HOME": str(tmp_path), "MCPD_STATE_KEY": "k" * 32}
    done = subprocess.run(
        [installed.command, *words], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "Traceback" not in said
    assert any(f"pip install 'mcpd-server[{each}]'" in said for each in extra.split("|")), said


@pytest.mark.slow
def test_public_modules_are_imported_without_extras(installed: Installed) -> None:
    """A name that needs an extra says so in place of a module of others that was not found."""
    program = """
import importlib, sys
for name in ("mcpd", "mcpd.auth", "mcpd.client", "mcpd.compat", "mcpd.errors", "mcpd.host", "mcpd.sync",
             "mcpd.testing", "mcpd.types"):
    module = importlib.import_module(name)
    for public in getattr(module, "__all__", ()):
        try:
            getattr(module, public)
        except Exception as error:
            if "pip install 'mcpd-server[" not in str(error):
                print(name, public, type(error).__name__, error)
"""
    python = installed.command.with_name("python")
    done = subprocess.run(
        [python, "-c", program], env=installed.env, capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.slow
def test_an_installed_mcpd_works_in_any_folder(installed: Installed, tmp_path: Path) -> None:
    """The console script, the demo server, and a server file of the user's."""
    (tmp_path / "garden.py").write_text('from mcpd import Server\nserver = Server("garden")\n')
    for words, said in (["check", "--demo"], "count_slowly"), (["check", "garden.py"], "garden 0.0.0"):
        done = subprocess.run(
            [installed.command, *words],
            cwd=tmp_path, env=installed.env, capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert said in done.stdout
    messages = [
        initialize("2025-11-25", 1, {"extensions": {"io.modelcontextprotocol/ui": {}}}),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "resources/read", "params": {"uri": "mcpd://welcome"}},
    ]
    done = subprocess.run(
        [installed.command, "serve", "--stdio", "--demo"],
        input="".join(json.dumps(message) + "\n" for message in messages),
        cwd=tmp_path, env=installed.env, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    hello, answer = map(json.loads, done.stdout.splitlines())
    assert hello["result"]["serverInfo"]["version"] == mcpd.__version__
    (welcome,) = answer["result"]["contents"]
    assert welcome["text"].startswith("# mcpd demo server")


@pytest.mark.slow
def test_an_installed_mcpd_is_small(installed: Installed) -> None:
    """D8: four dependencies, and the two that one of those needs. (A peer: 28 packages, 31 MB.)

    The client, its commands and folders brought it from 5 to 6 MB, installing, documents and the preview to 7,
    authorization to 8, tasks, mounts, files and events to 9.
    """
    names = {path.name.partition("-")[0].replace("_", "-").lower() for path in installed.packages.glob("*.dist-info")}
    assert names - {"typing-extensions", "sniffio"} == {
        "anyio",
        "click",
        "idna",
        "mcpd-server",
        "msgspec",
        "websockets",
    }
    files = [path for path in installed.packages.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    megabytes = sum(path.stat().st_size for path in files) / 1e6
    assert megabytes < 9, megabytes


def test_all_extras_are_in_all() -> None:
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (everything,) = extras["optional-dependencies"]["all"]
    named = set(everything.removeprefix("mcpd-server[").removesuffix("]").split(","))
    assert named == set(extras["optional-dependencies"]) - {"all", "test"}


# -------------------------------------------------------------------- what the test frame catches

CASES = """
import asyncio
import pytest
from hypothesis import given, settings, strategies as st

async def test_passes(tmp_path):
    await asyncio.sleep(0)
    assert tmp_path.is_dir()

async def test_fails():
    await asyncio.sleep(0)
    assert False

async def test_leaves_a_task():
    asyncio.get_running_loop().create_task(asyncio.sleep(60))

async def test_cancels_its_task():
    task = asyncio.get_running_loop().create_task(asyncio.sleep(60))
    await asyncio.sleep(0)
    task.cancel()

async def test_hangs():
    await asyncio.Event().wait()

@settings(max_examples=5, database=None)
@given(st.integers())
async def test_given_fails(number):
    await asyncio.sleep(0)
    assert number != 0

@settings(max_examples=5, database=None)
@given(st.integers())
async def test_given_passes(number):
    await asyncio.sleep(0)

def test_skips():
    pytest.skip("not here")

def test_warns():
    import warnings
    warnings.warn("old", DeprecationWarning)
"""


def test_code_is_read_whatever_is_collected_meanwhile() -> None:
    """What is collected may log an exception, which parses the lines of its traceback: before 3.11.8 that breaks."""

    class Logs:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            ast.parse("a + b")

    text = "first = second(third) + fourth\n" * 300
    thresholds = gc.get_threshold()
    gc.collect()
    gc.set_threshold(300)  # reached in the midst of the tree
    try:
        Logs()
        assert len(parsed(text).body) == 300
    finally:
        gc.set_threshold(*thresholds)


def test_code_is_read_in_one_place() -> None:
    """Whoever builds a tree apart from it builds one that garbage can break."""
    reads = re.compile(r"\bast\.parse\(")
    found = lines_with(
        reads, [path for path in tracked("tests/*.py") if path.name not in {"source_code.py", "test_house.py"}]
    )
    assert not [line for line in found if "ast.parse` runs" not in line], "\n".join(found)


@pytest.mark.parametrize("ci", [False, True], ids=["at a desk", "in CI"])
def test_the_frame_of_the_tests(tmp_path: Path, child: Child, ci: bool) -> None:
    """Coroutine tests run, leaks and hangs fail, warnings are errors, and in CI a skip is a failure."""
    frame = (REPOSITORY / "tests" / "conftest.py").read_text(encoding="utf-8")
    (tmp_path / "conftest.py").write_text(frame.replace("COROUTINE_TIMEOUT = 170.0", "COROUTINE_TIMEOUT = 0.2"))
    (tmp_path / "test_cases.py").write_text(CASES)
    done = subprocess.run(
        [child.python, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "-p", "no:asyncio", "-W", "error",
         "-c", os.devnull, "--rootdir", str(tmp_path), str(tmp_path)],
        env={**child.env, "CI": "true" if ci else ""}, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    told = {}
    for line in done.stdout.splitlines():
        if match := re.match(r"(PASSED|FAILED|SKIPPED) .*?::?(test_\w+)", line):
            told[match[2]] = match[1]
        elif line.startswith("SKIPPED"):
            told["test_skips"] = "SKIPPED"
    assert told == {
        "test_passes": "PASSED",
        "test_fails": "FAILED",
        "test_leaves_a_task": "FAILED",
        "test_cancels_its_task": "PASSED",
        "test_hangs": "FAILED",
        "test_given_fails": "FAILED",
        "test_given_passes": "PASSED",
        "test_skips": "FAILED" if ci else "SKIPPED",
        "test_warns": "FAILED",
    }, done.stdout


# Each with a comment at its place that says why nothing public does.
PRIVATE_NAMES = {
    "cli/attach/shim.py: _socket",
    "cli/attach/shim.py: _socket.socket",
    "server/http/hosted.py: f_locals",
    "server/shutdown.py: _thread",
}
# Names that their documentation has, for all that they look like.
DOCUMENTED = {"_current_frames", "_exit", "_getframe"}
MADE_TO_BE_SUBCLASSED = {"AbstractResolver", "ClientProtocol", "ServerProtocol", "TCPConnector", "UnixConnector"}
INSIDES = {"cr_frame", "f_locals", "gi_code", "gi_frame", "gi_yieldfrom", "_asyncio_future_blocking"}
SUBCLASSED = {"aiohttp", "hypercorn", "redis", "uvicorn", "websockets"}


def is_private(name: str) -> bool:
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


def imported(nodes: list[ast.AST]) -> Iterator[tuple[str, str]]:
    """The names of modules outside mcpd: what each is called here, and in full."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (((name.asname or name.name).partition(".")[0], name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((name.asname or name.name, f"{node.module}.{name.name}") for name in node.names)


def private_names(nodes: list[ast.AST]) -> Iterator[str]:
    outside = {here: whole for here, whole in imported(nodes) if whole.partition(".")[0] not in ("mcpd", "__future__")}
    yield from (whole for whole in outside.values() if is_private(whole))
    for node in nodes:
        if isinstance(node, ast.Attribute):
            base: ast.expr = node
            while isinstance(base, ast.Attribute):
                base = base.value
            is_outside = isinstance(base, ast.Name) and base.id in outside
            if node.attr in INSIDES or (is_outside and is_private(node.attr) and node.attr not in DOCUMENTED):
                yield node.attr
        if isinstance(node, ast.ClassDef):
            for each in map(ast.unparse, node.bases):
                library = outside.get(each.partition(".")[0], "").partition(".")[0]
                if library in SUBCLASSED and each.rpartition(".")[2] not in MADE_TO_BE_SUBCLASSED:
                    yield each


def test_no_private_name_of_a_library_is_used(code: dict[Path, list[ast.AST]]) -> None:
    folder = REPOSITORY / "mcpd"
    found = {
        f"{path.relative_to(folder).as_posix()}: {name}"
        for path, nodes in code.items()
        for name in private_names(nodes)
    }
    assert found - PRIVATE_NAMES == set()
    assert PRIVATE_NAMES - found == set(), "these are no longer used: take them off the list"
