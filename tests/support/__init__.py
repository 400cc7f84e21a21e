"""What tests and campaigns share: waits, servers, clocks, refusals, real targets, an in-memory board, the leak check.

`tests/README.md` says which helper does what.
"""
