"""Recognises a board that another host left in the middle of a transfer.

A server that was killed during a write, or lost the line, leaves the board waiting for the rest of the content or of
the code. The board then does not answer at its prompt, which looks like a program of the user, and such a program is
left alone. `is_orphaned` tells them apart. It sends Ctrl-A some hundred times: a routine of ours takes them for content
and raw paste for code, and both answer in their own way. Ctrl-A is no text, and programs that read lines ignore it.

A board that sends all of it back is sent a line end. The prompt's paste mode, into which a person, or a line that
changed a Ctrl-A to Ctrl-E, may have brought the board, begins the next line with `===`; it is free to use as well.
"""

from __future__ import annotations

from fastflight.device.transfer.link import USUAL_RING
from fastflight.errors import TransportTimeout
from fastflight.protocol import Conversation, RawRepl, Send

CTRL_A, CTRL_B = b"\x01", b"\x02"
# Enough to fill the longest step that a routine waits for: half of what may be on the way at once.
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


def is_orphaned(repl: RawRepl) -> Conversation[bool]:
    """Whether the board waits for the rest of a transfer, or is in paste mode. If so, recover it next."""
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
    """Whether a board that echoes everything is in paste mode, which only Ctrl-C or Ctrl-D ends."""
    yield Send(LINE)
    answer = b""
    while PASTED_LINE.startswith(answer) and answer != PASTED_LINE:
        try:
            answer += yield from repl.inbox.some(ANSWER_SECONDS)
        except TransportTimeout:
            break
    return answer == PASTED_LINE


def _given_back(answer: bytes) -> bytes:
    """The answer without the Ctrl-B that may precede it: the one that was sent when no prompt was found."""
    return answer.removeprefix(CTRL_B)


def _may_be_ours(answer: bytes) -> bool:
    """Whether the answer may be the beginning of one of ours.

    A routine acknowledges steps, then reports a damaged block; or it ends, because Ctrl-A is a wrong answer to its
    digest, and a prompt follows. Raw paste says that it has room for more.
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
