"""The host's side of a mounted folder: questions among the board's output, answers in steps."""

from __future__ import annotations

import binascii
import errno
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.protocol.mount import MAX_QUESTION_BYTES, MountAnswers, State
from fastflight.protocol.mounted_board import Sizes

FILES = {"/a.py": b"a = 1\n" * 200, "/raw.bin": bytes(range(256)) * 8}
SIZES = Sizes(1024, 100, 10)


class Folder:
    """A folder in memory. `changes` is what was asked of it."""

    def __init__(self) -> None:
        self.changes: list[tuple[object, ...]] = []
        for name in ("write", "close_file", "remove", "mkdir", "rmdir"):
            setattr(self, name, lambda *arguments, name=name: self.changes.append((name, *arguments)))

    def read(self, what: str | int, offset: int, count: int) -> tuple[bytes, int]:
        if what not in FILES:
            raise FileNotFoundError(errno.ENOENT, "")
        content = FILES[str(what)]
        return content[offset : offset + count], len(content)

    def state(self, path: str) -> State:
        return State(False, 7, 1)

    def entries(self, path: str) -> list[tuple[str, State]]:
        return [(f"file{n}", State(False, n, 0)) for n in range(100)]

    def open(self, path: str, mode: str) -> tuple[int, int]:
        self.changes.append(("open", path, mode))
        return 5, 70

    def rename(self, old: str, new: str) -> None:
        self.changes.append(("rename", old, new))
        raise OSError(errno.ENOTEMPTY, "")


def answers(*, deflate: bool = False, mounted: bool = True) -> MountAnswers:
    server = MountAnswers(Folder(), sizes=SIZES, deflate=deflate)  # type: ignore[arg-type]
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
        (question("q", 1, "/a"), b"X", b""),
        (question("d", 1, 5, 0, 7), b"X", b""),
        (question("v", 1, "/a", "/b"), b"E", b"39"),
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


def test_a_change_that_is_asked_for_again_is_not_made_again() -> None:
    folder = Folder()
    server = MountAnswers(folder, sizes=SIZES, deflate=False)  # type: ignore[arg-type]
    first = conversation(server, question("o", 1, "/new", "wb"))
    assert conversation(server, question("o", 1, "/new", "wb")) == first
    assert content(first[1]) == b"5" and int(first[1][13:21], 16) == 70
    conversation(server, question("d", 2, 5, 0, binascii.b2a_base64(b"abc")), question("c", 3, 5))
    refused = conversation(server, question("v", 4, "/a", "/b"))
    assert conversation(server, question("v", 4, "/a", "/b")) == refused
    assert folder.changes == [
        ("open", "/new", "wb"),
        ("write", 5, 0, b"abc"),
        ("close_file", 5),
        ("rename", "/a", "/b"),
    ]


@given(st.data())
def test_a_soft_reset_is_noticed_when_the_prompt_is_back(data: st.DataObject) -> None:
    whole = b">>> \r\nMPY: soft reboot\r\nmain.py runs\r\nMicroPython v1.27; board\r\n>>> "
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    server = answers()
    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        assert not server.was_reset or start == len(whole)
        list(server.feed(whole[start:end]))
    assert server.was_reset
