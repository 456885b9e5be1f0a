"""`everything.py` with skills, which the official conformance suite looks at too; the transcripts are without them."""

from __future__ import annotations

from pathlib import Path

from everything import server

from mcpd import add_skills

add_skills(server, Path(__file__).with_name("skills"))
