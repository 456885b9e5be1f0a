"""The patterns that texts of mcpd.toml are held to, and what they ask for in words, with an example of each."""

from __future__ import annotations

FILES_URI = r"^(?!ui:)[A-Za-z][A-Za-z0-9+.-]*:[A-Za-z0-9._~/-]+$"
PAGES_URI = r"^(?!ui:)[A-Za-z][A-Za-z0-9+.-]*:[A-Za-z0-9._~/-]+/$"
BASE_URL = r"^https?://[^\s?#]+/$"
SKILL_PREFIX = r"^[A-Za-z0-9._~-]+(/[A-Za-z0-9._~-]+)*$"
TOOL_NAME = r"^[A-Za-z0-9_.-]{1,128}$"
ARGUMENT = r"^[A-Za-z_][A-Za-z0-9_]{0,63}$"

_WORDS = {
    FILES_URI: 'the beginning of URIs, with a scheme that is not ui, as "notes://team/"',
    PAGES_URI: 'the beginning of URIs, with a scheme that is not ui and / at its end, as "handbook://"',
    BASE_URL: 'a URL of http or https with / at its end and neither ? nor #, as "https://docs.example.com/guide/"',
    SKILL_PREFIX: 'names with / between them, of letters, digits and any of . _ ~ -, as "acme/billing"',
    TOOL_NAME: 'a name of up to 128 letters, digits and any of _ . -, as "search_handbook"',
    ARGUMENT: 'a name of up to 64 letters, digits and _ that does not begin with a digit, as "max_results"',
}


def in_words(text: str) -> str:
    """What a value should have been; `text` is what msgspec says of it, with the pattern."""
    return next((f"expected {words}" for pattern, words in _WORDS.items() if repr(pattern) in text), text)
