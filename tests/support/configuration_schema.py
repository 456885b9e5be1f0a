"""Writes `assets/mcpd.schema.json` anew, after a change of what mcpd.toml may say."""

from __future__ import annotations

import json
from pathlib import Path

from mcpd.sources.scaffold import configuration_schema, shipped_file

__all__ = ["written"]


def written() -> str:
    """The text of the file."""
    return json.dumps(configuration_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    Path(shipped_file()).write_text(written(), encoding="utf-8")
