"""A revision is added as DEVELOPERS.md says, one revision and one name, and served beside all others (D13).

It brings a method, added as DEVELOPERS.md says too: types, a row in the revision, a handler and its row. All
is added to a copy of the repository, in which `two_modern_versions.py` then runs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import REPOSITORY

pytestmark = pytest.mark.slow

MODULE = '''"""2027-01-01: a revision of tests."""

from mcpd.protocol.types.words import CountWordsParams
from mcpd.protocol.versions.table import Revision

_2027_01_01 = Revision(
    version="2027-01-01",
    modern=True,
    requests={"com.example/count": CountWordsParams},
    removed=("completion/complete",),
)

REVISIONS = (_2027_01_01,)
'''

# The method of the recipe "Adding a method": its step 1, and the function of step 3.
TYPES = '''"""`com.example/count`, a method of tests."""

from mcpd.protocol.types.base import Params, Result


class CountWordsParams(Params):
    text: str


class CountWordsResult(Result):
    count: int = 0
'''
HANDLER = """

def count_words(catalog: Catalog, exchange: Exchange, params: CountWordsParams) -> CountWordsResult:
    return CountWordsResult(count=len(params.text.split()))


HANDLERS["com.example/count"] = count_words
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The repository with one revision more, and the shared folder beside it."""
    root = tmp_path / "main"
    root.mkdir()
    for name in ("mcpd", "tests", "conformance", "assets", "pyproject.toml"):
        source = REPOSITORY / name
        ignored = shutil.ignore_patterns("node_modules", "__pycache__")
        if source.is_dir():
            shutil.copytree(source, root / name, ignore=ignored)
        else:
            shutil.copy(source, root / name)
    shared = REPOSITORY.parent / "shared"
    if shared.is_dir():
        (tmp_path / "shared").symlink_to(shared)
    (root / "mcpd/protocol/versions/v2027.py").write_text(MODULE)
    (root / "mcpd/protocol/types/words.py").write_text(TYPES)
    handlers = root / "mcpd/server/handlers/methods.py"
    text = handlers.read_text()
    imported = "from mcpd.protocol.types.words import CountWordsParams, CountWordsResult\n"
    assert text.count("from mcpd.server.context.exchange import ") == 1
    text = text.replace("from mcpd.server.context.exchange", f"{imported}from mcpd.server.context.exchange", 1)
    handlers.write_text(text + HANDLER)
    methods = root / "mcpd/protocol/methods.py"
    text = methods.read_text()
    assert text.count('    "ping": Method(') == 1
    methods.write_text(text.replace('    "ping": ', '    "com.example/count": Method(),\n    "ping": ', 1))
    table = root / "mcpd/protocol/versions/table.py"
    text = table.read_text()
    assert text.count('"2026-07-28")\n') == 2  # the list of all versions, and the first of the modern ones
    table.write_text(text.replace('"2026-07-28")\n', '"2026-07-28", "2027-01-01")\n', 1))
    return root


@pytest.mark.timeout(620)
def test_a_revision_is_a_module_and_a_name(copy: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/versions/two_modern_versions.py"],
        cwd=copy, env=environment, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
