"""Fixtures of the benchmark's tests."""

from __future__ import annotations

import io

import pytest
from matplotlib import pyplot as plt

from fastflight_benchmark import plots


@pytest.fixture(scope="session")
def fonts() -> None:
    """Draws once: matplotlib keeps the files of its fonts open, which is no leak of the test that draws first."""
    figure, axes = plt.subplots()
    axes.set_title("any text")
    figure.savefig(io.BytesIO(), dpi=plots.DPI)
    plt.close(figure)
