"""aiorepl: its answers are told from what the program prints in between, whatever the reads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.errors import ProtocolError
from fastflight.protocol import Output, Send
from fastflight.protocol.aiorepl import PIECES, PROMPTS, AioRepl
from fastflight.protocol.traffic import HEADINGS, Traffic
from tests.support.memory import Answer, play

# Expected answers, as `expect` takes them, and how a board sends them.
ANSWERS = [
    (HEADINGS, False, b"raw REPL; CTRL-B to exit\r\n>"),
    (PIECES, True, b"OK\x04\x04>"),
    (PIECES, True, b"OK_ff[0]+='x'\r\n\x04Traceback: MemoryError\r\n\x04>"),
    ((b"OK\x1f1\x1f",), True, b"OK\x1f1\x1f42\r\n\x04\x04>"),
    (PROMPTS, False, b"\n--> "),
]
# What a program prints, also such that looks like the beginning of an answer.
PRINTS = st.lists(st.sampled_from([b"row 1\r\n", b"OK 3\r\n", b"OK", b"raw REPL", b"\r\r\n", b"> "])).map(b"".join)
MARK = b"\x1f1\x1f"


@given(st.lists(st.tuples(PRINTS, st.sampled_from(ANSWERS)), max_size=4), PRINTS, st.lists(st.integers(0, 500)))
def test_prints_are_told_from_answers(
    exchanges: list[tuple[bytes, tuple[tuple[bytes, ...], bool, bytes]]], rest: bytes, places: list[int]
) -> None:
    heard = {False: b"", True: b""}

    def hear(data: bytes, is_request: bool) -> None:
        heard[is_request] += data

    traffic = Traffic(hear)
    traffic.begin("aiorepl")
    for said, (marks, closed, answer) in exchanges:
        traffic.expect(marks, closed=closed)
        data = said + answer
        ends = sorted({place % (len(data) + 1) for place in places} | {len(data)})
        for start, end in zip([0, *ends], ends, strict=False):
            traffic.received(data[start:end])
    traffic.received(rest)
    traffic.end()
    assert heard[True] == b"".join(answer for _, (_, _, answer) in exchanges)
    assert heard[False] == b"".join(said for said, _ in exchanges) + rest


def test_prints_that_cannot_begin_an_answer_are_passed_on_at_once() -> None:
    heard: list[bytes] = []
    traffic = Traffic(lambda data, _: heard.append(data))
    traffic.begin("aiorepl")
    traffic.expect(PROMPTS, closed=False)
    traffic.received(b"row 1")
    assert b"".join(heard) == b"row 1"
    traffic.end()


@pytest.mark.parametrize(
    ("answer", "output"),
    [
        (b"42\r\n\x04\x04>", Output(b"42\r\n", b"")),
        (b"a\x04b\x04\x04>", Output(b"a\x04b", b"")),
        (b"1\x04\x1fValueError: x\x04\x04>", Output(b"1", b"ValueError: x")),
        (b"\x04MemoryError: \x04>", Output(b"", b"MemoryError: ")),
    ],
)
def test_output_is_told_from_the_traceback(answer: bytes, output: Output) -> None:
    assert play(AioRepl().output(1.0), [Answer(answer)]).result == output


def test_a_piece_that_the_board_did_not_take_is_damage() -> None:
    script = [Send(b"_ff[0]+='x'\x04"), Answer(b"OK 3\r\nOK_ff[0]+='y'\r\n\x04SyntaxError\r\n\x04>")]
    with pytest.raises(ProtocolError):
        play(AioRepl()._run_piece(b"_ff[0]+='x'"), script)


def test_prints_before_an_answer_are_skipped() -> None:
    repl = AioRepl()
    script = [
        Send(b"import builtins as _ff\n_ff.print(end='" + MARK + b"')\n0\ndel _ff\x04"),
        Answer(b"row 1\r\nOK 2\r\nOK" + MARK),
    ]
    play(repl._short_command(b"0"), script)
    assert len(repl.inbox) == 0
