"""The pytest plugin, in runs of its own: alone and beside pytest-asyncio's and anyio's, and where nobody uses it."""

from __future__ import annotations

import subprocess
from importlib.util import find_spec

import pytest
from conftest import Child
from support.our_plugin import IS_INSTALLED

from mcpd.testing import TRANSPORTS, VERSIONS

pytest_plugins = ["pytester"]

OURS = () if IS_INSTALLED else ("-p", "mcpd.testing.pytest_plugin")
ALONE = (*OURS, "-p", "no:asyncio", "-p", "no:anyio")

SERVER = """
from mcpd import Context, Server

server = Server("garden")
beds = {"north": 3}

@server.tool
async def plants(bed: str, ctx: Context) -> dict[str, int | str]:
    return {"plants": beds[bed], "over": ctx.transport}
"""

TESTS = """
import pytest
from mcpd.testing import ClientMaker, mcpd_every_version
from garden import server

@mcpd_every_version(transports="all")
{mark}
async def test_each(mcpd_client: ClientMaker, mcpd_version: str, mcpd_transport: str) -> None:
    async with mcpd_client(server) as client:
        assert client.version == mcpd_version
        assert await client.call("plants", bed="north", returns=dict) == {{"plants": 3, "over": mcpd_transport}}
"""

PLAIN = """
from mcpd.testing import mcpd_every_version
from garden import server
import pytest

@mcpd_every_version
def test_each(mcpd_client, mcpd_version):
    with mcpd_client(server) as client:
        assert client.version == mcpd_version
        assert client.call("plants", bed="north", returns=dict)["over"] == "memory"

@pytest.mark.mcpd_every_version(versions=["2025-06-18", "2026-07-28"], transports=["http"])
class TestMany:
    def test_one(self, mcpd_client):
        with mcpd_client(server) as client:
            assert client.call("plants", bed="north")["over"] == "http"

def test_without_the_mark(mcpd_client, mcpd_version, mcpd_transport):
    assert (mcpd_version, mcpd_transport) == (None, "memory")
    with mcpd_client(server, version="2025-03-26", transport="websocket") as client:
        assert client.version == "2025-03-26"
"""


def run(pytester: pytest.Pytester, tests: str, *arguments: str, ini: str = "") -> pytest.RunResult:
    """Run them in a process of their own, in which warnings are errors and unknown marks too."""
    if ini:
        ini += "\nasyncio_default_fixture_loop_scope = function"
    pytester.makeini(f"[pytest]\naddopts = --strict-markers -W error -p no:cacheprovider\n{ini}")
    pytester.makepyfile(garden=SERVER, test_garden=tests)
    return pytester.runpytest_subprocess(*arguments)


def test_alone_it_runs_coroutines_that_take_a_client(pytester: pytest.Pytester) -> None:
    result = run(pytester, TESTS.format(mark=""), *ALONE, "-v")
    result.assert_outcomes(passed=len(VERSIONS) * len(TRANSPORTS))
    result.stdout.fnmatch_lines(["*test_each[[]websocket-2024-11-05] PASSED*", "*test_each[[]http-2026-07-28] PASSED*"])


FIXTURE = """
import pytest{more}

@{fixture}
async def client(mcpd_client):
    async with mcpd_client(server) as client:
        yield client

@mcpd_every_version
{mark}
async def test_by_a_fixture(client, mcpd_version):
    assert client.version == mcpd_version
    assert await client.call("plants", bed="north")
"""
ANYIO = """
@pytest.fixture
def anyio_backend():
    return "asyncio"
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mark", "fixture", "more", "ini", "arguments"),
    [
        ("@pytest.mark.asyncio", "pytest_asyncio.fixture", ", pytest_asyncio", "asyncio_mode = strict", []),
        ("", "pytest.fixture", "", "asyncio_mode = auto", []),
        ("@pytest.mark.anyio", "pytest.fixture", ANYIO, "", ["-p", "no:asyncio"]),
        ("@pytest.mark.anyio", "pytest.fixture", ANYIO, "asyncio_mode = strict", []),
    ],
    ids=["asyncio strict", "asyncio auto", "anyio", "anyio beside asyncio"],
)
def test_beside_other_plugins(
    pytester: pytest.Pytester, mark: str, fixture: str, more: str, ini: str, arguments: list[str]
) -> None:
    if "no:asyncio" not in arguments and find_spec("pytest_asyncio") is None:
        pytest.skip("needs pytest-asyncio, which is among the test tools")
    tests = TESTS.format(mark=mark) + FIXTURE.format(mark=mark, fixture=fixture, more=more)
    result = run(pytester, tests, *OURS, *arguments, ini=ini)
    result.assert_outcomes(passed=len(VERSIONS) * (len(TRANSPORTS) + 1))


@pytest.mark.slow
def test_what_asyncio_leaves_alone_in_strict_mode_runs_all_the_same(pytester: pytest.Pytester) -> None:
    if find_spec("pytest_asyncio") is None:
        pytest.skip("needs pytest-asyncio, which is among the test tools")
    result = run(pytester, TESTS.format(mark=""), *OURS, ini="asyncio_mode = strict")
    result.assert_outcomes(passed=len(VERSIONS) * len(TRANSPORTS))


def test_in_plain_functions(pytester: pytest.Pytester) -> None:
    run(pytester, PLAIN, *ALONE).assert_outcomes(passed=len(VERSIONS) + 2 + 1)


WRONG = {
    '(transports="htp")': "mcpd_every_version(transports='htp'): the transports are memory, stdio, websocket, http",
    '(versions=["1999-01-01"])': "the versions are 2024-10-07, 2024-11-05,",
    "(5)": "has the arguments versions= and transports= only",
}


def test_a_mark_that_means_nothing_says_so(pytester: pytest.Pytester) -> None:
    mark = "@pytest.mark.mcpd_every_version"
    for n, wrong in enumerate(WRONG):
        pytester.makepyfile(**{f"test_{n}": f"import pytest\n{mark}{wrong}\ndef test_a(mcpd_client): pass\n"})
    pytester.makepyfile(test_last=f"import pytest\n{mark}\ndef test_b(): pass\n")
    result = pytester.runpytest_subprocess(*ALONE)
    result.assert_outcomes(errors=len(WRONG) + 1)
    said = result.stdout.str()
    for words in WRONG.values():
        assert words in said
    assert "test_b: mcpd_every_version is for tests that use mcpd_client or mcpd_version" in said


UNUSED = """
import sys

def test_nothing_of_ours_is_loaded():
    ours = sorted(name for name in sys.modules if name.partition(".")[0] == "mcpd")
    assert ours == ["mcpd", "mcpd.moved", "mcpd.testing", "mcpd.testing.pytest_plugin"]
    assert "msgspec" not in sys.modules
    assert "websockets" not in sys.modules

async def test_that_nobody_runs():
    pass
"""


def test_it_loads_nothing_that_pytest_has_not_loaded(child: Child) -> None:
    plugin = "mcpd.testing.pytest_plugin"
    code = f"import sys, pytest; before = {{*sys.modules}}; import {plugin}; print(sorted({{*sys.modules}} - before))"
    env = {name: value for name, value in child.env.items() if not name.startswith("COVERAGE_")}
    done = subprocess.run([child.python, "-c", code], env=env, capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.strip() == "['mcpd', 'mcpd.moved', 'mcpd.testing', 'mcpd.testing.pytest_plugin']"


def test_where_nobody_uses_it_nothing_is_loaded_and_nothing_is_changed(pytester: pytest.Pytester) -> None:
    """A coroutine without `mcpd_client` is none of ours: pytest says what it says without us."""
    pytester.makepyfile(UNUSED)
    result = pytester.runpytest_subprocess(*ALONE)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*async def functions are not natively supported*"])


@pytest.mark.slow
def test_it_is_listed_and_can_be_switched_off(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess(*OURS, "--markers")
    result.stdout.fnmatch_lines(["*mcpd_every_version(versions=*"])
    pytester.makepyfile("def test_a(mcpd_client): pass")
    if IS_INSTALLED:
        result = pytester.runpytest_subprocess("-p", "no:mcpd")
        result.assert_outcomes(errors=1)
        result.stdout.fnmatch_lines(["*fixture 'mcpd_client' not found*"])


@pytest.mark.slow
def test_under_another_event_loop_it_says_what_to_do(pytester: pytest.Pytester) -> None:
    if find_spec("trio") is None:
        # Without trio the plugin's own words are seen by whoever drives the coroutine: testing/test_transports.py.
        return
    tests = TESTS.format(mark="@pytest.mark.anyio") + ANYIO.replace('"asyncio"', '"trio"')
    result = run(pytester, tests, *OURS, "-p", "no:asyncio", "-x")
    assert "a client of mcpd needs asyncio, which does not run here" in result.stdout.str()


LOCKED = """
from garden import server

def test_offers(mcpd_lock):
    mcpd_lock(server)

def test_named(mcpd_lock):
    mcpd_lock(server, file="other.json")
"""


def test_what_a_server_offers_is_held_against_its_file(pytester: pytest.Pytester) -> None:
    result = run(pytester, LOCKED, *ALONE)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["there is no approval file *garden.lock.json yet; to write it: pytest --mcpd-write"])
    run(pytester, LOCKED, *ALONE, "--mcpd-write").assert_outcomes(passed=2)
    assert (pytester.path / "garden.lock.json").read_text() == (pytester.path / "other.json").read_text()
    run(pytester, LOCKED, *ALONE).assert_outcomes(passed=2)

    pytester.makepyfile(garden=SERVER.replace("bed: str,", "bed: str, kind: str,"))
    result = pytester.runpytest_subprocess(*ALONE, "-k", "offers", "test_garden.py")
    result.assert_outcomes(failed=1, deselected=1)
    result.stdout.fnmatch_lines(
        [
            "the server differs from garden.lock.json; to approve the changes: pytest --mcpd-write",
            "  breaking: tool plants: argument kind is new and required",
        ]
    )
