"""The suites: each a folder, with its measurement in `suite.py`, or a module where that is all."""
