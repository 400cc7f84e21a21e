"""Commands with + between them. `sim:` is another board for each client: only a shared one keeps state."""

from __future__ import annotations

from collections.abc import Callable

from click.testing import Result

Run = Callable[..., Result]


def test_a_board_without_a_server_keeps_its_variables(run: Run) -> None:
    board = "--device=sim:?telemetry=0"
    result = run("exec", board, "x = 6", "+", "eval", "x * 7", "+", "exec", "print(x)")
    assert (result.stdout, result.exit_code) == ("42\n6\n", 0)


def test_another_device_is_another_board(run: Run) -> None:
    boards = [f"--device=sim:?telemetry=0&seed={seed}" for seed in (1, 2)]
    result = run(
        "exec", boards[0], "x = 1", "+", "exec", boards[1], "x = 2", "+", "eval", boards[0], "x", "+", "eval", "x"
    )
    assert result.stdout == "1\n1\n"


def test_the_first_failure_ends_the_chain(run: Run) -> None:
    result = run("eval", "demo", "1", "+", "eval", "demo", "1/0", "+", "eval", "demo", "2")
    assert (result.stdout, result.exit_code) == ("1\n", 1)
    assert "ZeroDivisionError" in result.stderr
