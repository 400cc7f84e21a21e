"""The host's side of a mounted folder: questions among the board's output, answers in steps."""

from __future__ import annotations

import binascii
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.protocol.mount import MAX_QUESTION_BYTES, MountAnswers, State
from fastflight.protocol.mounted_board import Sizes

FILES = {"/a.py": b"a = 1\n" * 200, "/raw.bin": bytes(range(256)) * 8}
SIZES = Sizes(1024, 100, 10)


def answers(*, deflate: bool = False, mounted: bool = True) -> MountAnswers:
    def read(path: str, offset: int, count: int) -> tuple[bytes, int]:
        if path not in FILES:
            raise FileNotFoundError(path)
        return FILES[path][offset : offset + count], len(FILES[path])

    def entries(path: str) -> list[tuple[str, State]]:
        return [(f"file{n}", State(False, n, 0)) for n in range(100)]

    server = MountAnswers(read, lambda path: State(False, 7, 1), entries, sizes=SIZES, deflate=deflate)
    if mounted:
        list(server.feed(question("b")))
    return server


def question(*what: object) -> bytes:
    text = repr(what).encode()
    return b"\x1b_ff%08x" % binascii.crc32(text) + text + b"\x1b\\"


def conversation(server: MountAnswers, *pieces: bytes) -> tuple[bytes, bytes]:
    """Feed pieces of output; return what is shown and what is sent, with each step taken."""
    shown, sent = b"", b""
    for piece in pieces:
        for output, reply in server.feed(piece):
            shown += output
            while reply:
                sent += reply
                ((_, reply),) = [pair for pair in server.feed(b"\x1b_ffa\x1b\\") if pair[1]] or [(b"", b"")]
    return shown, sent


def content(answer: bytes) -> bytes:
    kind, length, check, body = answer[:1], int(answer[1:5], 16), int(answer[5:13], 16), answer[22:]
    assert len(body) == length and answer[21:22] == b"|"
    assert not set(body) & set(b"\x01\x02\x03\x04\x05\n\r")  # what a prompt acts on
    for byte in b"\x01\x02\x03\x04\x05\n\r\x10":
        body = body.replace(bytes((0x10, byte + 64)), bytes((byte,)))
    body = zlib.decompress(body, -12) if kind == b"D" else body
    assert binascii.crc32(body) == check
    return body


@given(st.data())
def test_questions_are_found_however_the_output_is_cut(data: st.DataObject) -> None:
    whole = b"before \x1b[1m" + question("s", "/a.py") + b"mid\x1b_fafter\r\n>>> "
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    server = answers()
    pieces = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    shown, sent = conversation(server, *pieces)
    assert shown == b"before \x1b[1mmid\x1b_fafter\r\n>>> "
    assert content(sent) == b"(32768, 7, 1)"


@pytest.mark.parametrize("deflate", [False, True])
@pytest.mark.parametrize("path", FILES)
def test_a_file_comes_in_pieces(path: str, deflate: bool) -> None:
    server, got = answers(deflate=deflate), b""
    while len(got) < len(FILES[path]):
        _, sent = conversation(server, question("r", path, len(got)))
        assert int(sent[13:21], 16) == len(FILES[path])
        assert len(sent) - 22 <= SIZES.piece * 5 // 4  # the board's buffer
        got += content(sent)
    assert got == FILES[path]


def test_no_more_than_two_steps_are_on_the_way() -> None:
    server = answers()
    ((_, first),) = server.feed(question("r", "/raw.bin", 0))
    assert len(first) == 22 + 2 * SIZES.step
    ((_, second),) = server.feed(b"\x1b_ffa\x1b\\")
    assert len(second) == SIZES.step


def test_a_long_folder_comes_in_parts() -> None:
    server, names = answers(), []
    while part := eval(content(conversation(server, question("l", "/", len(names)))[1])):
        names += [name for name, *_ in part]
    assert names == [f"file{n}" for n in range(100)]


@pytest.mark.parametrize(
    ("asked", "kind", "body"),
    [
        (question("r", "/none", 0), b"E", b"2"),
        (question("r", "/a.py", 0).replace(b"a.py", b"b.py"), b"X", b""),
        (question("z", "/a.py"), b"X", b""),
        (question("r"), b"X", b""),
        (question("r", "/a.py", "x"), b"X", b""),
        (b"\x1b_ff\x1b\\", b"X", b""),
        (b"\x1b_ff" + b"(" * 900 + b"\x1b\\", b"X", b""),
    ],
)
def test_what_cannot_be_answered(asked: bytes, kind: bytes, body: bytes) -> None:
    shown, sent = conversation(answers(), asked)
    assert (shown, sent[:1], content(sent)) == (b"", kind, body)


def test_output_that_only_looks_like_a_question_is_output() -> None:
    long = b"\x1b_ff" + b"x" * (MAX_QUESTION_BYTES + 10)
    assert conversation(answers(), long, b"end\x1b\\") == (long + b"end\x1b\\", b"")


def test_what_is_typed_to_mount_and_unmount_is_not_shown() -> None:
    server = answers(mounted=False)
    shown, _ = conversation(server, b"run()\r\n", question("b"), b"42\r\n", question("e", 0), b">>> ")
    assert (shown, server.ended) == (b"42\r\n", False)
