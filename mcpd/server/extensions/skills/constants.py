"""The constants of the skills extension on the wire."""

from __future__ import annotations

SKILLS = "io.modelcontextprotocol/skills"
"""The extension's id."""

SCHEME = "skill://"
"""What the URIs of all our skills begin with."""

FILE = "SKILL.md"
"""The file that makes a folder a skill."""

DIRECTORY = "inode/directory"
"""The MIME type of a folder."""

MOST_FILES = 512
"""How many files a skill may have that every host has to take."""

MOST_TOTAL_BYTES = 16 * 1024 * 1024
"""How large they may be together."""
