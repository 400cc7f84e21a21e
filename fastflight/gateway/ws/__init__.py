"""WebSockets: what they have in common, a terminal, and the one-time tickets that open them."""
