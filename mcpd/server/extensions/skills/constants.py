"""The constants of the skills extension."""

from __future__ import annotations

SKILLS = "io.modelcontextprotocol/skills"
"""The extension's id."""

SCHEME = "skill://"
"""The URI scheme of skills."""

FILE = "SKILL.md"
"""The file that makes a folder a skill."""

DIRECTORY = "inode/directory"
"""The MIME type of a folder."""

MOST_FILES = 512
"""The number of files of a skill that every host must accept."""

MOST_TOTAL_BYTES = 16 * 1024 * 1024
"""The total size of the files of a skill that every host must accept."""
