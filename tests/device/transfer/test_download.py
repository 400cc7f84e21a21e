"""Downloads against transcripts: blocks of each kind, and how a transfer goes on after a loss."""

from __future__ import annotations

import binascii
import struct
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.device import Transfer
from fastflight.device.capabilities import Capabilities
from fastflight.device.transfer.download import BASE64, CALL, CRC32, DEFINE, FRUITLESS_ATTEMPTS, _text_block, download
from fastflight.device.transfer.link import BoardLink
from fastflight.device.transfer.resident import NAME, sealed_call
from fastflight.device.transfer.types import Method
from fastflight.errors import FileMissing, ProtocolError, TransportTimeout
from fastflight.protocol import Conversation, RawRepl
from tests.device.transfer.transcripts import GONE, pasted, recovered
from tests.support.memory import Answer, Entry, Silence, play
from tests.support.refusals import refused

FEATURES = frozenset({"stdout.buffer", "binascii.crc32", "binascii.a2b_base64", "struct.pack_into", "os.mkdir"})
BOARD = Capabilities(FEATURES)
SIZE = BOARD.block_bytes


def link() -> BoardLink:
    return BoardLink(RawRepl(True), BOARD)


def called(offset: int = 0, count: int = -1, *, size: int = SIZE, installed: bool = False) -> list[Entry]:
    missing = () if installed else ("get",)
    code = sealed_call(BOARD, missing, "get", ("/x", offset, count, size), fresh=not installed)
    return [*pasted(code), Answer(b"R")]


def block(payload: bytes, before: bytes = b"", mark: int = 1) -> bytes:
    """`before` is what the blocks before it carry."""
    return struct.pack("<BHI", mark, len(payload), binascii.crc32(before + payload)) + payload


def ended(carried: bytes) -> bytes:
    """The end of a file whose blocks carry that."""
    return block(b"", before=carried) + b"\x04\x04>"


ALIVE = [*pasted(f"import {NAME}"), Answer(b"\x04\x04>")]


def read(
    script: Iterable[Entry],
    *,
    on: BoardLink | None = None,
    sizes: Iterable[int] = (),
    offset: int = 0,
    limit: int | None = None,
) -> bytes:
    return play(download(on or link(), "/x", offset, limit), script, sizes=sizes).data


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=5), st.lists(st.integers(1, 99)))
def test_any_bytes_come_through_any_split(parts: list[bytes], sizes: list[int]) -> None:
    blocks = carried = b""
    for part in parts:
        blocks += block(part, carried)
        carried += part
    assert read([*called(), Answer(blocks + ended(carried))], sizes=sizes) == b"".join(parts)


def test_what_is_left_is_asked_for_where_the_end_came_too_early() -> None:
    on = link()
    script = [*called(), Answer(block(b"first") + b"\x04\x04>"), *recovered(on), *ALIVE]
    script += [*called(5, size=SIZE // 2, installed=True), Answer(block(b"second") + ended(b"second"))]
    assert read(script, on=on) == b"firstsecond"


def test_blocks_that_were_lost_are_asked_for_again() -> None:
    on = link()
    lost = block(b"first") + block(b"third", before=b"firstsecond") + ended(b"firstsecondthird")
    script = [*called(), Answer(lost), *recovered(on), *ALIVE]
    rest = block(b"second") + block(b"third", before=b"second") + ended(b"secondthird")
    script += [*called(5, size=SIZE // 2, installed=True), Answer(rest)]
    assert read(script, on=on) == b"firstsecondthird"


def test_what_does_not_fit_its_sum_is_asked_for_again_from_there() -> None:
    on = link()
    wrong = bytearray(block(b"second"))
    wrong[-1] ^= 1
    script = [*called(10), Answer(block(b"first")), Answer(bytes(wrong)), *recovered(on), *ALIVE]
    script += [*called(15, size=SIZE // 2, installed=True), Answer(block(b"second") + ended(b"second"))]
    assert read(script, on=on, offset=10) == b"firstsecond"


def test_what_is_left_of_a_limit_is_asked_for_again() -> None:
    on = link()
    script = [*called(0, 9), Answer(block(b"first")), Silence(), *recovered(on), *ALIVE]
    script += [*called(5, 4, size=SIZE // 2, installed=True), Answer(block(b"seco") + ended(b"seco"))]
    assert read(script, on=on, limit=9) == b"firstseco"


def test_a_line_that_brings_nothing_new_is_given_up() -> None:
    on, size = link(), SIZE
    script: list[Entry] = []
    for attempt in range(FRUITLESS_ATTEMPTS + 1):
        script += [*called(size=size, installed=attempt == 1), Silence()]
        size = max(128, size // 2)
        if attempt < FRUITLESS_ATTEMPTS:
            # What was installed is not trusted after the second failure in a row.
            script += [*recovered(on, attempt + 1), *(ALIVE if attempt == 0 else [])]
    with pytest.raises(TransportTimeout):
        read(script, on=on)


def test_a_reset_board_is_an_error() -> None:
    on = link()
    script = [*called(), Answer(block(b"first")), Silence(), *recovered(on)]
    script += [*pasted(f"import {NAME}"), Answer(GONE)]
    with pytest.raises(ProtocolError, match="/x: the board was reset during the operation"):
        read(script, on=on)


def test_a_missing_file() -> None:
    with refused(FileMissing, where="/x"):
        read([*called()[:-1], Answer(b"\x04Traceback\r\nOSError: [Errno 2] ENOENT\r\n\x04>")])


def test_a_block_with_another_mark_is_asked_for_again() -> None:
    on = link()
    script = [*called(), Answer(block(b"first", mark=2)), *recovered(on), *ALIVE]
    script += [*called(size=SIZE // 2, installed=True), Answer(block(b"first") + ended(b"first"))]
    assert read(script, on=on) == b"first"


def test_a_line_of_text_that_nests_too_deep_is_damage() -> None:
    on = BoardLink(RawRepl(True), Capabilities(frozenset({"os.mkdir"})))
    deep = Answer(b"1 r " + b"(" * 5000 + b"\n\x04\x04>")
    with pytest.raises(ProtocolError, match="/x: a block of the file was changed"):
        play(_text_block(on, ord("1"), "/x", 0), [deep])


CRC_BOARD = BOARD
SUM_BOARD = Capabilities(frozenset({"os.mkdir"}))


def lines(board: Capabilities, form: str, *blocks: bytes) -> list[bytes]:
    """What a board prints for `blocks`, the empty last one included."""
    check, printed = 0, []
    for data in (*blocks, b""):
        check = binascii.crc32(data, check) if board is CRC_BOARD else (check * 7 + sum(data)) & 0xFFFFFF
        said = f"b {binascii.b2a_base64(data)!r}" if form == "base64" else f"r {data!r}"
        printed.append(f"{check} {said}\r\n".encode())
    return printed


def text_code(form: str) -> str:
    return (DEFINE + CALL).format(
        imports=" import binascii\n",
        check=CRC32,
        path="/x",
        size=SIZE,
        form="b" if form == "base64" else "r",
        data=BASE64 if form == "base64" else "d",
        offset=3,
        count=-1,
    )


@pytest.mark.parametrize("form", ["base64", "literal"])
def test_text(form: Method) -> None:
    content = bytes(range(256))
    printed = b"".join(lines(BOARD, form, content, b"more"))
    script = [*pasted(text_code(form)), Answer(printed + b"\x04\x04>")]
    assert play(download(link(), "/x", 3, None, Transfer(form)), script).data == content + b"more"


@pytest.mark.parametrize("board", [CRC_BOARD, SUM_BOARD], ids=["crc32", "sum"])
@pytest.mark.parametrize("order", [[1, 2], [0, 2], [1, 0, 2]], ids=["first lost", "one lost", "changed places"])
def test_lines_of_text_that_are_not_those_of_the_file_are_damage(board: Capabilities, order: list[int]) -> None:
    on = BoardLink(RawRepl(True), board)
    printed = lines(board, "literal", b"first", b"later")

    def reading() -> Conversation[int]:
        check = 0
        for _ in order:
            mark = (yield from on.repl.inbox.exactly(1, 1))[0]
            _, check = yield from _text_block(on, mark, "/x", check)
        return check

    with pytest.raises(ProtocolError, match="/x: a block of the file was changed"):
        play(reading(), [Answer(b"".join(printed[each] for each in order))])


def test_text_whose_end_was_lost_is_asked_for_again() -> None:
    on = link()
    script = [*pasted(text_code("literal")), Answer(lines(BOARD, "literal", b"first")[0] + b"\x04\x04>")]
    script += recovered(on)
    again = text_code("literal").replace("_ffd(3,-1)", "_ffd(8,-1)")
    script += [*pasted(again), Answer(b"".join(lines(BOARD, "literal", b"rest")) + b"\x04\x04>")]
    assert play(download(on, "/x", 3, None, Transfer("literal")), script).data == b"firstrest"
