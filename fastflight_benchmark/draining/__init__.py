"""Clients of a server that is told to end, and what the next one finds, for `drain_campaign`."""
