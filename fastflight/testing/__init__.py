"""The shipped test support."""
