"""Streamable HTTP, 2025-03-26 to 2026-07-28 on one endpoint, as an ASGI application.

`app` routes and guards, `modern` and `legacy` are the two eras, `listener` runs it with uvicorn.
"""

from .app import HttpApp
from .core import HttpSettings

__all__ = ["HttpApp", "HttpSettings"]
