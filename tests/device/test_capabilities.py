"""What the probe's answer means."""

import binascii

import pytest

from fastflight.device import Inventory
from fastflight.device.board import PROBE_ATTEMPTS, OpenBoard
from fastflight.device.capabilities import Capabilities, parse
from fastflight.errors import ProtocolError
from fastflight.protocol import Receive, Send
from fastflight.protocol.raw_repl import Output

ANSWER = (
    b"os.mkdir\r\nhashlib.sha256\r\nplatform='esp32'\r\nversion='3.4.0; MicroPython v1.27'\r\nfree_memory=120000\r\n"
    b"epoch=2000\r\nunique_id=b'\\x24\\x0a'\r\nmachine=open('/etc')\r\n\xff\r\n"
)


def test_reads_features_and_values_and_passes_over_the_rest() -> None:
    found = parse(ANSWER)
    assert found.has("os.mkdir", "hashlib.sha256")
    assert not found.has("os.mkdir", "os.rename")
    assert (found.platform, found.free_memory, found.unique_id, found.machine) == ("esp32", 120000, "240a", "")
    assert found.epoch_offset == 946684800


@pytest.mark.parametrize(
    ("free", "block"),
    [
        (8_000_000, 2048),
        (100_000, 2048),
        (99_999, 1024),
        (50_000, 1024),
        (20_000, 512),
        (19_999, 256),
        (4_000, 64),
        (0, 256),
    ],
)
def test_the_block_follows_the_free_memory(free: int, block: int) -> None:
    assert Capabilities(frozenset(), free_memory=free).block_bytes == block


def test_a_flat_file_system_knows_no_slash() -> None:
    assert Capabilities(frozenset()).native_path("/a.txt") == "a.txt"
    assert Capabilities(frozenset({"os.mkdir"})).native_path("/a.txt") == "/a.txt"


def test_garbage_is_no_board() -> None:
    assert parse(b"\x00=\xff\n===\n=(((((\n") == Capabilities(frozenset())


CHECKED = b"binascii.crc32\r\nos.mkdir\r\nos.rename\r\nplatform='esp32'\r\nepoch=2000\r\n"
CHECKED += b"crc32=%d\r\n" % binascii.crc32(CHECKED.replace(b"\r", b""))


@pytest.mark.parametrize("change", [b"", b"x"], ids=["lost", "changed"])
def test_an_answer_that_was_damaged_on_the_line_is_not_believed(change: bytes) -> None:
    whole = parse(CHECKED)
    for at in range(len(CHECKED)):
        try:
            assert parse(CHECKED[:at] + change + CHECKED[at + 1 :]) == whole
        except ProtocolError:
            pass
    with pytest.raises(ProtocolError, match="changed or lost"):
        parse(CHECKED.replace(b"os.mkdir\r\n", b"os.mkdr\r\n"))


NO_CRC32 = b"ImportError: no module named 'binascii'"
DAMAGED = b"SyntaxError: invalid syntax"


@pytest.mark.parametrize(
    ("outputs", "seals", "found"),
    [
        ([Output(CHECKED, b"")], [True], parse(CHECKED)),
        ([Output(b"", DAMAGED), Output(CHECKED[1:], b""), Output(CHECKED, b"")], [True] * 3, parse(CHECKED)),
        # Code without a seal may have been changed: its answer counts if the board cannot check a seal.
        ([Output(b"", NO_CRC32), Output(b"os.stat\n", b"")], [True, False], Capabilities(frozenset({"os.stat"}))),
        ([Output(b"", NO_CRC32), Output(CHECKED, b""), Output(CHECKED, b"")], [True, False, True], parse(CHECKED)),
        ([Output(b"", DAMAGED)] * PROBE_ATTEMPTS, [True] * PROBE_ATTEMPTS, None),
    ],
)
def test_the_probe_is_repeated_until_its_answer_can_be_believed(
    outputs: list[Output], seals: list[bool], found: Capabilities | None
) -> None:
    said = iter(
        piece
        for output in outputs
        for piece in (b"R\x01\xff\xff", b"\x04" + output.stdout + b"\x04" + output.stderr + b"\x04>")
    )
    used = []
    probe = OpenBoard(paste=True)._probe()
    step, result = next(probe), None
    try:
        while True:
            if isinstance(step, Send) and b"exec" in step.data:
                used.append(b"crc32(c)==" in step.data)
            step = probe.send(next(said) if isinstance(step, Receive) else b"")
    except StopIteration as end:
        result = end.value
    except ProtocolError:
        pass
    assert (result, used) == (found, seals)


@pytest.mark.firmware
def test_a_board_that_raw_paste_hangs_is_opened_anew_and_not_asked_again(webassembly: str) -> None:
    with Inventory({"demo": webassembly}) as inventory:
        device = inventory.device("demo")
        with device.lease("test") as session:
            assert session.exec("print(1 + 1)").stdout == b"2\n"
        assert device.openings == 2
        port = device._line.port
        assert port is not None
        port.close()
        with device.lease("test") as session:
            assert session.exec("print(1 + 2)").stdout == b"3\n"
        assert device.openings == 3
