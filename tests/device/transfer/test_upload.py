"""Uploads in binary against transcripts: the window, refusals, and how a transfer goes on after a loss."""

from __future__ import annotations

import binascii
import hashlib
from collections.abc import Iterable, Sequence

import pytest

from fastflight.device import PartialWrite, Resumption, Transfer, WrittenFile
from fastflight.device.capabilities import Capabilities
from fastflight.device.execute import Kept
from fastflight.device.listing import STAT
from fastflight.device.transfer import staging, statements
from fastflight.device.transfer.frames import buffer_bytes, check, end, escape, header, step_bytes
from fastflight.device.transfer.link import BoardLink
from fastflight.device.transfer.resident import NAME, sealed_call
from fastflight.device.transfer.staging import StagedFile
from fastflight.device.transfer.upload import FRUITLESS_ATTEMPTS, FileUpload
from fastflight.errors import DeviceFull, DeviceMemory, ProtocolError, TransportTimeout
from fastflight.own_code import wrap
from fastflight.protocol import RawRepl, Send
from tests.device.transfer.transcripts import GONE, pasted, recovered
from tests.support.memory import Answer, Entry, Silence, play
from tests.support.refusals import refused

FEATURES = frozenset({"stdin.buffer", "stdout.buffer", "binascii.crc32", "os.mkdir", "os.stat", "os.rename"})
BOARD = Capabilities(FEATURES, platform="esp32")
BLOCK = BOARD.block_bytes
WINDOW = 256
STEP = step_bytes(WINDOW)
PART = "/.fastflight-part"


def link() -> BoardLink:
    return BoardLink(RawRepl(True), BOARD)


def run(
    script: Iterable[Entry], *content: bytes, resume: Resumption | None = None, on: BoardLink | None = None
) -> WrittenFile:
    upload = FileUpload(on or link(), StagedFile("/x"), resume, Transfer())
    return play(upload.run(), script, content=content).result


def requested(routine: str, *arguments: object, missing: Sequence[str] = (), fresh: bool = False) -> list[Entry]:
    return pasted(sealed_call(BOARD, missing, routine, arguments, fresh=fresh))


def called(
    offset: int = 0, coming: int = 3, *, block: int = BLOCK, window: int = WINDOW, installed: bool = False
) -> list[Entry]:
    arguments = ("/x", PART, offset, buffer_bytes(block), step_bytes(window), coming)
    missing = () if installed else ("sum", "put")
    return [*requested("put", *arguments, missing=missing, fresh=not installed), Answer(b"R")]


def body(payload: bytes) -> bytes:
    return escape(check(payload) + payload)


def ended(content: bytes) -> list[Entry]:
    return [
        Send(end(verify=True)),
        Answer(b".D" + crc32(content)),
        Send(crc32(content).hex().encode()),
        Answer(b"\x04\x04>"),
    ]


def asked_for_the_part(size: int | None, digest: bytes = b"") -> list[Entry]:
    """Whether the routines are still there, how long the part is, and what it holds."""
    alive: list[Entry] = [*pasted(f"import {NAME}"), Answer(b"\x04\x04>")]
    code = STAT.format(path=PART)
    if size is None:
        return [*alive, *pasted(code), Answer(b"\x04Traceback\r\nOSError: [Errno 2] ENOENT\r\n\x04>")]
    script: list[Entry] = [*alive, *pasted(code), Answer(f"('', 32768, {size}, 0)\r\n\x04\x04>".encode())]
    if size:
        script += requested("show", (PART,), -1, BLOCK, missing=["show"])
        script.append(Answer(b"R" + digest.hex().encode() + b"\r\n\x04\x04>"))
    return script


def crc32(content: bytes) -> bytes:
    return binascii.crc32(content).to_bytes(4, "big")


def test_a_short_piece_is_one_step_flushed_and_then_all_is_verified() -> None:
    wire = body(b"ab\x03")
    # After each piece the board is listened to for a moment: it may have given up waiting.
    script = [*called(), Send(header(2, len(wire)) + wire), Answer(b"A"), Silence()]
    written = run([*script, *ended(b"ab\x03")], b"ab\x03")
    assert written == WrittenFile(3, hashlib.sha256(b"ab\x03").hexdigest(), "crc32")


def test_the_steps_on_the_way_fit_the_ring() -> None:
    content = bytes(256)[: BLOCK - 4] * 1
    wire = body(content)
    cut = [wire[at : at + STEP] for at in range(0, len(wire), STEP)]
    assert len(cut) > 3
    script: list[Entry] = [*called(coming=len(content)), Send(header(2, len(wire)) + cut[0] + cut[1] + cut[2])]
    for piece in cut[3:]:
        script += [Answer(b"A"), Send(piece)]
    script += [Answer(b"A"), Answer(b"A"), Answer(b"A"), Silence()]
    assert run([*script, *ended(content)], content).bytes == len(content)


def test_nothing_is_an_empty_file() -> None:
    assert run([*called(coming=0), *ended(b"")]).bytes == 0


def test_the_next_piece_is_fetched_when_the_one_before_is_stored() -> None:
    one, two = body(b"abc"), body(b"de")
    script: list[Entry] = [*called(), Send(header(2, len(one)) + one), Answer(b"A"), Silence()]
    script += [Send(header(2, len(two)) + two), Answer(b"A"), Silence()]
    assert run([*script, *ended(b"abcde")], b"abc", b"de").bytes == 5


def test_a_full_board_says_so_once_it_is_back_in_step() -> None:
    wire, on = body(b"abc"), link()
    script = [
        *called(),
        Send(header(2, len(wire)) + wire),
        Answer(b"ETraceback\r\nOSError: 28\r\n\x04"),
        *recovered(on),
    ]
    with refused(DeviceFull, where="/x"):
        run(script, b"abc", b"never asked for", on=on)


def test_a_damaged_block_is_sent_again_in_smaller_steps_from_what_the_board_has() -> None:
    content, on = bytes(range(BLOCK)) + b"rest", link()
    first, second = body(content[:BLOCK]), body(content[BLOCK:])
    cut = [first[at : at + STEP] for at in range(0, len(first), STEP)]
    script: list[Entry] = [*called(coming=len(content)), Send(header(0, len(first)) + b"".join(cut[:3]))]
    script += [Answer(b"A")]
    script += [Send(b"".join(cut[3:]) + header(2, len(second)) + second), Answer(b"A" * (len(cut) - 1))]
    script += [Answer(b"ETraceback\r\nValueError: damaged\r\n\x04"), *recovered(on)]
    script += asked_for_the_part(BLOCK, crc32(content[:BLOCK]))
    script += called(BLOCK, 4, block=BLOCK // 2, window=WINDOW // 2, installed=True)
    script += [Send(header(2, len(second)) + second), Answer(b"A"), Silence(), *ended(content)]
    assert run(script, content, on=on).bytes == len(content)


def test_a_part_that_is_not_what_was_sent_is_begun_anew() -> None:
    wire, on = body(b"abc"), link()
    script = [*called(), Send(header(2, len(wire)) + wire), Silence(), *recovered(on)]
    script += asked_for_the_part(3, b"\0\0\0\0")
    script += called(block=BLOCK // 2, window=WINDOW // 2, installed=True)
    script += [Send(header(2, len(wire)) + wire), Answer(b"A"), Silence(), *ended(b"abc")]
    assert run(script, b"abc", on=on).bytes == 3


def test_a_line_that_brings_nothing_new_is_given_up() -> None:
    wire, on = body(b"abc"), link()
    window, block = WINDOW, BLOCK
    script: list[Entry] = []
    for attempt in range(FRUITLESS_ATTEMPTS + 1):
        # What was installed is not trusted after the second failure in a row.
        script += called(block=block, window=window, installed=attempt == 1)
        script += [Send(header(2, len(wire)) + wire), Silence()]
        window, block = max(60, window // 2), max(128, block // 2)
        if attempt < FRUITLESS_ATTEMPTS:
            script += recovered(on, attempt + 1)
            found = asked_for_the_part(None)
            script += found if attempt == 0 else found[len(pasted(f"import {NAME}")) + 1 :]
    with pytest.raises(TransportTimeout):
        run(script, b"abc", on=on)


def test_a_reset_board_is_an_error() -> None:
    wire, on = body(b"abc"), link()
    script = [*called(), Send(header(2, len(wire)) + wire), Answer(b"?"), *recovered(on)]
    script += [*pasted(f"import {NAME}"), Answer(GONE)]
    with pytest.raises(ProtocolError, match="/x: the board was reset during the operation"):
        run(script, b"abc", on=on)


def test_a_damaged_question_is_no_reset() -> None:
    wire, on = body(b"abc"), link()
    script = [*called(), Send(header(2, len(wire)) + wire), Silence(), *recovered(on)]
    script += [*pasted(f"import {NAME}"), Answer(b"\x04Traceback\r\nSyntaxError: invalid syntax\r\n\x04>")]
    # What was installed is not trusted after the second failure.
    script += [*recovered(on, 2), *asked_for_the_part(None)[len(pasted("")) + 1 :]]
    script += [
        *called(block=max(128, BLOCK // 4), window=WINDOW // 4),
        Send(header(2, len(wire)) + wire),
        Answer(b"A"),
        Silence(),
    ]
    assert run([*script, *ended(b"abc")], b"abc", on=on).verified == "crc32"


def test_a_renaming_whose_answer_was_lost_is_done() -> None:
    wire, on = body(b"abc"), link()
    script = [*called(), Send(header(2, len(wire)) + wire), Answer(b"A"), Silence(), *ended(b"abc")[:-1]]
    script += [Silence(), *recovered(on), *asked_for_the_part(None)]
    script += requested("show", ("/x",), -1, BLOCK, missing=["show"])
    script += [Answer(b"R" + crc32(b"abc").hex().encode() + b"\r\n\x04\x04>")]
    assert run(script, b"abc", on=on).verified == "crc32"


def test_a_wrong_digest_leaves_the_old_file() -> None:
    wire = body(b"abc")
    script = [*called(), Send(header(2, len(wire)) + wire), Answer(b"A"), Silence()]
    script += [Send(end(verify=True)), Answer(b"D\0\0\0\0"), Send(b"N" * 8), Answer(b"\x04\x04>")]
    with pytest.raises(ProtocolError, match="/x: what the board wrote is not what was sent; the old file is untouched"):
        run(script, b"abc")


def test_a_board_that_is_at_its_digest_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastflight.device.transfer.upload.MOST_DOTS", 100)
    wire, on = body(b"abc"), link()
    script = [*called(), Send(header(2, len(wire)) + wire), Answer(b"A"), Silence(), Send(end(verify=True))]
    script += [Answer(b"." * 150 + b"D" + crc32(b"abc") + b"\x04\x04>"), *recovered(on)]
    script += [*pasted(f"import {NAME}"), Answer(GONE)]
    with pytest.raises(ProtocolError, match="/x: the board was reset during the operation"):
        run(script, b"abc", on=on)


def test_a_soft_reset_before_is_found_out_by_the_call() -> None:
    wire, on = body(b"abc"), link()
    first = [*called(), Send(header(2, len(wire)) + wire), Answer(b"A"), Silence(), *ended(b"abc")]
    run(first, b"abc", on=on)
    call = called(installed=True)[:-1]
    missing = Answer(f"\x04Traceback\r\nImportError: no module named '{NAME}'\r\n\x04>".encode())
    run([*call, missing, *first], b"abc", on=on)


REFUSED = Answer(b"\x04MemoryError: memory allocation failed, allocating 2192 bytes\r\n\x04>")


def written_as_text() -> list[Entry]:
    """The statements that write `abc`."""
    file = Kept.at(staging.FILE, BOARD)
    block = wrap((file.load + statements.statement(b"abc", base64=False, deflating=False)).encode())
    return [
        *pasted(statements.open_code(link(), StagedFile("/x"), 0, 3) + file.keep),
        Answer(b"\x04\x04>"),
        *pasted(block),
        Answer(b"3\r\n\x04\x04>"),
        *pasted(file.load + statements.FLUSH),
        Answer(b"\x04\x04>"),
        *pasted(file.load + staging.CLOSE + file.drop),
        Answer(b"\x04\x04>"),
    ]


def test_a_heap_that_is_too_small_gets_text_from_then_on() -> None:
    on = link()
    part = {"path": "/x", "part": PART}
    text = written_as_text()
    shown = requested("show", (PART,), -1, BLOCK, missing=["sum", "show"], fresh=True)
    digest = Answer(b"R" + crc32(b"abc").hex().encode() + b"\r\n\x04\x04>")
    renamed = [*pasted(staging.RENAME.format(**part)), Answer(b"\x04\x04>")]
    script = [*called()[:-1], REFUSED, *text, *shown, digest, *renamed]
    assert run(script, b"abc", on=on).verified == "crc32"
    script = [*text, *requested("show", (PART,), -1, BLOCK), digest, *renamed]
    assert run(script, b"abc", on=on).verified == "crc32"


def test_a_wrong_digest_of_what_went_as_text_leaves_the_old_file() -> None:
    on = link()
    script: list[Entry] = [*called()[:-1], REFUSED]
    script += written_as_text()
    script += requested("show", (PART,), -1, BLOCK, missing=["sum", "show"], fresh=True)
    script += [Answer(b"R" + crc32(b"abd").hex().encode() + b"\r\n\x04\x04>")]
    with pytest.raises(ProtocolError, match="/x: what the board wrote is not what was sent; the old file is untouched"):
        run(script, b"abc", on=on)


def test_a_heap_that_is_too_small_is_told_to_who_insists() -> None:
    upload = FileUpload(link(), StagedFile("/x"), None, Transfer(method="binary"))
    with refused(DeviceMemory, where="/x"):
        play(upload.run(), [*called()[:-1], REFUSED], content=[b"abc"])


def test_resuming_begins_where_the_part_ends() -> None:
    wire = body(b"cd")
    part = PartialWrite(2, "crc32", crc32(b"ab").hex())
    sha256 = hashlib.sha256(b"abcd").hexdigest()
    script = [*called(2, 2), Send(header(2, len(wire)) + wire), Answer(b"A"), Silence(), *ended(b"abcd")]
    assert run(script, b"cd", resume=Resumption(part, sha256)) == WrittenFile(4, sha256, "crc32")


def test_no_routine_grows_beyond_a_small_heap() -> None:
    """Its source has to fit a heap of some 20 KB beside what it compiles to."""
    installed = sealed_call(BOARD, ["sum", "put"], "put", (), fresh=True)
    assert len(installed) < 2100


def test_a_board_that_gave_up_waiting_is_not_sent_content_for_code() -> None:
    one, two, on = body(b"abc"), body(b"de"), link()
    script = [*called(), Send(header(2, len(one)) + one), Answer(b"A")]
    # While the second piece was fetched.
    script += [Answer(b"ETraceback\r\nOSError: ETIMEDOUT\r\n\x04\x04Traceback\r\nOSError: ETIMEDOUT\r\n\x04>")]
    script += [*recovered(on), *asked_for_the_part(3, crc32(b"abc"))]
    script += called(3, 2, block=BLOCK // 2, window=WINDOW // 2, installed=True)
    script += [Send(header(2, len(two)) + two), Answer(b"A"), Silence(), *ended(b"abcde")]
    assert run(script, b"abc", b"de", on=on).bytes == 5
