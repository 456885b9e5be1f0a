"""The official conformance suite, every scenario of both pinned releases, without a failure or a warning.

All of servers, and all of clients, with authorization and without.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.slow

LEGS = ("2025-11-25", "2026-07-28", "requirements-2025-11-25", "requirements-2026-07-28", "latest", "bare")
CLIENT_LEGS = ("client-2025-11-25", "client-2026-07-28", "client-latest", "client-bare")


@pytest.fixture(scope="module")
def suite(repository: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("conformance_suite", repository / "conformance" / "suite.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def node(suite: ModuleType, repository: Path) -> str:
    found = suite.find_node(repository)
    if found is None or not (repository / "conformance" / suite.NEW).exists():
        pytest.skip("Node 22 and the conformance packages are not installed (make test installs them)")
    return str(found)


@pytest.fixture(scope="module")
def url(suite: ModuleType, node: str) -> Iterator[str]:
    with suite.everything() as found:
        yield found


@pytest.mark.timeout(300)
@pytest.mark.parametrize("leg", LEGS)
def test_the_official_suite_finds_no_blemish(suite: ModuleType, node: str, url: str, leg: str) -> None:
    score = suite.run_leg(node, suite.LEGS[leg], url)
    assert score.scenarios == suite.LEGS[leg].scenarios, score.output[-2000:]
    assert not score.blemishes, "\n".join(score.blemishes)
    assert score.code == 0


# What a server of the legacy era cannot do for a modern client: name the keys of its questions, ask for several things
# in one result, and refuse a client that has too few capabilities.
_LEGACY_ONLY = {
    "input-required-result-basic-elicitation",
    "input-required-result-ignore-extra-params",
    "input-required-result-multiple-input-requests",
    "server-stateless",
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", ["stdio", "url", "legacy"])
def test_the_official_suite_finds_no_blemish_through_a_mount(suite: ModuleType, node: str, how: str) -> None:
    """MNT-08: a mounted server is as clean as it is by itself, in both eras."""
    with suite.mounted(how) as url:
        scores = {leg: suite.run_leg(node, suite.LEGS[leg], url) for leg in LEGS[:2]}
    for leg, score in scores.items():
        assert score.scenarios == suite.LEGS[leg].scenarios, score.output[-2000:]
        is_crossed = how == "legacy" and leg == LEGS[1]
        blemishes = [one for one in score.blemishes if not (is_crossed and one.partition(":")[0] in _LEGACY_ONLY)]
        assert not blemishes, "\n".join(blemishes)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("leg", CLIENT_LEGS)
def test_the_official_suite_finds_no_blemish_in_our_client(suite: ModuleType, node: str, leg: str) -> None:
    score = suite.run_client_leg(node, suite.CLIENT_LEGS[leg])
    assert score.scenarios == suite.CLIENT_LEGS[leg].scenarios, score.output[-2000:]
    assert not score.blemishes, "\n".join([*score.blemishes, score.output[-2000:]])
    assert score.code == 0, score.output[-2000:]


@pytest.mark.timeout(120)
def test_the_official_suite_finds_no_blemish_in_our_authorization_server(suite: ModuleType, node: str) -> None:
    """AUTH-120, AUTH-121, AUTH-124, AUTH-127, AUTH-148: metadata, and a login whose user allows it."""
    score = suite.run_authorization_leg(node)
    assert score.scenarios == suite.AUTHORIZATION_SCENARIOS, score.output[-2000:]
    assert not score.blemishes, "\n".join([*score.blemishes, score.output[-2000:]])


def test_a_client_that_does_nothing_is_blemished(suite: ModuleType, node: str) -> None:
    scenarios = {"tools_call", "sse-retry"}
    score = suite.run_client_leg(node, suite.CLIENT_LEGS["client-latest"], "/bin/true", scenarios)
    assert {blemish.partition(":")[0] for blemish in score.blemishes} == scenarios


def test_every_leg_is_run(suite: ModuleType) -> None:
    assert set(LEGS) == set(suite.LEGS)
    assert set(CLIENT_LEGS) == set(suite.CLIENT_LEGS)
