"""Identities and what they may do: tokens and certificates, scopes, and the actions that are carried out for them."""
