"""The pytest plugin: the fixtures `mcpd_client`, `mcpd_apps`, `mcpd_lock` and others, and a mark.

pytest imports this module in every run if mcpd is installed. It therefore imports other modules of mcpd only when a
test uses them. docs/testing.md describes it; `-p no:mcpd` disables it.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from mcpd.apps.verdict.report import AppsReport
    from mcpd.client.target import Target
    from mcpd.protocol.principal import Transport
    from mcpd.server import Server
    from . import ClientMaker

_MARK = "mcpd_every_version"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--mcpd-write`."""
    parser.getgroup("mcpd").addoption(
        "--mcpd-write", action="store_true", help="Let mcpd_lock write the approval files of servers."
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark, for `--strict-markers`."""
    config.addinivalue_line(
        "markers",
        f"{_MARK}(versions=..., transports=...): run a test that uses mcpd_client in every protocol version of MCP, "
        'over each of these transports ("all" for every one)',
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test for each version and transport of its mark."""
    mark = metafunc.definition.get_closest_marker(_MARK)
    if mark is None:
        return
    from . import TRANSPORTS, VERSIONS

    where = metafunc.function.__qualname__
    unknown = set(mark.kwargs) - {"versions", "transports"}
    if mark.args or unknown:
        pytest.fail(f"{where}: {_MARK} has the arguments versions= and transports= only", pytrace=False)
    if not {"mcpd_client", "mcpd_version"} & set(metafunc.fixturenames):
        pytest.fail(f"{where}: {_MARK} is for tests that use mcpd_client or mcpd_version", pytrace=False)

    transports = mark.kwargs.get("transports") or ()
    for name, wanted, known in (
        ("mcpd_transport", TRANSPORTS if transports == "all" else transports, TRANSPORTS),
        ("mcpd_version", mark.kwargs.get("versions") or VERSIONS, VERSIONS),
    ):
        if isinstance(wanted, str) or not set(wanted) <= set(known):
            word = name.removeprefix("mcpd_")
            pytest.fail(f"{where}: {_MARK}({word}s={wanted!r}): the {word}s are {', '.join(known)}", pytrace=False)
        if wanted:
            metafunc.parametrize(name, wanted, ids=str, indirect=True)


@pytest.fixture
def mcpd_version(request: pytest.FixtureRequest) -> str | None:
    """The protocol version of the test; None, for the newest, in a test without the mark."""
    version: str | None = getattr(request, "param", None)
    return version


@pytest.fixture
def mcpd_transport(request: pytest.FixtureRequest) -> Transport:
    """The transport of the test: memory, unless the mark names others."""
    transport: Transport = getattr(request, "param", "memory")
    return transport


@pytest.fixture
def mcpd_client(mcpd_version: str | None, mcpd_transport: Transport) -> ClientMaker:
    """Makes clients: `async with mcpd_client(server) as client`, or `with` in a plain function.

    The arguments are those of `mcpd.testing.TestClient`.
    """
    from . import ClientMaker

    return ClientMaker(mcpd_version, mcpd_transport)


@pytest.fixture
def mcpd_lock(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Fails the test if a server differs from its approval file: `mcpd_lock(server)`.

    The file is `NAME.lock.json` beside the test, where NAME is the server's name, or `file=`, relative to the test's
    folder. `pytest --mcpd-write` writes the file.
    """

    def hold(server: Server, file: str | os.PathLike[str] | None = None) -> None:
        from .approval import check_lock, write_lock

        name = "".join(c if c.isalnum() or c in "-_." else "-" for c in server.name)
        path = request.path.parent / (f"{name}.lock.json" if file is None else file)
        if request.config.getoption("--mcpd-write"):
            write_lock(server, path)
            return
        changes = check_lock(server, path)
        if changes is None:
            pytest.fail(f"there is no approval file {path} yet; to write it: pytest --mcpd-write", pytrace=False)
        if changes:
            lines = [f"  {'breaking' if change.is_breaking else 'harmless'}: {change}" for change in changes]
            head = f"the server differs from {path.name}; to approve the changes: pytest --mcpd-write"
            pytest.fail("\n".join([head, *lines]), pytrace=False)

    return hold


@pytest.fixture
def mcpd_apps() -> Callable[..., AppsReport]:
    """Tests the apps of a server as `mcpd apps test` does: `mcpd_apps(server)` returns the report.

    The argument is a `Server` or any other target of a client. The keywords are those of
    `mcpd.apps.verdict.report.TryOptions`: `static`, `app`, `calls`, `screenshots`, `browser`, `timeout` (seconds).
    `report.failures` is empty if all apps pass.
    """

    def tried(target: Target, **options: Any) -> AppsReport:
        import asyncio
        from concurrent.futures import ThreadPoolExecutor

        from mcpd.apps.verdict.report import TryOptions
        from mcpd.apps.verdict.run import try_apps

        if isinstance(app := options.get("app"), str):
            options["app"] = (app,)
        try_options = TryOptions(**options)
        # In a thread, because the test may run in an event loop.
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(lambda: asyncio.run(try_apps(target, try_options))).result()

    return tried


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an `async def` test that uses `mcpd_client` if no other plugin runs it; pytest calls those first."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test) or "mcpd_client" not in pyfuncitem.fixturenames:
        return None
    import asyncio  # takes 30 ms, which most runs of pytest need not spend

    names = inspect.signature(test).parameters
    arguments: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in names if name in pyfuncitem.funcargs}
    asyncio.run(test(**arguments))
    return True
