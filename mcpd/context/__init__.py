"""What a handler is given besides its params, and what of it authors see: who asks, and ways to talk back."""

from .context import Context
from .exchange import Exchange

__all__ = ["Context", "Exchange"]
