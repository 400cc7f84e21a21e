"""What Arrow opens once per process must not look like a leak of the first test that uses it."""

from __future__ import annotations

import io

import pyarrow.csv
import pytest


@pytest.fixture(scope="session", autouse=True)
def _arrows_signal_pipe() -> None:
    """Arrow's cancellable readers open a pipe for Ctrl-C when the first of them runs, and keep it."""
    pyarrow.csv.read_csv(io.BytesIO(b"a\n1\n"))
