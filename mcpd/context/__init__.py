"""What a handler is given besides its params: the request it serves, and ways to talk back to the client."""

from .core import Context, Peer

__all__ = ["Context", "Peer"]
