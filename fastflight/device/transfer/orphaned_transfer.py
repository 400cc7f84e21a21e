"""Recognises a board that another host left in the middle of a transfer.

A server that is killed during a write, or loses the line, leaves the board waiting for the rest of the content or of
the code. Such a board does not answer at its prompt, and looks as if a user's program is running, which must not be
interrupted. `is_orphaned` tells the two apart. It sends Ctrl-A some hundred times: fastflight's routine takes these for
content, raw paste takes them for code, and each answers in its own way. Ctrl-A is not text, and programs that read
lines ignore it.

If the board echoes all of it, `is_orphaned` sends a line end. The paste mode of the friendly prompt then answers with
`===`. A person may have brought the board into this mode, or a line that changed a Ctrl-A to Ctrl-E; it may be
interrupted as well.
"""

from __future__ import annotations

from fastflight.device.transfer.link import USUAL_RING
from fastflight.errors import TransportTimeout
from fastflight.protocol import Conversation, RawRepl, Send

CTRL_A, CTRL_B = b"\x01", b"\x02"
# Enough to fill the longest step that a routine waits for, which is less than half of a usual receive ring.
KNOCK = CTRL_A * (USUAL_RING // 2 + 16)
# A routine answers when the last byte of a step has arrived; a traceback, or closing a file, takes longer.
ANSWER_SECONDS = 1.0
# How many steps, or windows of raw paste, the knock may fill. A step of the smallest ring has about 20 bytes, a window
# has 32 or more.
MOST_STEPS = 20
MOST_WINDOWS = 9
# What raw paste answers when there is room for another window.
ROOM = b"\x01"
REPORT = b"Traceback "
PROMPT = b"raw REPL; CTRL-B to exit"
# A line end, and the answer of paste mode to it.
LINE, PASTED_LINE = b"\r", b"\r\n=== "
# The longest answer that is read: a routine's report has a traceback, and an E for each Ctrl-A.
MOST_BYTES = 4096


def is_orphaned(repl: RawRepl) -> Conversation[bool]:
    """Return whether the board waits for the rest of a transfer, or is in paste mode. If so, recover it next."""
    repl.inbox.clear()
    yield Send(KNOCK)
    answer = b""
    while (_may_be_transfer(answer) or KNOCK.startswith(_without_ctrl_b(answer))) and len(answer) < MOST_BYTES:
        try:
            answer += yield from repl.inbox.some(ANSWER_SECONDS)
        except TransportTimeout:
            break
        if PROMPT in answer:
            return True
    if answer and _may_be_transfer(answer):
        return True
    if _without_ctrl_b(answer) == KNOCK and (yield from _is_in_paste_mode(repl)):
        return True
    # As in `RawRepl.enter`: if the program ends later, this leaves the board at its friendly prompt.
    yield Send(CTRL_B)
    return False


def _is_in_paste_mode(repl: RawRepl) -> Conversation[bool]:
    """Return whether a board that echoes everything is in paste mode, which only Ctrl-C or Ctrl-D ends."""
    yield Send(LINE)
    answer = b""
    while PASTED_LINE.startswith(answer) and answer != PASTED_LINE:
        try:
            answer += yield from repl.inbox.some(ANSWER_SECONDS)
        except TransportTimeout:
            break
    return answer == PASTED_LINE


def _without_ctrl_b(answer: bytes) -> bytes:
    """Return the answer without a leading echo of the Ctrl-B that `RawRepl.enter` sent when it found no prompt."""
    return answer.removeprefix(CTRL_B)


def _may_be_transfer(answer: bytes) -> bool:
    """Return whether `answer` may be the beginning of the answer of a routine or of raw paste.

    A routine acknowledges steps, then reports a damaged block. If it waits for the answer to its digest, Ctrl-A is a
    wrong one: it ends, and a prompt follows. Raw paste answers that it has room for more.
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
