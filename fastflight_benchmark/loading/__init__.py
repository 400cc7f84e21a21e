"""Processes that put load on a server: Flight clients, and ghz if it is available."""
