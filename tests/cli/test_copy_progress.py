"""What a copy that breaks off says to its user."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fastflight.cli.copy_progress import BAR_AFTER_SECONDS, copy_progress
from fastflight.cli.exit_codes import Interrupted
from fastflight.errors import DataError, TransportClosed
from tests.support.terminal import terminal


def kept(amount: str) -> str:
    return f"{amount} are kept"


@pytest.mark.parametrize(
    ("done", "describe_rest", "says"), [(1000, kept, r"1000 B of 20\.0 kB are kept"), (0, kept, ""), (1000, None, "")]
)
def test_an_interruption_says_what_stays(done: int, describe_rest: Callable[[str], str] | None, says: str) -> None:
    interrupted = pytest.raises(Interrupted, match=f"^{says}$")
    with interrupted, copy_progress("a", hidden=True, describe_rest=describe_rest) as it:
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


def test_a_copy_that_takes_time_shows_a_bar_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter((0.0, BAR_AFTER_SECONDS / 2, BAR_AFTER_SECONDS))
    monkeypatch.setattr("fastflight.cli.copy_progress.time.monotonic", lambda: next(now, BAR_AFTER_SECONDS))
    with terminal() as shown:
        with copy_progress("demo:/a\x1b", hidden=False) as it:
            it.report(1, 1000, 20_000)
            it.report(1, 5000, 20_000)
        text = shown()
    assert "demo:/a\\x1b" in text and "25%" in text and "5.0/20.0 kB" in text and "1.0/20.0 kB" not in text
    assert text.endswith("\x1b[2K")  # the line is removed


def test_a_copy_that_ends_at_once_shows_no_bar() -> None:
    with terminal() as shown:
        with copy_progress("demo:/a", hidden=False) as it:
            it.report(1, 20_000, 20_000)
        assert shown() == ""
