"""Channels over real media: stdio, WebSocket, and the in-memory pair. Framing and limits, no protocol rules."""
