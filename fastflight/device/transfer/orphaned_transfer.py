"""Whether what runs on a board is no program of its own, but what a host that has gone left staged.

A server that was killed in the middle of a write, or that lost the line, leaves the board waiting for the rest, of
content or of code. The next host finds that it does not answer at its prompt, and a program that runs is left alone.
These are known by their answers: a routine takes a few hundred bytes for a part of the content, and raw paste for a
part of the code, and both answer for them. Any other program is given Ctrl-A, which is no text, and which lines that
are typed pass over. Who gives all of it back is asked for a line: the prompt's paste mode, into which a person may have
brought it, or a line that made Ctrl-E of a Ctrl-A, begins one in its own way.
"""

from __future__ import annotations

from fastflight.device.transfer.link import USUAL_RING
from fastflight.errors import TransportTimeout
from fastflight.protocol import Conversation, RawRepl, Send

CTRL_A, CTRL_B = b"\x01", b"\x02"
# So many as fill the longest step that a routine waits for: half of what may be on the way at once.
KNOCK = CTRL_A * (USUAL_RING // 2 + 16)
# An answer comes when the last byte of a step has; a traceback, or a file that is closed, takes longer.
ANSWER_SECONDS = 1.0
# Steps that the knock may fill: they are of 20 bytes on the smallest ring. A window of raw paste is 32 bytes or more.
MOST_STEPS = 20
MOST_WINDOWS = 9
# What raw paste says when there is room for more.
ROOM = b"\x01"
REPORT = b"Traceback "
PROMPT = b"raw REPL; CTRL-B to exit"
# How paste mode answers the end of a line.
LINE, PASTED_LINE = b"\r", b"\r\n=== "
# A report is a traceback, and an E for each Ctrl-A.
MOST_BYTES = 4096


def is_ours(repl: RawRepl) -> Conversation[bool]:
    """Knock, and look at the answer. If it is ours, the board is in no known state afterwards: recover it."""
    repl.inbox.clear()
    yield Send(KNOCK)
    answer = b""
    while (_may_be_ours(answer) or KNOCK.startswith(_given_back(answer))) and len(answer) < MOST_BYTES:
        try:
            answer += yield from repl.inbox.some(ANSWER_SECONDS)
        except TransportTimeout:
            break
        if PROMPT in answer:
            return True
    if answer and _may_be_ours(answer):
        return True
    if _given_back(answer) == KNOCK and (yield from _pastes(repl)):
        return True
    # As `enter` does: should the program end later, the board is at its friendly prompt.
    yield Send(CTRL_B)
    return False


def _pastes(repl: RawRepl) -> Conversation[bool]:
    """Whether what gives back all that it is told is paste mode, where nothing but Ctrl-C or Ctrl-D leads out."""
    yield Send(LINE)
    answer = b""
    while PASTED_LINE.startswith(answer) and answer != PASTED_LINE:
        try:
            answer += yield from repl.inbox.some(ANSWER_SECONDS)
        except TransportTimeout:
            break
    return answer == PASTED_LINE


def _given_back(answer: bytes) -> bytes:
    """Without what may come before it: the Ctrl-B of who found no prompt."""
    return answer.removeprefix(CTRL_B)


def _may_be_ours(answer: bytes) -> bool:
    """Whether a routine's answer begins so: steps that were taken, then the report of a block that is damaged.

    Or the end of what it was to do, for which Ctrl-A is a wrong answer; then a prompt follows. Or raw paste's.
    """
    if answer and not answer.strip(ROOM):
        return len(answer) <= MOST_WINDOWS
    rest = answer.lstrip(b"A")
    if len(answer) - len(rest) > MOST_STEPS:
        return False
    if not rest or rest.startswith(b"\x04"):
        return True
    report = rest.lstrip(b"E")
    return len(report) < len(rest) and report[: len(REPORT)] == REPORT[: len(report)]
