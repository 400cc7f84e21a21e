"""What tests and campaigns share: real targets, an in-memory board, a chaos proxy, a settable clock, the leak check."""
