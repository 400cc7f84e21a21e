"""Identities and their rights: tokens, certificates and scopes. Also the actions that servers run for callers."""
