"""What the probe's answer means."""

import pytest

from fastflight.device.capabilities import Capabilities, parse

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
