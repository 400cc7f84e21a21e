"""What a copy that breaks off says to its user."""

from __future__ import annotations

import pytest

from fastflight.cli.copy_progress import Bar, bar_line, copy_progress
from fastflight.cli.exit_codes import Interrupted
from fastflight.errors import DataError, TransportClosed


def kept(amount: str) -> str:
    return f"{amount} are kept"


def test_an_interruption_says_what_stays() -> None:
    with (
        pytest.raises(Interrupted, match=r"^1000 B of 20\.0 kB are kept$"),
        copy_progress("a", hidden=True, describe_rest=kept) as it,
    ):
        it.report(1, 1000, 20_000)
        raise KeyboardInterrupt


@pytest.mark.parametrize("done", [0, 1000])
def test_nothing_is_said_to_stay_that_does_not(done: int) -> None:
    with (
        pytest.raises(Interrupted, match="^$"),
        copy_progress("a", hidden=True, describe_rest=None if done else kept) as it,
    ):
        it.report(1, done, 20_000)
        raise KeyboardInterrupt


def test_a_lost_line_says_what_stays_after_what_to_do() -> None:
    with pytest.raises(TransportClosed) as raised, copy_progress("a", hidden=True, describe_rest=kept) as it:
        it.report(1, 1000, None)
        raise TransportClosed("the server went away", hint="Connect again")
    assert str(raised.value) == "the server went away. Connect again. 1000 B are kept"


def test_other_failures_are_left_alone() -> None:
    with pytest.raises(DataError) as raised, copy_progress("a", hidden=True, describe_rest=kept) as it:
        it.report(1, 1000, None)
        raise DataError("bad")
    assert str(raised.value) == "bad"


def test_resuming_is_said_once_and_not_to_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    for hidden in (False, True):
        with copy_progress("demo:/a", hidden=hidden) as it:
            it.resuming(1000, 20_000)
        assert (it.done, it.total) == (1000, 20_000)
    assert capsys.readouterr().err == "demo:/a: resuming at 1000 B of 20.0 kB\n"


LINES = [
    ("demo:/a", 0, None, 0.0, 80, "demo:/a  0 B  0 B/s"),
    (
        "demo:/a",
        5_000,
        20_000,
        2500.0,
        80,
        "demo:/a  [#####---------------]  25%  5000 B of 20.0 kB  2500 B/s  6 s left",
    ),
    ("demo:/a", 20_000, 20_000, 0.0, 80, "demo:/a  [####################] 100%  20.0 kB of 20.0 kB  0 B/s"),
    # A file that grew.
    ("demo:/a", 30_000, 20_000, 0.0, 80, "demo:/a  [####################] 100%  30.0 kB of 20.0 kB  0 B/s"),
    # The label gives way first, also by the columns that its characters take.
    ("demo:/a", 0, None, 0.0, 18, "demo:  0 B  0 B/s"),
    ("目目目", 0, None, 0.0, 18, "目目  0 B  0 B/s"),
    ("demo:/a", 0, None, 0.0, 8, "  0 B  "),
    ("a\x1bb", 0, None, 0.0, 80, "a\\x1bb  0 B  0 B/s"),
]


@pytest.mark.parametrize(("label", "done", "total", "rate", "width", "line"), LINES)
def test_the_line_of_a_bar(label: str, done: int, total: int | None, rate: float, width: int, line: str) -> None:
    assert bar_line(label, done, total, rate, width) == line


def test_a_bar_is_drawn_over_itself_now_and_then_and_removed(capsys: pytest.CaptureFixture[str]) -> None:
    now = iter((0.0, 10.0, 11.0, 11.01, 12.0))
    bar = Bar(clock=lambda: next(now))
    bar.start_at(1000)
    bar.move(2000, None, "demo:/long")
    bar.move(2500, None, "not drawn: too soon")
    bar.move(3000, None, "demo:/a")
    bar.clear()
    first, last = "demo:/long  2000 B  1000 B/s", "demo:/a  3000 B  1000 B/s"
    assert capsys.readouterr().err == f"\r{first}\r{last}   \r{' ' * len(last)}\r"
