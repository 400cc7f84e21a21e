"""The relay: a WebSocket for each TCP connection to an allowed target."""
