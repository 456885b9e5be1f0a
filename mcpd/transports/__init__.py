"""Channels over real media: stdio, WebSocket, HTTP, and the in-memory pair. Framing and limits, no protocol rules."""
