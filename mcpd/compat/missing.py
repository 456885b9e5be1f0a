"""What is raised for names and modules of another library that are not here: one line that says so, and what to do."""

from __future__ import annotations

__all__ = ["MissingModule", "MissingName", "text_of"]


class MissingName(ImportError):
    """`from module import name`, for a name that is not here."""


class MissingModule(ModuleNotFoundError):
    """`import module`, for a module that is not here."""


def text_of(name: str, library: str) -> str:
    """What they say."""
    return (
        f"{name} is not among what mcpd.compat has of {library}; "
        "run the server with its own library, in a process of its own"
    )
