"""What every test can use: coroutine tests, child processes, the shared specification, the rule on skips.

Nothing here knows a package of mcpd; fixtures that do live in the conftest of their folder.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import itertools
import os
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import settings

REPOSITORY = Path(__file__).resolve().parent.parent

# A coroutine test that is not done by then hangs; pytest's own time limit, a little later, is the one for all else.
COROUTINE_TIMEOUT = 170.0

# Minutes in a process of its own: begun last, it would keep all others waiting for the end of the run.
LONGEST = "test_the_oldest_do"

# Whole files whose lines others reach too: measuring what they run takes more than half of the time, and tells nothing.
# What counts memory would count that of measuring, too.
UNMEASURED = {
    "tests/cli/test_serve_process.py",
    "tests/cli/doctor/test_commands.py",
    "tests/server/extensions/test_serve_options.py",
    "tests/server/extensions/ui/test_gating.py",
    "tests/test_counts.py",
    "tests/docs/test_pages.py",
    "tests/test_exports.py",
    "tests/test_histories.py",
    "tests/test_house.py",
    "tests/test_log_lines.py",
    "tests/test_readme.py",
    "tests/test_rule_index.py",
    "tests/test_transcripts.py",
    "tests/versions/test_table.py",
}

# Whole files that take more than a fifth of a second for a test: measurements, generated histories, logins.
MEDIUM = {
    "tests/apps/host/test_partial_json.py",
    "tests/apps/host/test_view_hostile.py",
    "tests/apps/host/test_view_properties.py",
    "tests/apps/verdict/test_command.py",
    "tests/auth/server/test_attacks.py",
    "tests/auth/server/test_hostile.py",
    "tests/auth/server/test_login.py",
    "tests/auth/server/test_login_server.py",
    "tests/cli/bundle/test_bundle.py",
    "tests/cli/doctor/test_commands.py",
    "tests/cli/install/test_health.py",
    "tests/cli/install/test_hosts.py",
    "tests/cli/install/test_launch.py",
    "tests/cli/test_announcement.py",
    "tests/cli/test_install.py",
    "tests/client/http/test_pool.py",
    "tests/client/http/test_streams.py",
    "tests/client/test_faulty_servers.py",
    "tests/client/test_our_tasks.py",
    "tests/client/test_tasks.py",
    "tests/docs/test_pages.py",
    "tests/docs/test_testing.py",
    "tests/docs/test_use_servers.py",
    "tests/hostile/test_process_groups.py",
    "tests/server/backplane/test_backplanes.py",
    "tests/server/backplane/test_contracts.py",
    "tests/server/dispatcher/test_tasks.py",
    "tests/server/http/test_faults.py",
    "tests/server/http/test_listener.py",
    "tests/server/http/test_waiting_memory.py",
    "tests/server/registry/test_uri_template.py",
    "tests/server/test_listeners.py",
    "tests/server/test_serving.py",
    "tests/sources/docs/test_notebook.py",
    "tests/sources/docs/test_readers.py",
    "tests/sources/docs/test_search_quality.py",
    "tests/sources/docs/test_store.py",
    "tests/sources/test_watch.py",
    "tests/test_anything.py",
    "tests/test_counts.py",
    "tests/test_extras.py",
    "tests/test_histories.py",
    "tests/test_imports.py",
    "tests/test_in_flight.py",
    "tests/test_log_lines.py",
    "tests/test_pending.py",
    "tests/test_rule_index.py",
    "tests/testing/test_pytest_plugin.py",
    "tests/transports/test_websocket_both_ends.py",
    "tests/wire/test_sse_reader.py",
}

# Tests that may skip in CI, each with its reason. Everything else that skips there has failed:
# it would mean that CI no longer tests what it says it does.
_NO_IPV6 = "containers often have no IPv6"
MAY_SKIP_IN_CI: dict[str, str] = {
    "tests/transports/test_address.py::test_ipv6_loopback_alone": _NO_IPV6,
    "tests/transports/test_address.py::test_the_ipv6_wildcard_is_all_of_the_machine": _NO_IPV6,
    "tests/transports/test_address.py::test_a_port_in_use_on_the_other_loopback_is_an_error": _NO_IPV6,
}


# The machine is shared and the tests run side by side: how long one example takes says nothing.
# In CI each run takes the same examples; elsewhere each takes others.
settings.register_profile("mcpd", deadline=None, derandomize=os.environ.get("CI", "") != "")
settings.load_profile("mcpd")
settings.register_profile("quick", parent=settings.get_profile("mcpd"), max_examples=25)  # for `make check`

# Started in the background by a shell, a process ignores SIGINT, below nohup SIGHUP, and so would all that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# ------------------------------------------------------------------------------ coroutine tests


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run `async def test_…` on a loop of its own, and fail it if it leaves tasks behind."""
    test = pyfuncitem.obj
    handle = getattr(test, "hypothesis", None)
    if handle is not None and inspect.iscoroutinefunction(handle.inner_test):
        # Hypothesis calls the inner function once for each example: each gets its own loop.
        handle.inner_test = _synchronous(handle.inner_test)
        return None
    if not inspect.iscoroutinefunction(test):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    _synchronous(test)(**arguments)
    return True


def _synchronous(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(_alone(test(*args, **kwargs)))

    return run


async def _alone(test: Awaitable[None]) -> None:
    async with asyncio.timeout(COROUTINE_TIMEOUT) as limit:
        asyncio.get_running_loop().limit_of_test = limit  # type: ignore[attr-defined]  # for `Clock.advance`
        await test
    # What was cancelled or closed in the test's last line may need a turn or two of the loop.
    for _ in range(10):
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if not left:
            return
        await asyncio.sleep(0)
    pytest.fail("left running after the test:\n" + "\n".join(f"  {task!r}" for task in left))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by their size: what starts a program is medium, what needs a browser or is nightly is slow.

    The longest test begins first.
    """
    for item in items:
        file, fixtures = item.nodeid.partition("::")[0], getattr(item, "fixturenames", ())
        if file in UNMEASURED:
            item.add_marker(pytest.mark.unmeasured)
        if file in MEDIUM or "child" in fixtures:
            item.add_marker(pytest.mark.medium)
        if "chromium" in fixtures or item.get_closest_marker("nightly"):
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: item.name != LONGEST)


def pytest_collection_finish() -> None:
    """What was imported and collected stays: garbage is looked for among what the tests make, which is far less."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup() -> None:
    """A port may be that of another test's server, of which the client knows which era it is of."""
    known = sys.modules.get("mcpd.client.eras")
    if known is not None:
        known._legacy.clear()


# ------------------------------------------------------------------------------------- fixtures

_numbers = itertools.count()


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short path, whatever the test is called: an address of a Unix socket has at most 107 characters.

    Without numbers of pytest's own, for which it reads the folder of all others.
    """
    path = tmp_path_factory.getbasetemp() / f"t{next(_numbers)}"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture(scope="session")
def repository() -> Path:
    """The top folder of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder beside the checkout with the specification's pages and schemas; without it the test skips."""
    path = REPOSITORY.parent / "shared"
    if not path.is_dir():
        pytest.skip("needs ../shared (the specification's pages and schemas), which this clone does not have")
    return path


class Child(NamedTuple):
    """How to start a Python child process: `[child.python, "-m", "mcpd", …]` with `env=child.env`."""

    python: str
    env: dict[str, str]

    def mcpd(self, *arguments: str) -> list[str]:
        """The command line of `mcpd` with these arguments."""
        return [self.python, "-m", "mcpd", *arguments]


@pytest.fixture
def child() -> Child:
    """This interpreter, and an environment in which a child counts for coverage and no setting of ours leaks in."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MCPD_", "MCP_"))}
    env["PYTHONPATH"] = os.pathsep.join([str(REPOSITORY), *filter(None, [env.get("PYTHONPATH")])])
    return Child(sys.executable, env)


# ---------------------------------------------------------------------------------------- skips


def _in_ci() -> bool:
    return os.environ.get("CI", "").lower() in ("true", "1")


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not (_in_ci() and report.skipped) or hasattr(report, "wasxfail"):
        return
    if report.nodeid in MAY_SKIP_IN_CI:
        return
    report.outcome = "failed"
    report.longrepr = (
        f"{report.nodeid}: nothing may be skipped in CI ({_why(report)}); tests/conftest.py lists what may"
    )


def _why(report: pytest.TestReport | pytest.CollectReport) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each reason to skip, however many tests have it."""
    reasons = Counter(_why(report) for report in terminalreporter.stats.get("skipped", []))
    for reason, number in reasons.most_common():
        terminalreporter.write_line(f"{number} skipped: {reason}", yellow=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a skipped test is a failed one."""
    report = yield
    # Tests log lone surrogates on purpose; a report that holds one cannot cross from a worker to its controller.
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections]
    _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """In CI a module that skips itself while it is collected is a failed one."""
    report = yield
    _refuse_skip(report)
    return report


@pytest.fixture
def default_sigterm() -> Iterator[None]:
    """As Python starts: whoever measures coverage has a handler of its own."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)
