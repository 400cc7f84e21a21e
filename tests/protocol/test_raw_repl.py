"""The raw REPL against transcripts, whole and split at any point."""

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.errors import BusyError, DeviceMemory, ProtocolError, TransportClosed, TransportTimeout
from fastflight.own_code import BEGIN, ECHO, RUN, RUN_IN_MAIN
from fastflight.protocol import Conversation, Output, RawRepl, Send
from fastflight.protocol.inbox import MAX_SKIPPED_BYTES
from fastflight.protocol.raw_repl import (
    BURST_BYTES,
    MAX_ANSWER_BYTES,
    MAX_TRACEBACK_BYTES,
    PLAIN_BYTES,
    PROMPT,
    split_output,
)
from tests.support.memory import Answer, Entry, HangUp, Silence, abandon, play
from tests.support.refusals import refused

ENTER: list[Entry] = [Send(b"\x01"), Answer(PROMPT)]
SIZES = st.lists(st.integers(1, 40), max_size=60)


def repl(paste: bool | None = False) -> RawRepl:
    return RawRepl(paste)


def run(board: RawRepl, code: bytes) -> Conversation[Output]:
    """Run a user's code, which is sent as it is."""
    yield from board.submit_in_program(code)
    return (yield from board.output(1))


def follow(board: RawRepl, code: bytes) -> Conversation[bytes]:
    """As `run`, and deliver the output."""
    yield from board.submit_in_program(code)
    return (yield from board.deliver(1))


def entered(board: RawRepl) -> RawRepl:
    play(board.enter(), ENTER)
    return board


def test_enters_from_the_prompt_and_leaves_again() -> None:
    board = entered(repl())
    assert board.entered
    play(board.leave(), [Send(b"\x02")])
    assert not board.entered


@given(SIZES)
def test_enters_whatever_stands_before_the_banner(sizes: list[int]) -> None:
    board = repl()
    play(board.enter(), [Send(b"\x01"), Answer(b'{"ms": 1}\r\n>>> \r\n' + PROMPT)], sizes=sizes)
    assert board.entered


def test_a_running_program_is_left_alone_and_said_to_be_in_the_way() -> None:
    board = repl()
    with refused(BusyError, holder="the board's own program"):
        play(board.enter(), [Send(b"\x01"), Silence(), Send(b"\x02")])
    assert not board.entered


def test_a_board_that_boots_is_asked_again() -> None:
    board = repl()
    play(board.enter(attempts=2), [Send(b"\x01"), Silence(), *ENTER, *echo(board)])
    assert board.entered


def test_a_program_that_prints_without_end_is_busy_too() -> None:
    noise = Answer(b"x" * (1 << 21))
    with pytest.raises(BusyError):
        play(repl().enter(), [Send(b"\x01"), noise, Send(b"\x02")])


def test_a_line_that_closes_is_not_a_busy_board() -> None:
    with pytest.raises(TransportClosed):
        play(repl().enter(), [Send(b"\x01"), HangUp()])


def echo(board: RawRepl, number: int = 1) -> list[Entry]:
    token = f"{number:03x}-{id(board) & 0xFFFFFF:06x}"
    return [Send(f"{ECHO.format(token=token)}\x04".encode()), Answer(f"OK{token}\x04\x04>".encode())]


FIRST_ATTEMPT = Send(b"\x03\x03\x01")
POLITE_ATTEMPT = Send(b"\x03\x01")
LATER_ATTEMPT = Send(b"\x03" * BURST_BYTES + b"\x01")
# A wait of a second for the raw REPL.
NO_ANSWER = [Silence()] * 4
UNANSWERED: list[Entry] = [FIRST_ATTEMPT, *NO_ANSWER, LATER_ATTEMPT, *NO_ANSWER, LATER_ATTEMPT, *NO_ANSWER]


def recovery(board: RawRepl, number: int = 1, before: bytes = b"", send: Send = FIRST_ATTEMPT) -> list[Entry]:
    return [send, Answer(before + PROMPT, may_wait=True), *echo(board, number)]


@given(SIZES)
def test_recovers_from_any_state(sizes: list[int]) -> None:
    board = repl()
    play(board.recover(), recovery(board, 1, b"\x04Traceback\r\nKeyboardInterrupt\r\n\x04>" + PROMPT), sizes=sizes)
    assert board.entered


def test_recovery_tries_again_when_the_first_attempt_is_lost() -> None:
    board = repl()
    play(board.recover(), [FIRST_ATTEMPT, *NO_ANSWER, *recovery(board, send=LATER_ATTEMPT)])
    assert board.entered


def test_a_program_cleans_up_before_it_gets_another_ctrl_c() -> None:
    board = repl()
    cleaning: list[Entry] = [POLITE_ATTEMPT, *[Silence()] * 11, Answer(b"cleaned\r\n" + PROMPT), *echo(board)]
    play(board.recover(grace=3.0), cleaning)
    assert board.entered


@pytest.mark.parametrize("typed", [b"", b"half a line"])
def test_a_prompt_that_has_lost_its_ctrl_a_gets_another(typed: bytes) -> None:
    board = repl()
    ended = Answer(b"cleaned\r\n>>> " + typed)
    again = [Send(b"\x03\x01"), Answer(b"\r\n>>> \r\n" + PROMPT)]
    play(board.recover(grace=3.0), [POLITE_ATTEMPT, ended, Silence(), *again, *echo(board)])
    assert board.entered


FOUND = re.compile(rb">>> $")


@pytest.mark.parametrize("answer", [[Silence()], [Answer(b"row 1\r\n"), Silence()]])
def test_a_prompt_that_does_not_come_is_not_found(answer: list[Entry]) -> None:
    assert play(repl().find_prompt(FOUND, 1.0), [Send(b"\x02"), *answer]).result == b""


@given(SIZES)
def test_a_prompt_is_found(sizes: list[int]) -> None:
    play(repl().find_prompt(FOUND, 1.0), [Send(b"\x02"), Answer(b"row 1\r\nMicroPython\r\n>>> ")], sizes=sizes)


def test_a_prompt_is_found_behind_all_that_a_program_has_printed() -> None:
    board = repl()
    printed = [Answer(b"x" * MAX_SKIPPED_BYTES, may_wait=True)] * 3
    play(board.recover(), [FIRST_ATTEMPT, *printed, Answer(PROMPT, may_wait=True), *echo(board)])
    assert board.entered


def test_no_two_recoveries_ask_for_the_same_echo() -> None:
    board = repl()
    play(board.recover(), recovery(board, 1))
    play(board.recover(), recovery(board, 2))


def test_a_board_that_was_late_has_to_prove_itself_at_the_next_prompt_and_not_again() -> None:
    board = repl()
    with pytest.raises(BusyError):
        play(board.enter(), [Send(b"\x01"), Silence(), Send(b"\x02")])
    late = Answer(PROMPT + b"\r\nMicroPython v1.27\r\n>>> \r\n" + PROMPT, may_wait=True)
    play(board.enter(), [Send(b"\x01"), late, *echo(board)])
    play(board.leave(), [Send(b"\x02")])
    play(board.enter(), ENTER)


def test_a_board_that_stays_silent_is_given_up_with_what_to_do() -> None:
    with pytest.raises(TransportTimeout, match="catches KeyboardInterrupt.*DTR or RTS.*1200 baud"):
        play(repl().recover(), UNANSWERED)


@given(SIZES)
def test_executes_in_plain_mode(sizes: list[int]) -> None:
    board = entered(repl())
    script: list[Entry] = [Send(b"print(1)\x04"), Answer(b"OK1\r\n\x04\x04>")]
    output = play(run(board, b"print(1)"), script, sizes=sizes).result
    assert (output.stdout, output.stderr) == (b"1\r\n", b"")


def test_the_traceback_is_apart_from_the_output() -> None:
    board = entered(repl())
    script: list[Entry] = [Send(b"1/0\x04"), Answer(b"OKhi\r\n\x04Traceback\r\nZeroDivisionError:\r\n\x04>")]
    output = play(run(board, b"1/0"), script).result
    assert (output.stdout, output.stderr) == (b"hi\r\n", b"Traceback\r\nZeroDivisionError:\r\n")


def test_an_answer_without_end_is_given_up() -> None:
    board = entered(repl())
    half = Answer(b"x" * (MAX_ANSWER_BYTES // 2 + 1), may_wait=True)
    with pytest.raises(ProtocolError, match="was not among them"):
        play(run(board, b"f()"), [Send(b"f()\x04"), Answer(b"OK"), half, half])


def short(statement: bytes) -> list[Entry]:
    assert len(statement) < PLAIN_BYTES
    return [Send(statement + b"\x04"), Answer(b"OK\x04\x04>")]


@pytest.mark.parametrize(("of_a_user", "last"), [(False, RUN), (True, RUN_IN_MAIN)])
def test_long_code_is_put_together_on_the_board(of_a_user: bool, last: bytes) -> None:
    code = b"print('" + b"x" * 100 + b"')"
    script = [
        *(entry for statement in BEGIN for entry in short(statement)),
        *short(b"""_ff[0]+="print('""" + b"x" * 45 + b'"'),
        *short(b"_ff[0]+='" + b"x" * 52 + b"'"),
        *short(b"""_ff[0]+="xxx')\""""),
        Send(last + b"\x04"),
        Answer(b"OKx\r\n\x04\x04>"),
    ]
    assert len(last) < PLAIN_BYTES
    assert play(run(entered(repl()), code) if of_a_user else entered(repl()).execute(code, 1), script).result == Output(
        b"x\r\n", b""
    )


def test_a_board_without_memory_for_the_code_is_tried_twice_and_then_says_so() -> None:
    refused: list[Entry] = [Send(BEGIN[0] + b"\x04"), Answer(b"OK\x04MemoryError: \r\n\x04>")]
    script = [*refused, *refused]
    with pytest.raises(DeviceMemory):
        play(entered(repl()).execute(b"#", 1), script)


def test_an_answer_that_is_not_ok_says_so() -> None:
    with pytest.raises(ProtocolError, match=r"b'ra' to a piece of code"):
        play(run(entered(repl()), b"1"), [Send(b"1\x04"), Answer(b"raw REPL")])


@given(SIZES, st.binary(max_size=200).filter(lambda data: b"\x04>" not in b"\x04" + data), st.binary(max_size=50))
def test_follow_delivers_the_output_however_it_is_split(sizes: list[int], output: bytes, error: bytes) -> None:
    board = entered(repl())
    traceback = error.replace(b"\x04", b"")
    if (b"\x04" + traceback).startswith(b"\x04>"):
        traceback = b""
    script: list[Entry] = [Send(b"go\x04"), Answer(b"OK" + output + b"\x04" + traceback + b"\x04>")]
    played = play(follow(board, b"go"), script, sizes=sizes)
    assert (played.data, played.result) == (output, traceback)


def test_output_may_hold_the_end_marker() -> None:
    assert split_output(b"a\x04b\x04Trace\x04>rest") == (b"a\x04b", b"Trace", b"rest")
    assert split_output(b"a\x04b") == (b"a", None, b"\x04b")
    printed = b"\x04" + b"x" * (MAX_TRACEBACK_BYTES + 1)
    assert split_output(printed) == (b"\x04", None, printed[1:])


def test_a_reader_who_leaves_closes_the_conversation_at_once() -> None:
    board = entered(repl())
    assert abandon(follow(board, b"go"), [Send(b"go\x04"), Answer(b"OKabc")]) == b"abc"


def paste_probe(answer: bytes) -> list[Entry]:
    return [Send(b"\x05A\x01"), Answer(answer)]


ACCEPTED: list[Entry] = [*paste_probe(b"R\x01\x80\x00\x01"), Send(b"0\x04"), Answer(b"\x04\x04\x04>")]


def test_raw_paste_is_probed_by_use_and_then_kept() -> None:
    board = entered(repl(None))
    script: list[Entry] = [
        *ACCEPTED,
        *paste_probe(b"R\x01\x80\x00\x01"),
        Send(b"1\x04"),
        Answer(b"\x04\x04\x04>"),
    ]
    play(run(board, b"1"), script)
    assert board.paste is True


@pytest.mark.parametrize("refusal", [b"R\x00>", b"raw REPL; CTRL-B to exit\r\n>"], ids=["understood", "unknown"])
def test_boards_without_raw_paste_fall_back(refusal: bytes) -> None:
    board = entered(repl(None))
    play(run(board, b"1"), [*paste_probe(refusal), Send(b"1\x04"), Answer(b"OK\x04\x04>")])
    assert board.paste is False


def test_a_board_that_announces_raw_paste_and_hangs_falls_back_after_recovery() -> None:
    board = entered(repl(None))
    script: list[Entry] = [
        *paste_probe(b"R\x01\x20\x00\x01"),
        Send(b"0\x04"),
        Silence(),
        *recovery(board, 1),
        Send(b"1\x04"),
        Answer(b"OK\x04\x04>"),
    ]
    play(run(board, b"1"), script)
    assert board.paste is False


def test_a_board_that_never_comes_back_from_the_probe_is_remembered_as_such() -> None:
    board = entered(repl(None))
    with pytest.raises(TransportTimeout):
        play(run(board, b"1"), [*paste_probe(b"R\x01"), Silence(), *UNANSWERED])
    assert board.paste is False


def test_soft_reset_starts_the_program_again() -> None:
    board = entered(repl())
    answers: list[Entry] = [Answer(b"\r\nMicroPython\r\n>>> "), Send(b"\x04"), Answer(b"\r\nMPY: soft reboot\r\n")]
    play(board.soft_reset(), [Send(b"\x02"), *answers], sizes=itertools.repeat(1))
    assert not board.entered


@given(st.binary(max_size=300), SIZES)
def test_garbage_raises_only_documented_errors(garbage: bytes, sizes: list[int]) -> None:
    def dialogue() -> Conversation[None]:
        board = repl(None)
        yield from board.enter()
        yield from run(board, b"print(1)")

    step = dialogue()
    try:
        sent = next(step)
        pieces = [PROMPT, *(garbage[at : at + 7] for at in range(0, len(garbage), 7))]
        while True:
            if isinstance(sent, Send) or not hasattr(sent, "within"):
                sent = step.send(b"")
            elif pieces:
                sent = step.send(pieces.pop(0) or b"\0")
            else:
                sent = step.throw(TransportClosed("gone"))
    except (StopIteration, ProtocolError, TransportClosed, TransportTimeout):
        pass


@pytest.mark.parametrize(
    ("received", "restarted"),
    [
        (b"MicroPython v1.27.0 on 2026-01-01; Raspberry Pi Pico with RP2040\r\n", True),
        (b"half a li\xffMicroPython v1.9.2-34-gd64154c73 on 2017-09-01; micro:bit v1.0.1 with nRF51822\r\nType", True),
        (b"MicroPython v1.22.1 on 2024-01-05; linux [GCC 11.4.0] version\nUse Ctrl-D to exit", True),
        (b"MPY: soft reboot\r\nraw REPL; CTRL-B to exit\r\n>", True),
        (b"PYB: soft reboot\r\n", True),
        # What code prints that asks for its version, or speaks of restarts.
        (b"3.4.0; MicroPython v1.27.0 on 2026-01-01\r\n", False),
        (b"runs MicroPython v1.27.0\r\nready; steady\r\n", False),
        (b"next: a soft reboot\r\n", False),
        (b"", False),
    ],
)
def test_a_board_that_starts_anew_is_told_from_code_that_prints(received: bytes, restarted: bool) -> None:
    repl = RawRepl()
    repl.inbox.put_back(received)
    assert repl.restarted() is restarted
    assert repl.inbox.take() == received


@pytest.mark.parametrize("beginning", [b"MicroPython v", b"MicroPython v; "])
def test_beginnings_without_end_are_looked_at_once(beginning: bytes) -> None:
    """To look from each of them to the end of the line would take an event loop some minutes."""
    repl = RawRepl()
    repl.inbox.put_back(beginning * (MAX_ANSWER_BYTES // len(beginning)))
    assert not repl.restarted()


def test_a_board_that_was_recovered_receives_no_code_any_more() -> None:
    """Else a line that is lost later would look like one that was lost during the paste."""
    board = entered(repl(True))
    with pytest.raises(ProtocolError):
        play(board.submit(b"1"), paste_probe(b"R\x01\x01\x00\r"))
    assert board.is_pasting
    play(board.recover(), recovery(board, 1))
    assert not board.is_pasting
