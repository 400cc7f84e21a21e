"""The state of a REPL, from transcripts of what host and board say, whole and split at any point."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.protocol.repl_state import ReplMode, ReplState

Transcript = list[tuple[str, bytes]]

BANNER = b'MicroPython v1.27.0 on 2025-12-01; linux\r\nType "help()" for more information.\r\n>>> '
RAW_BANNER = b"raw REPL; CTRL-B to exit\r\n>"
START: Transcript = [("<", BANNER)]
RAW: Transcript = [
    *START,
    (">", b"\r\x03"),
    ("<", b"\r\n>>> \r\n>>> "),
    (">", b"\r\x01"),
    ("<", b"\r\n>>> \r\n" + RAW_BANNER),
]
PASTE: Transcript = [*START, (">", b"\x05"), ("<", b"\r\npaste mode; Ctrl-C to cancel, Ctrl-D to finish\r\n=== ")]
RUNNING: Transcript = [*RAW, (">", b"import time; time.sleep(9)\x04"), ("<", b"OK")]
RAW_PASTE: Transcript = [*RAW, (">", b"\x05A\x01"), ("<", b"R\x01\x80\x00\x01")]


def play(transcript: Iterable[tuple[str, bytes]], state: ReplState | None = None) -> ReplState:
    state = state or ReplState()
    for direction, data in transcript:
        (state.sent if direction == ">" else state.received)(data)
    return state


def facts(state: ReplState) -> tuple[object, ...]:
    return state.mode, state.raw, state.running, *(state.exit_is_reset(code) for code in (0, 1, -9))


def test_a_board_that_boots_is_in_no_dialogue_and_does_not_reset() -> None:
    assert facts(ReplState()) == (ReplMode.FRIENDLY, False, True, False, False, False)


def test_is_at_the_friendly_prompt_after_the_banner() -> None:
    assert facts(play(START)) == (ReplMode.FRIENDLY, False, False, False, False, False)


def test_enters_the_raw_repl_when_asked_and_answered() -> None:
    assert facts(play(RAW)) == (ReplMode.RAW, True, False, False, False, False)


def test_asking_alone_or_answering_alone_enters_nothing() -> None:
    assert play([*START, (">", b"\x01")]).mode is ReplMode.FRIENDLY
    printed = (">", b"print('raw REPL; CTRL-B to exit')\r"), ("<", RAW_BANNER)
    assert play([*START, *printed]).mode is ReplMode.FRIENDLY


def test_leaves_the_raw_repl() -> None:
    state = play([*RAW, (">", b"\x02"), ("<", b"\r\n" + BANNER)])
    assert facts(state) == facts(play(START))


def test_starts_at_the_raw_prompt_where_it_is_told_to() -> None:
    assert facts(ReplState(raw=True)) == facts(play(RAW))


@pytest.mark.parametrize("answer", [b"\r\n", b"\n"])
def test_ctrl_d_at_the_friendly_prompt_is_a_reset(answer: bytes) -> None:
    state = play([*START, (">", b"\x04"), ("<", answer)])
    assert state.exit_is_reset(0)
    assert state.exit_is_reset(1), "whatever the code of the last statement"
    assert not state.exit_is_reset(-11)
    assert not state.raw


def test_ctrl_d_that_was_not_answered_is_no_reset() -> None:
    assert not play([*START, (">", b"\x04")]).exit_is_reset(0)
    assert not play([*START, (">", b"\x04"), ("<", b"\r\nSegmentation")]).exit_is_reset(0)


def test_ctrl_d_on_a_line_with_text_deletes() -> None:
    assert not play([*START, (">", b"abc\x04"), ("<", b"abc\r\n")]).exit_is_reset(1)
    assert not play([*START, (">", b"\x1b[A\x04"), ("<", b"\r\n")]).exit_is_reset(1)


def test_ctrl_d_on_a_line_that_was_emptied_resets() -> None:
    echo = b"ab\x08\x1b[K\x08\x1b[K"
    assert play([*START, (">", b"ab\x7f\x7f"), ("<", echo), (">", b"\x04"), ("<", b"\r\n")]).exit_is_reset(1)
    assert play([*START, (">", b"ab\x03"), ("<", b"ab\r\n>>> "), (">", b"\x04"), ("<", b"\r\n")]).exit_is_reset(1)


def test_ctrl_d_ahead_of_the_prompt_resets() -> None:
    assert play([*START, (">", b"\r\x03\x04"), ("<", b"\r\n>>> \r\n>>> \r\n")]).exit_is_reset(1)


def test_ctrl_d_for_a_running_statement_is_its_input() -> None:
    typed = (">", b"while True: pass\r\r"), ("<", b"while True: pass\r\n... \r\n")
    state = play([*START, *typed, (">", b"\x04")])
    assert state.running
    assert not state.exit_is_reset(1)


def test_sys_exit_in_the_friendly_repl_resets_and_a_failure_there_does_not() -> None:
    state = play([*START, (">", b"import sys; sys.exit()\r"), ("<", b"import sys; sys.exit()\r\n")])
    assert facts(state) == (ReplMode.FRIENDLY, False, True, True, False, False)


def test_an_end_that_nobody_asked_for_is_no_reset() -> None:
    assert not play([("<", b">>> text that only looks like an entered line\r\n")]).exit_is_reset(0)


def test_ctrl_d_on_an_empty_raw_line_resets_once_it_is_acknowledged() -> None:
    asked = play([*RAW, (">", b"\x04")])
    assert not asked.exit_is_reset(0)
    assert not play([("<", b"from a thread O")], asked).exit_is_reset(0)
    assert play([("<", b"K\r\n")], asked).exit_is_reset(0)
    assert not asked.exit_is_reset(-9)
    assert asked.raw


def test_ctrl_c_empties_the_raw_line() -> None:
    assert play([*RAW, (">", b"1/0\x03\x04"), ("<", b"OK\r\n")]).exit_is_reset(0)


def test_a_board_that_restarts_in_its_process_is_at_the_raw_prompt_again() -> None:
    state = play([*RAW, (">", b"\x04"), ("<", b"OK\r\nMPY: soft reboot\r\n" + RAW_BANNER)])
    assert facts(state) == facts(play(RAW))


def test_code_runs_from_its_acknowledgement_to_its_second_end_mark() -> None:
    state = play([*RAW, (">", b"print(1)\x04")])
    assert not state.running
    for answer, running in [(b"O", False), (b"K", True), (b"1\r\n", True), (b"\x04", True), (b"\x04", True)]:
        state.received(answer)
        assert state.running is running, answer
    state.received(b">")
    assert facts(state) == facts(play(RAW))


def test_an_end_while_code_runs_is_a_death() -> None:
    assert not play(RUNNING).exit_is_reset(0)
    assert not play([*RUNNING, ("<", b"out\x04")]).exit_is_reset(0)
    assert not play([*RUNNING, ("<", b"\x04Traceback")]).exit_is_reset(0)


@pytest.mark.parametrize("output", [b"\x04\x04", b"bye\r\n\x04\x04", b"\x04in words\n\x04"])
def test_system_exit_in_the_raw_repl_resets(output: bytes) -> None:
    state = play([*RUNNING, ("<", output)])
    assert state.exit_is_reset(3)
    assert not state.exit_is_reset(-6)
    assert state.raw


def test_a_board_that_restarts_for_system_exit_is_at_the_raw_prompt_again() -> None:
    state = play([*RUNNING, ("<", b"\x04\x04MPY: soft reboot\r\n" + RAW_BANNER)])
    assert facts(state) == facts(play(RAW))


def test_an_end_mark_in_the_output_ends_nothing() -> None:
    state = play([*RUNNING, ("<", b"\x04>out")])
    assert state.running
    assert not play([("<", b"\x04\x04>")], state).running


def test_control_characters_for_code_that_runs_are_its_input() -> None:
    state = play([*RUNNING, (">", b"\x01\x04\x05A\x01"), ("<", b"\x04\x04>")])
    assert facts(state) == facts(play(RAW))


def test_a_host_may_ask_for_the_way_out_before_its_code_has_ended() -> None:
    state = play([*RAW, (">", b"1\x04\x02"), ("<", b"OK\x04\x04>\r\n" + BANNER), (">", b"\x04"), ("<", b"\r\n")])
    assert facts(state) == (ReplMode.FRIENDLY, False, False, True, True, False)


def test_a_prompt_in_an_answer_is_not_the_way_out() -> None:
    assert play([*RAW, (">", b"print('>>> ')\x04"), ("<", b"OK>>> \r\n\x04\x04>")]).mode is ReplMode.RAW


def test_code_sent_right_after_the_request_for_the_raw_repl_counts() -> None:
    asked = [*START, (">", b"\x01print(1)\x04")]
    assert play([*asked, ("<", b"\r\n" + RAW_BANNER + b"OK1")]).running
    assert play([*START, (">", b"\x01\x04"), ("<", b"\r\n" + RAW_BANNER + b"OK\r\n")]).exit_is_reset(0)


def test_raw_paste_hides_control_characters_from_the_repl() -> None:
    state = play([*RAW_PASTE, (">", b"a='\x01\x02\x05A\x01'")])
    assert facts(state) == (ReplMode.RAW_PASTE, True, False, False, False, False)
    state = play([("<", b"\x01"), (">", b"\x04"), ("<", b"\x01\x04")], state)
    assert facts(state) == (ReplMode.RAW, True, True, False, False, False)
    assert facts(play([("<", b"out\x04\x04>")], state)) == facts(play(RAW))


def test_system_exit_from_raw_paste_resets() -> None:
    assert play([*RAW_PASTE, (">", b"raise SystemExit\x04"), ("<", b"\x04\x04\x04")]).exit_is_reset(0)


def test_an_end_in_raw_paste_is_a_death() -> None:
    assert not play(RAW_PASTE).exit_is_reset(0)
    assert not play([*RAW_PASTE, (">", b"x\x04")]).exit_is_reset(0)
    assert not play([*RAW_PASTE, (">", b"x\x04"), ("<", b"\x04")]).exit_is_reset(0)


def test_a_board_that_ends_raw_paste_waits_for_the_host() -> None:
    state = play([*RAW_PASTE, (">", b"1+*\n"), ("<", b"\x04"), (">", b"more")])
    assert state.mode is ReplMode.RAW_PASTE
    state = play([(">", b"\x04"), ("<", b"\x04Traceback\r\nSyntaxError\r\n\x04>")], state)
    assert facts(state) == facts(play(RAW))


def test_ctrl_c_ends_raw_paste() -> None:
    state = play([*RAW_PASTE, (">", b"1+\x03"), ("<", b"\x04\x04Traceback\r\nKeyboardInterrupt: \r\n\x04>")])
    assert facts(state) == facts(play(RAW))


@pytest.mark.parametrize("refusal", [b"R\x00>", RAW_BANNER])
def test_a_board_without_raw_paste_stays_in_the_raw_repl(refusal: bytes) -> None:
    state = play([*RAW, (">", b"\x05A\x01"), ("<", refusal)])
    assert facts(state) == facts(play(RAW))


def test_paste_mode_takes_text_to_its_end() -> None:
    state = play([*PASTE, (">", b"import x\r\x01\x05"), ("<", b"import x\r\n=== ")])
    assert state.mode is ReplMode.PASTE
    assert not state.exit_is_reset(0)
    state.sent(b"\x04")
    assert facts(state) == (ReplMode.FRIENDLY, False, True, True, False, False)
    assert facts(play([("<", b"\r\n>>> ")], state)) == facts(play(START))


def test_paste_mode_sent_whole_is_over_before_it_is_answered() -> None:
    answer = b"\r\npaste mode; Ctrl-C to cancel, Ctrl-D to finish\r\n=== 1\r\n>>> "
    assert facts(play([*START, (">", b"\x051\x04"), ("<", answer)])) == facts(play(START))


TRANSCRIPTS = [
    [*START, (">", b"\x04"), ("<", b"\r\n")],
    [*RAW, (">", b"\x04"), ("<", b"OK\r\n")],
    [*RUNNING, ("<", b"a\x04b\x04\x04>"), (">", b"x\x04"), ("<", b"OKraw\x04\x04")],
    [*RAW_PASTE, (">", b"print('\x01')\x04"), ("<", b"\x01\x04out\x04\x04>"), (">", b"\x02"), ("<", b"\r\n" + BANNER)],
    [*PASTE, (">", b"f()\r\x04"), ("<", b"f()\r\n=== \r\nout")],
    [*START, (">", b"\x01print(1)\x04\x02"), ("<", b"\r\n" + RAW_BANNER + b"OK1\r\n\x04\x04>\r\n" + BANNER)],
]
TOKENS = [
    *(bytes([control]) for control in (1, 2, 3, 4, 5, 8, 13)),
    *(b"a", b"\x05A\x01", b"\r\x03", b">>> ", b"\r\n", b"=== ", b"OK", b"OK\r\n", b"\x04>", b"\x04\x04>", b">"),
    *(RAW_BANNER, b"R\x01\x80\x00\x01", b"R\x00>", b"MPY: soft reboot\r\n"),
]


def split(transcript: Transcript, cuts: st.DataObject) -> Transcript:
    pieces = []
    for direction, data in transcript:
        at = sorted(cuts.draw(st.sets(st.integers(0, len(data)), max_size=8)))
        pieces += [(direction, data[a:b]) for a, b in zip([0, *at], [*at, len(data)], strict=True)]
    return pieces


@pytest.mark.parametrize("transcript", TRANSCRIPTS)
def test_byte_by_byte_gives_the_same(transcript: Transcript) -> None:
    single = [(direction, bytes([byte])) for direction, data in transcript for byte in data]
    assert facts(play(single)) == facts(play(transcript))


@given(
    st.lists(
        st.tuples(st.sampled_from("<>"), st.lists(st.sampled_from(TOKENS), max_size=4).map(b"".join)), max_size=12
    ),
    st.data(),
)
def test_any_conversation_split_anywhere_gives_the_same(transcript: Transcript, cuts: st.DataObject) -> None:
    assert facts(play(split(transcript, cuts))) == facts(play(transcript))
