"""Completions of the arguments of prompts and resource templates."""

from typing import Literal

from mcpd import Server

server = Server("GitHub Explorer")

LANGUAGES = ["go", "javascript", "python", "rust", "typescript"]
REPOS_BY_OWNER = {
    "modelcontextprotocol": ["python-sdk", "typescript-sdk", "inspector"],
    "pydantic": ["pydantic", "pydantic-ai", "logfire"],
}


@server.resource("github://repos/{owner}/{repo}")
def github_repo(owner: str, repo: str) -> str:
    """A GitHub repository."""
    return f"Repository: {owner}/{repo}"


@server.prompt
def review_code(language: str, code: str, depth: Literal["quick", "thorough"] = "quick") -> str:
    """Review a snippet of code. The values of `depth` are completed without a function."""
    return f"Give this {language} code a {depth} review:\n{code}"


@server.completion("language", prompt="review_code")
def complete_language(value: str) -> list[str]:
    return LANGUAGES


@server.completion("repo", template="github://repos/{owner}/{repo}")
async def complete_repo(value: str, others: dict[str, str]) -> list[str]:
    return REPOS_BY_OWNER.get(others.get("owner", ""), [])


if __name__ == "__main__":
    server.run(stdio=True)
