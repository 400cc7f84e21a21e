"""The relay: TCP streams to allowed targets, over a WebSocket."""
