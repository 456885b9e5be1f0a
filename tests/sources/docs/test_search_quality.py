"""What users ask is answered by the first pages of a result: trees of documents that others wrote."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from support.folders import indexed

from mcpd.sources.docs.library import Library
from mcpd.sources.docs.page import DocsSettings

HERE = Path(__file__).resolve().parent


async def missed(library: Library, questions: dict[str, list[str]], first: int = 3) -> list[str]:
    """The questions whose first hits have no page that answers them."""
    found = []
    for question, answers in questions.items():
        hits = [hit.path for hit in (await library.search(question, limit=first)).hits]
        if not set(hits) & set(answers):
            found.append(f"{question}: {', '.join(hits)}")
    return found


async def test_questions_about_terragrunt(shared: Path) -> None:
    folder = shared / "data" / "terragrunt-docs"
    asked = tomllib.loads((HERE / "terragrunt_questions.toml").read_text(encoding="utf-8"))["questions"]
    assert len(asked) >= 60
    assert not [path for answers in asked.values() for path in answers if not (folder / path).is_file()]
    library = Library(str(folder), DocsSettings(search_wait=60))
    try:
        wrong = await missed(library, asked)
        assert len(wrong) <= len(asked) * 0.1, "\n".join(wrong)
    finally:
        await library.aclose()


async def test_questions_about_this_project() -> None:
    asked = {
        "serve a folder of documents": ["folders.md", "documents.md", "docs.md", "serving-documents.md"],
        "what may be in mcpd.toml": ["reference/mcpd-toml.md"],
        "limit the memory of a session": ["reference/limits.md"],
        "record what a host and a server say to each other": ["troubleshooting.md"],
        "test a tool with pytest": ["testing.md"],
        "several servers behind one": ["client.md", "combine-servers.md"],
        "show a table or a chart for a result": ["views.md"],
        "use it without asyncio": ["client.md"],
        "who is calling my tool": ["authorization.md"],
        "why is my server not starting": ["troubleshooting.md"],
    }
    library = Library(str(HERE.parents[2] / "docs"), DocsSettings(search_wait=60))
    try:
        wrong = await missed(library, asked)
        assert len(wrong) <= 1, "\n".join(wrong)
    finally:
        await library.aclose()


PYTHON = {
    "join paths": ["library/os.path.html", "library/pathlib.html"],
    "read a csv file": ["library/csv.html"],
    "how to parse command line arguments": ["library/argparse.html", "howto/argparse.html"],
    "run a subprocess with a timeout": ["library/subprocess.html", "library/asyncio-subprocess.html"],
    "json.dumps indent": ["library/json.html"],
    "regular expression lookahead": ["library/re.html", "howto/regex.html"],
    "context manager for temporary directory": ["library/tempfile.html"],
    "what is the GIL": ["glossary.html", "c-api/init.html"],
    "sort a list by key": ["howto/sorting.html"],
    "asyncio gather": ["library/asyncio-task.html"],
    "sqlite placeholder parameters": ["library/sqlite3.html"],
    "threading lock": ["library/threading.html"],
}


@pytest.mark.slow
async def test_questions_about_python() -> None:
    """HTML that others made: Debian's python3-doc, installed, or unpacked by `make setup`."""
    places = Path("/usr/share/doc"), HERE.parents[2] / ".tools" / "python-doc" / "usr" / "share" / "doc"
    folders = [page for place in places for page in sorted(place.glob("python3*/html/library/csv.html"))]
    if not folders:
        pytest.skip("needs the pages of Debian's python3-doc: make setup fetches them")
    library = Library(str(folders[-1].parents[1]), DocsSettings(search_wait=150, exclude=("genindex*",)))
    try:
        assert (await indexed(library, 150)).is_complete
        wrong = await missed(library, PYTHON)
        assert len(wrong) <= 1, "\n".join(wrong)
        entry = (await library.look_up("os.path.join")).entries[0]
        assert entry.path == "library/os.path.html"
        assert entry.text.startswith("- `os.path.join(")
        assert (await library.find_code("TemporaryDirectory")).hits[0].language == "python3"
        assert not library.left_out
    finally:
        await library.aclose()
