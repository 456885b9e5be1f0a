"""A client of ours as someone who is asked, beside `Dialogue`, which asks a process."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from msgspec.json import decode

from mcpd.client import Client
from mcpd.doctor.dialogue import Answer, NoAnswer
from mcpd.errors import McpdError, RemoteError
from mcpd.protocol.printable import printable


class ClientPeer:
    """A client as someone who is asked: errors are answers, silence is none."""

    def __init__(self, client: Client, timeout: float) -> None:
        self._client = client
        self._timeout = timeout

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> Answer:
        """Ask, and wait. Raises NoAnswer."""
        began = time.monotonic()
        try:
            result = await self._client.request(method, params)
        except RemoteError as error:
            return Answer(time.monotonic() - began, error=f"error {error.code}: {error}", code=error.code)
        except (McpdError, TimeoutError) as error:
            raise NoAnswer(f"did not answer {method}: {printable(error, 300)}") from None
        found = decode(result)
        return Answer(time.monotonic() - began, found if isinstance(found, dict) else None, size=len(result))
