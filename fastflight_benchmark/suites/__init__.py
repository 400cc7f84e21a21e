"""The suites. Each is a folder whose `suite.py` measures, or a single module."""
