"""The plugin that pytest loads where mcpd is installed: `mcpd_client`, `mcpd_apps` and others, for tests of servers.

pytest imports this in every run, also in those that have nothing to do with mcpd: so it imports nothing of ours before
a test asks for it. `docs/testing.md` shows how to use it; it is switched off by `-p no:mcpd`.
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
    from mcpd.testing import ClientMaker

_MARK = "mcpd_every_version"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take `--mcpd-write`."""
    parser.getgroup("mcpd").addoption(
        "--mcpd-write", action="store_true", help="mcpd_lock writes the approval files of servers, or writes them anew."
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known, for `--strict-markers`."""
    config.addinivalue_line(
        "markers",
        f"{_MARK}(versions=..., transports=...): run a test that takes mcpd_client in every protocol version of MCP, "
        'over each of these transports ("all" for every one)',
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each version and transport that its mark asks for."""
    mark = metafunc.definition.get_closest_marker(_MARK)
    if mark is None:
        return
    from mcpd.testing import TRANSPORTS, VERSIONS  # noqa: PLC0415

    where = metafunc.function.__qualname__
    unknown = set(mark.kwargs) - {"versions", "transports"}
    if mark.args or unknown:
        pytest.fail(f"{where}: {_MARK} takes versions= and transports=, nothing else", pytrace=False)
    if not {"mcpd_client", "mcpd_version"} & set(metafunc.fixturenames):
        pytest.fail(f"{where}: {_MARK} is for tests that take mcpd_client, or mcpd_version", pytrace=False)

    transports = mark.kwargs.get("transports") or ()
    for name, wanted, known in (
        ("mcpd_transport", TRANSPORTS if transports == "all" else transports, TRANSPORTS),
        ("mcpd_version", mark.kwargs.get("versions") or VERSIONS, VERSIONS),
    ):
        if isinstance(wanted, str) or not set(wanted) <= set(known):
            word = name.removeprefix("mcpd_")
            pytest.fail(f"{where}: {_MARK}({word}s={wanted!r}): there are {', '.join(known)}", pytrace=False)
        if wanted:
            metafunc.parametrize(name, wanted, ids=str, indirect=True)


@pytest.fixture
def mcpd_version(request: pytest.FixtureRequest) -> str | None:
    """The protocol version that the test runs in; None for the newest, where it is not marked."""
    version: str | None = getattr(request, "param", None)
    return version


@pytest.fixture
def mcpd_transport(request: pytest.FixtureRequest) -> Transport:
    """What carries the messages in this test: memory, unless its mark says otherwise."""
    transport: Transport = getattr(request, "param", "memory")
    return transport


@pytest.fixture
def mcpd_client(mcpd_version: str | None, mcpd_transport: Transport) -> ClientMaker:
    """Makes clients: `async with mcpd_client(server) as client`, in a plain function `with` the same.

    See `mcpd.testing.TestClient` for its options.
    """
    from mcpd.testing import ClientMaker  # noqa: PLC0415

    return ClientMaker(mcpd_version, mcpd_transport)


@pytest.fixture
def mcpd_lock(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Fails the test if a server does not offer what its approval file says: `mcpd_lock(server)`.

    The file is `NAME.lock.json` beside the test, by the server's name, or `file=`, from the test's folder on.
    `--mcpd-write` writes it.
    """

    def hold(server: Server, file: str | os.PathLike[str] | None = None) -> None:
        from mcpd.approval import check_lock, write_lock  # noqa: PLC0415

        name = "".join(c if c.isalnum() or c in "-_." else "-" for c in server.name)
        path = request.path.parent / (f"{name}.lock.json" if file is None else file)
        if request.config.getoption("--mcpd-write"):
            write_lock(server, path)
            return
        changes = check_lock(server, path)
        if changes is None:
            pytest.fail(f"there is no approval file {path} yet: pytest --mcpd-write writes it", pytrace=False)
        if changes:
            lines = [f"  {'breaking' if change.is_breaking else 'harmless'}: {change}" for change in changes]
            told = "\n".join([f"{path.name} says otherwise; if that is meant: pytest --mcpd-write", *lines])
            pytest.fail(told, pytrace=False)

    return hold


@pytest.fixture
def mcpd_apps() -> Callable[..., AppsReport]:
    """Tries the apps of a server as `mcpd apps test` does: `mcpd_apps(server)` is the report.

    It takes a `Server` or any target of a client, and as keywords those of `mcpd.apps.verdict.report.TryOptions`:
    `static`, `app`, `calls`, `screenshots`, `browser`, `timeout`. `report.failures` is empty if all is well.
    """

    def tried(target: Target, **options: Any) -> AppsReport:
        import asyncio  # noqa: PLC0415
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

        from mcpd.apps.verdict.report import TryOptions  # noqa: PLC0415
        from mcpd.apps.verdict.run import try_apps  # noqa: PLC0415

        if isinstance(app := options.get("app"), str):
            options["app"] = (app,)
        told = TryOptions(**options)
        # In a thread: the test may have a running loop of its own.
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(lambda: asyncio.run(try_apps(target, told))).result()

    return tried


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an `async def` test that takes `mcpd_client` and that no other plugin runs: those have their say before."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test) or "mcpd_client" not in pyfuncitem.fixturenames:
        return None
    import asyncio  # noqa: PLC0415 - 30 ms that most runs of pytest do not need

    arguments: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(test(**arguments))
    return True
