"""What the plots beside peers say, asked of the figures themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from fastflight_benchmark.suites.flight import peer_plots, summary
from fastflight_benchmark.suites.requests import summary as requests_summary
from tests.benchmark.test_plots import DESCRIPTION

pytestmark = pytest.mark.usefixtures("fonts")


@pytest.fixture(autouse=True)
def _figures_closed() -> Iterator[None]:
    yield
    plt.close("all")


def served(rows: int, readers: int, mode: str, throughput: float, **other: Any) -> dict[str, Any]:
    cell = dict.fromkeys(summary.SERVER_COLUMNS, 1.0) | {"variant": "default", "delay_per_row": 0.0}
    cell |= {"rows_per_batch": rows, "concurrent_requests": readers, "mode": mode, "throughput_mbps": throughput}
    return cell | {"min_throughput_mbps": throughput - 10, "max_throughput_mbps": throughput + 10} | other


SERVERS = pd.DataFrame(
    [
        *(served(40, readers, "bare", 1000.0) for readers in (1, 3, 64)),
        *(served(40, readers, "async", 800.0, first_batch_seconds=0.003) for readers in (1, 3, 64)),
        served(10_000, 1, "bare", 2000.0),
        served(10_000, 64, "bare", 2000.0),
        served(10_000, 1, "async", 9999.0, delay_per_row=1e-6),
    ]
)


def written(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def test_bars_name_throughput_and_how_many_times_bare_it_is() -> None:
    small, large, small_many, _ = peer_plots.peers(SERVERS, DESCRIPTION).axes

    assert small.get_title() == "batches of 8 kB, 1 reader"
    assert written(small) == ["1,000", "800\n×0.80"]
    assert small_many.get_title() == "batches of 8 kB, 64 readers"
    assert written(large) == ["2,000"]  # what has a delay is not in it


def test_time_to_the_first_row_is_in_milliseconds_by_readers() -> None:
    small, large = peer_plots.first_batch(SERVERS, DESCRIPTION).axes
    by_label = {line.get_label(): line for line in small.get_lines()}

    assert list(by_label["fastflight async"].get_ydata()) == pytest.approx([3.0, 3.0, 3.0])
    assert list(by_label["fastflight async"].get_xdata()) == [1, 3, 64]
    assert large.get_title() == "batches of 2 MB"


def test_small_requests_have_a_rate_and_a_tail_for_each_load() -> None:
    common = dict.fromkeys(requests_summary.COLUMNS, 1.0)
    result = pd.DataFrame(
        [
            common
            | {"operation": "do_get", "load": load, "connections": count, "mode": mode, "per_second": 50.0 * count}
            for load in ("ghz", "flight-client")
            for count in (1, 64)
            for mode in ("bare", "sync")
        ]
    )
    axes = peer_plots.requests(result, DESCRIPTION)["rates"].axes

    assert [one.get_title() for one in axes] == [
        "do_get per second (load: ghz)",
        "do_get, p99 in ms (load: ghz)",
        "do_get per second (load: flight-client)",
        "do_get, p99 in ms (load: flight-client)",
    ]
    assert list(axes[0].get_lines()[0].get_ydata()) == [50.0, 3200.0]
