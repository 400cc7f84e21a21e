"""Bytes that nobody meant to send: a small target for each parser, and a driver that looks for what breaks them.

A target takes bytes and checks what must hold of them, whatever they are; only the documented errors may come out of
the parser, and the target catches those. Tests with `@given` are targets, too. `python -m tests.campaigns fuzz` runs
targets under atheris, which mutates what reaches new code; the normal tests run each over its seeds, over what once
broke it, and over some of hypothesis's bytes.
"""
