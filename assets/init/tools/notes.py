"""Each public function with types is a tool; its docstring tells models what it does."""

from __future__ import annotations

_notes = ["Water the north bed"]


def add_note(text: str) -> int:
    """Save a note, and return the number of notes.

    Args:
        text: What to remember.
    """
    _notes.append(text)
    return len(_notes)


def list_notes(containing: str = "") -> list[str]:
    """List the notes, newest last.

    Args:
        containing: Only those with this text.
    """
    return [note for note in _notes if _contains(note, containing)]


def _contains(note: str, text: str) -> bool:
    """A helper: what begins with an underscore is no tool."""
    return text.lower() in note.lower()
