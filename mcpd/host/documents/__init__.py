"""The documents of Views: `ui://` resources read, checked and kept, and the policy each is shown under."""

from __future__ import annotations

__all__: list[str] = []
