"""What the plots say, asked of the figures themselves."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb, to_rgba

from fastflight_benchmark import plots
from fastflight_benchmark.suites.flight import summary
from fastflight_benchmark.suites.relay import plots as relay_plots

DESCRIPTION = {
    "suite": "flight",
    "quick": False,
    "runs": 3,
    "machine": {
        "cpu": "Some CPU",
        "cores": 2,
        "memory_gib": 8.0,
        "os": "Linux 6 x86_64",
        "python": "3.11.7",
        "fastflight": "0.1.0",
        "pyarrow": "26.0.1",
        "numpy": "2.4.6",
        "date": "2025-01-01T00:00:00+00:00",
        "load_before": 0.1,
    },
}
pytestmark = pytest.mark.usefixtures("fonts")
DELAYS = (0.0, 1e-6)


def cell(rows: int, requests: int, delay: float, mode: str, throughput: float, std: float = 0.1) -> dict[str, Any]:
    spread = {"avg": throughput, "min": throughput - std, "max": throughput + std, "std": std}
    return {
        "rows_per_batch": rows,
        "concurrent_requests": requests,
        "delay_per_row": delay,
        "mode": mode,
        **{f"{name}_latency_seconds": 1.0 for name in ("avg", "min", "max", "std")},
        **{f"{name}_throughput_mbps": value for name, value in spread.items()},
        "run_count": 3,
        "success_rate": 1.0,
        "avg_data_size_mb": 190.7,
        "limit_mbps": 200.0,
    }


@pytest.fixture
def result() -> pd.DataFrame:
    cells = []
    for delay in DELAYS:
        for rows in (1000, 5000):
            for requests in (1, 3):
                cells += [cell(rows, requests, delay, mode, 100.0) for mode in ("sync", "async")]
    return pd.DataFrame(cells, columns=summary.COLUMNS)


@pytest.fixture(autouse=True)
def _figures_closed() -> Iterator[None]:
    yield
    plt.close("all")


def put(result: pd.DataFrame, rows: int, requests: int, mode: str, **values: float) -> pd.DataFrame:
    chosen = (result["rows_per_batch"] == rows) & (result["concurrent_requests"] == requests) & (result["mode"] == mode)
    result.loc[chosen, list(values)] = list(values.values())
    return result


def text_at(axes: plt.Axes, column: int, row: int) -> str:
    [text] = [text for text in axes.texts if text.get_position() == (column + 0.5, row + 0.5)]
    return text.get_text()


def test_a_heatmap_says_what_is_on_its_axes_and_what_it_was_measured_on(result: pd.DataFrame) -> None:
    figure = plots.heatmap(summary.compare(result), 1e-6, DESCRIPTION)
    axes, bar = figure.axes

    assert axes.get_title(loc="left") == "Throughput of async against sync, 1 µs per row"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("rows per batch", "concurrent requests")
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1,000", "5,000"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["1", "3"]
    assert bar.get_ylabel() == "async to sync, % (blue: async faster)"
    foot = figure.texts[0].get_text().replace("\n", " ")
    assert "Rows of 50 int32" in foot
    assert "Some CPU, 2 cores, 8.0 GiB" in foot
    assert "2025-01-01" in foot


def test_a_loss_stands_out_as_much_as_a_win(result: pd.DataFrame) -> None:
    put(result, 1000, 1, "async", avg_throughput_mbps=120.0)
    put(result, 5000, 3, "async", avg_throughput_mbps=80.0)
    axes = plots.heatmap(summary.compare(result), 0.0, DESCRIPTION).axes[0]
    [mesh] = axes.collections

    assert text_at(axes, 0, 0).startswith("+20.0 %")
    assert text_at(axes, 1, 1).startswith("-20.0 %")
    win, loss = to_rgb(mesh.to_rgba(20.0)), to_rgb(mesh.to_rgba(-20.0))
    assert win[2] > win[0]  # blue
    assert loss[0] > loss[2]  # red


@pytest.mark.parametrize("async_rate", [101.0, 120.0, 640.0])
def test_all_heatmaps_have_one_scale_of_colours(result: pd.DataFrame, async_rate: float) -> None:
    put(result, 1000, 1, "async", avg_throughput_mbps=async_rate)
    [mesh] = plots.heatmap(summary.compare(result), 0.0, DESCRIPTION).axes[0].collections

    assert mesh.get_clim() == (-plots.SCALE, plots.SCALE)
    assert mesh.colorbar is not None and mesh.colorbar.extend == "both"


def test_all_of_a_relays_figures_are_in_the_picture() -> None:
    rates = ("raw_mbps", "plain_mbps", "ours_mbps", "library_mbps")
    cells = [
        dict.fromkeys(rates, 500.0) | {"size_mb": size, "chunk_kb": chunk, "read_kb": read, "raw_mbps": 50.0 * size}
        for size in (10, 100)
        for chunk in (16, 64)
        for read in (16, 128)
    ]
    [figure] = relay_plots.relay(pd.DataFrame(cells), DESCRIPTION | {"elsewhere": {"16": 702.0}}).values()

    for axes in figure.axes:
        low, high = axes.get_ylim()
        assert low == 0
        assert all(value <= high for line in axes.get_lines() for value in line.get_ydata() if value is not None)


def test_a_cell_within_the_spread_of_its_runs_is_grey(result: pd.DataFrame) -> None:
    put(result, 1000, 1, "async", avg_throughput_mbps=104.0, std_throughput_mbps=5.0)
    put(result, 5000, 1, "async", avg_throughput_mbps=104.0, std_throughput_mbps=1.0)
    axes = plots.heatmap(summary.compare(result), 0.0, DESCRIPTION).axes[0]
    [mesh] = axes.collections

    grey = {patch.get_xy() for patch in axes.patches if patch.get_facecolor() == to_rgba(plots.MUTED)}
    assert (0, 0) in grey and (1, 0) not in grey
    assert list(mesh.get_array().mask.flatten()) == [True, False, True, True]


def test_a_cell_says_its_noise_and_its_share_of_the_limit_or_the_reference(result: pd.DataFrame) -> None:
    put(result, 1000, 1, "async", avg_throughput_mbps=104.0, std_throughput_mbps=5.0)
    put(result, 5000, 1, "async", avg_throughput_mbps=104.0, std_throughput_mbps=1.0)
    for mode in ("sync", "async"):
        put(result, 1000, 1, mode, ceiling_mbps=200.0)
        put(result, 5000, 1, mode, ceiling_mbps=math.inf)
    axes = plots.heatmap(summary.compare(result), 0.0, DESCRIPTION).axes[0]

    assert text_at(axes, 0, 0) == "+4.0 % ± 5.0\nof limit: sync 50 %,\nasync 52 %"
    assert text_at(axes, 1, 0) == "+4.0 % ± 1.0\nof reference: sync 50 %,\nasync 52 %"


def test_a_cell_says_how_much_of_it_failed(result: pd.DataFrame) -> None:
    put(result, 1000, 3, "async", avg_throughput_mbps=0.0, success_rate=0.0)
    axes = plots.heatmap(summary.compare(result), 0.0, DESCRIPTION).axes[0]

    assert text_at(axes, 0, 1).endswith("async 0 %\nup to 100 % of requests failed")


def test_bars_show_both_paths_and_the_limit_or_reference_of_every_cell(result: pd.DataFrame) -> None:
    for mode in ("sync", "async"):
        put(result, 5000, 3, mode, ceiling_mbps=200.0)
    put(result, 5000, 3, "sync", avg_throughput_mbps=70.0, min_throughput_mbps=60.0, max_throughput_mbps=75.0)
    figure = plots.throughput(summary.compare(result), result, DESCRIPTION)
    last = figure.axes[3]

    assert [axes.get_title() for axes in figure.axes] == [
        "no delay, 1,000 rows per batch",
        "no delay, 5,000 rows per batch",
        "1 µs per row, 1,000 rows per batch",
        "1 µs per row, 5,000 rows per batch",
    ]
    assert [bar.get_height() for bar in last.patches] == [100.0, 70.0, 100.0, 100.0]
    assert [label.get_text() for label in last.get_xticklabels()] == ["1", "3"]
    assert last.get_ylim()[0] == 0
    assert last.get_ylim()[1] > 200  # the limit is in the picture
    assert figure.axes[2].get_ylabel() == "MiB/s, all requests together"
    assert last.get_xlabel() == "concurrent requests"
    [legend] = figure.legends
    assert {text.get_text() for text in legend.get_texts()} == {"sync", "async", plots.LIMIT, plots.REFERENCE}
