"""WebSockets: the rows of a request, a terminal, and the one-time tickets that open them."""
