"""What users ask is answered by the first pages of a result: trees of documents that others wrote."""

from __future__ import annotations

import tomllib
from pathlib import Path

from mcpd.docs.library import Library
from mcpd.docs.settings import DocsSettings

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
