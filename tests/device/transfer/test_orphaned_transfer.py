"""A board that a host left in the middle of a write is used again at once; a program of the user's is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastflight.device import Inventory
from fastflight.device.transfer.orphaned_transfer import CTRL_B, KNOCK, LINE, PASTED_LINE, is_orphaned
from fastflight.errors import BusyError, TransportError
from fastflight.protocol import RawRepl, Send
from fastflight_benchmark.simulated import SimulatedBoard
from tests.support.chaos import ChaosProxy
from tests.support.memory import Answer, Silence, play
from tests.support.refusals import refused

CONTENT = bytes(range(256)) * 40


@pytest.mark.parametrize(
    "answer",
    [
        b"A",
        b"AAAE" + b"Traceback (most recent call last):\r\nValueError: damaged\r\n\x04",
        b"EEEEEE",
        b"A" * 20,
        b"\x01\x01",
    ],
)
def test_an_answer_of_ours(answer: bytes) -> None:
    for sizes in ((), (1, 2, 3)):
        played = play(is_orphaned(RawRepl()), [Send(KNOCK), Answer(answer), Silence()], sizes=sizes)
        assert played.result is True


def test_a_prompt_is_free_for_all() -> None:
    answer = b"\x04Traceback (most recent call last):\r\nValueError\r\n\x04>raw REPL; CTRL-B to exit\r\n>"
    assert play(is_orphaned(RawRepl()), [Send(KNOCK), Answer(answer)]).result is True


@pytest.mark.parametrize(
    "answer", [b'{"celsius": 21.5}\r\n', b"Autumn\r\n", b"EHLO\r\n", b"A" * 21, KNOCK + b"\r", b"ETA 5 s\r\n"]
)
def test_any_other_program_is_left_alone(answer: bytes) -> None:
    assert play(is_orphaned(RawRepl()), [Send(KNOCK), Answer(answer), Send(CTRL_B)]).result is False


def test_paste_mode_gives_all_back_and_begins_lines_in_its_own_way() -> None:
    for sizes in ((), (1, 2, 3)):
        for before in (b"", CTRL_B):
            script = [Send(KNOCK), Answer(before + KNOCK), Silence(), Send(LINE), Answer(PASTED_LINE)]
            assert play(is_orphaned(RawRepl()), script, sizes=sizes).result is True


@pytest.mark.parametrize("answer", [[], [Answer(b"\r"), Silence()], [Answer(b"\r\n")], [Answer(b"\r\n=== more")]])
def test_a_program_that_gives_all_back_is_left_alone(answer: list[Answer | Silence]) -> None:
    rest = answer or [Silence()]
    rest = [*rest, Silence()] if answer == [Answer(b"\r\n")] else rest
    script = [Send(KNOCK), Answer(KNOCK), Silence(), Send(LINE), *rest, Send(CTRL_B)]
    assert play(is_orphaned(RawRepl()), script).result is False


def test_a_board_in_paste_mode_is_used_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that changed one bit of Ctrl-A brought it there, and nobody was let in any more."""
    monkeypatch.setattr("fastflight.protocol.raw_repl.ANSWER_SECONDS", 0.3)
    with SimulatedBoard(tmp_path / "board", place=("--listen", "127.0.0.1:0")) as board:
        port = int(board.path.rpartition(":")[2])
        with ChaosProxy("127.0.0.1", port, ["flip:out@0=2"]) as proxy:
            url = f"socket://127.0.0.1:{proxy.port}"
            with Inventory({"board": url}) as inventory, inventory.device("board").lease("a test") as session:
                session.write("/t.bin", iter((CONTENT,)))
        assert (board.folder / "t.bin").read_bytes() == CONTENT


def test_so_is_one_that_says_nothing() -> None:
    assert play(is_orphaned(RawRepl()), [Send(KNOCK), Silence(), Send(CTRL_B)]).result is False


# In the code, a header, a block, between two of them, the digest's answer; and in a short file.
@pytest.mark.parametrize("options", [[], ["--no-interrupt"]])
@pytest.mark.parametrize("at", [800, 2_500, 4_321, 11_000])
def test_the_next_host_has_the_board_at_once(
    tmp_path: Path, at: int, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastflight.protocol.raw_repl.ANSWER_SECONDS", 0.3)  # for who finds it silent
    size = 900 if at == 800 else len(CONTENT)
    with SimulatedBoard(tmp_path / "board", 0, *options, place=("--listen", "127.0.0.1:0")) as board:
        (board.folder / "t.bin").write_bytes(b"old")
        with ChaosProxy("127.0.0.1", int(board.path.rpartition(":")[2]), [f"cut:out@{at}"]) as proxy:
            url = f"socket://127.0.0.1:{proxy.port}"
            with Inventory({"board": url}) as first, pytest.raises(TransportError):
                with first.device("board").lease("a test") as session:
                    session.write("/t.bin", iter((CONTENT[:size],)))
            assert (board.folder / "t.bin").read_bytes() == b"old"
            with Inventory({"board": url}) as second, second.device("board").lease("the next host") as session:
                assert b"".join(session.read("/t.bin")) == b"old"
                session.write("/t.bin", iter((CONTENT,)))
        assert (board.folder / "t.bin").read_bytes() == CONTENT


def test_a_program_that_runs_is_still_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastflight.protocol.raw_repl.ANSWER_SECONDS", 0.3)
    (tmp_path / "board").mkdir()
    (tmp_path / "board" / "main.py").write_text("import time\nwhile True:\n time.sleep(1)\n")
    with Inventory({"board": f"sim:?files={tmp_path / 'board'}"}) as inventory:
        with refused(BusyError, holder="the board's own program"), inventory.device("board").lease("a test"):
            pass
