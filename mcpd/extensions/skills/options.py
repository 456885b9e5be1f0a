"""What skills let authors say of a whole server, which is nothing."""

from __future__ import annotations

from typing import TypedDict


class SkillsServerOptions(TypedDict, total=False):
    """The keywords of `SkillsExtension`."""
