"""What is computed from figures: ratios, verdicts, tables of cells, and what is refused."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from fastflight.errors import DataError, RequestError
from fastflight_benchmark import compare, engine, result
from fastflight_benchmark.against import together
from fastflight_benchmark.engine import LESS, MORE, NEUTRAL, Bench, Measure, Suite
from fastflight_benchmark.result import Result, Row, difference
from fastflight_benchmark.suites import flight, relay, transfer
from fastflight_benchmark.table import ceiling_mbps

MACHINE = {"cpu": "any", "cores": 2, "memory_gib": 4}
SUITE = Suite("any", "Any", {"rate": Measure("1/s", MORE), "time": Measure("s", LESS)}, ("ours",), ("peer",), print)


def row(*values: float | None, contender: str = "ours", better: str = MORE, **cell: int) -> Row:
    return Row(dict(cell), contender, "rate", "1/s", better, list(values))


def made(*rows: Row, suite: str = "any") -> Result:
    return Result({"suite": suite, "ours": ["ours"], "references": ["peer"], "machine": MACHINE}, rows)


@pytest.mark.parametrize(
    ("old", "new", "better", "verdict", "speed"),
    [
        ([100, 100, 100], [80, 85, 79], MORE, compare.SLOWER, 0.80),
        ([100, 100, 100], [80, 101, 79], MORE, compare.SAME, 0.80),  # a round contradicts
        ([100, 100, 100], [95, 94, 96], MORE, compare.SAME, 0.95),  # within the threshold
        ([100, 100, 100], [130, 120, 125], MORE, compare.FASTER, 1.25),
        ([1.0, 1.0, 1.0], [2.0, 1.9, 2.1], LESS, compare.SLOWER, 0.5),
        ([1.0, 1.0, 1.0], [0.5, 0.5, 0.4], LESS, compare.FASTER, 2.0),
        ([100, None, 100], [50, 200, None], MORE, compare.SLOWER, 0.5),  # only the first round has both
        ([100, 50], [None, None, 40], MORE, compare.SLOWER, 40 / 75),  # no round has both: their medians
    ],
)
def test_a_row_is_judged_by_all_its_rounds(
    old: Sequence[float | None], new: Sequence[float | None], better: str, verdict: str, speed: float
) -> None:
    (change,) = compare.compare(made(row(*old, better=better)), made(row(*new, better=better)), 0.1)
    assert change.verdict == verdict
    assert change.speed == pytest.approx(speed)


def test_peers_are_a_control_and_neutral_figures_are_left_out() -> None:
    old = made(row(100), row(100, contender="peer"), row(100, better=NEUTRAL, clients=2), row(1, clients=3))
    new = made(row(10), row(10, contender="peer"), row(10, better=NEUTRAL, clients=2), row(1, clients=4))
    changes = compare.compare(old, new, 0.1)
    screen = io.StringIO()

    assert [(change.new.contender, change.verdict) for change in changes] == [
        ("ours", compare.SLOWER),
        ("peer", compare.CONTROL),
    ]
    assert compare.show(Console(file=screen, width=200), changes, 0.1) == 1
    assert "1 of 1 rows are slower by more than 10 %" in screen.getvalue()


def test_results_without_anything_in_common_are_refused() -> None:
    with pytest.raises(DataError, match="of any and one of other"):
        compare.compare(made(row(1)), made(row(1), suite="other"), 0.1)
    with pytest.raises(DataError, match="no row in common"):
        compare.compare(made(row(1, clients=1)), made(row(1, clients=2)), 0.1)


def test_the_turns_of_a_checkout_become_rounds() -> None:
    whole = together([made(row(1, 9, 2), row(5, clients=2)), made(row(4, None, 6))])
    assert [each.values for each in whole.rows] == [[2, 5], [5]]


@pytest.mark.parametrize(
    "content",
    ["", "{}", "[1]", '{"description": {}, "rows": []}', '{"description": {"suite": "a"}, "rows": [{"cell": {}}]}'],
)
def test_another_file_is_no_result(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(DataError, match="is not a result"):
        result.load(tmp_path / "a.json")


def test_the_csv_has_the_medians_and_their_ratio_to_the_reference(tmp_path: Path) -> None:
    found = made(row(2, 8, 3, clients=1), row(4, 4, None, clients=1, contender="peer"))
    result.save(tmp_path / "a.json", found)
    ours, peer = csv.DictReader((tmp_path / "a.csv").read_text().splitlines())
    expected = {"clients": "1", "contender": "ours", "median": "3", "lowest": "2", "highest": "8", "count": "3"}
    assert expected.items() <= ours.items()
    assert (ours["reference"], ours["ratio"]) == ("peer", "1.25")  # of 2 by 4, and 8 by 4
    assert (peer["count"], peer["reference"]) == ("2", "")
    assert json.loads((tmp_path / "a.json").read_text())["rows"][1]["values"] == [4, 4, None]


def test_contenders_take_turns_and_figures_keep_their_round() -> None:
    bench = Bench(SUITE, Console(file=io.StringIO()), runs=2)
    assert [bench.order(("a", "b", "c"), round_) for round_ in bench.rounds()] == [("a", "b", "c"), ("c", "b", "a")]
    with bench.attempt({"clients": 1}, "ours"):
        raise DataError("wrong rows")
    bench.add({"clients": 1}, "ours", 2, rate=1234.5678, time=float("nan"))
    found = bench.result(MACHINE)
    assert [(one.measure, one.values) for one in found.rows] == [("rate", [None, 1234.57])]
    assert found.description["errors"] == ["ours, clients 1: wrong rows"]


@pytest.mark.parametrize(
    ("only", "says"),
    [
        ({"rows": "1"}, "no cell has 'rows'. Keys: clients, server"),
        ({"clients": "3"}, "no cell has clients=3. Use one of: 1, 2"),
        ({"server": "ours", "clients": "2"}, "any: no cell was measured"),
    ],
)
def test_cells_that_do_not_exist_are_refused(only: dict[str, str], says: str) -> None:
    chosen = {key: frozenset({value}) for key, value in only.items()}
    bench = Bench(SUITE, Console(file=io.StringIO()), only=chosen)
    wanted = [bench.wants({"clients": clients}, name) for clients, name in ((1, "ours"), (2, "peer"))]
    assert not any(wanted)
    with pytest.raises(RequestError) as refused:
        bench.result(MACHINE)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sizes=x", "not a number"),
        ("rounds=1,2", "not possible"),
        ("sizes=-1", "not possible"),
        ("wishes=1", "no size"),
    ],
)
def test_sizes_are_set_by_name(text: str, says: str) -> None:
    assert engine.overridden(relay.QUICK, {"sizes": "1,2", "rounds": "5"}) == relay.Scope((1, 2), (64,), (16, 128), 5)
    name, _, value = text.partition("=")
    with pytest.raises(RequestError, match=says):
        engine.overridden(relay.QUICK, {name: value})


def test_async_is_compared_by_the_mean_and_the_spread_of_a_difference() -> None:
    assert difference(row(90, 110), row(120, 120)) == pytest.approx((20.0, 14.142), abs=1e-3)
    assert difference(row(100), row(50)) == (-50.0, 0.0)


def test_readers_share_large_tables_and_the_source_sets_the_limit() -> None:
    sweep = {"rows": (1_000,), "clients": (1, 64), "delays": (0, 10), "total_rows": 1_000_000}
    steps = list(flight.plan(sweep, flight.FULL, True, 2))
    assert [(step.clients, step.request.total_rows) for step in steps] == [
        (1, 1_000_000), (1, 100_000), (64, 31_000), (64, 15_000),
    ]  # fmt: skip
    assert ceiling_mbps(steps[1].request) == pytest.approx(200 / 1e-5 / 2**20)
    assert [step.rounds for step in steps] == [range(4, 7), range(2, 3), range(3, 5), range(2, 3)]


def test_transfers_that_take_long_are_left_out() -> None:
    visits = list(transfer.plan(transfer.FULL, 2))
    assert max(transfer.seconds(visit.line, visit.size) for visit in visits) <= 2
    assert {visit.line for visit in visits} == set(transfer.FULL.lines)
