"""Files and folders copied on real MicroPython: a micro:bit's firmware, and the VM in WebAssembly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fastflight.client import FastFlightClient
from fastflight.service.choices import Mode

from .conftest import BoardServer, Serve

pytestmark = pytest.mark.firmware

CONTENT = bytes(range(256)) * 24


class RealCopyInterrupted(Exception):
    """What a test breaks a copy off with."""


@pytest.fixture(params=["microbit", "webassembly_without_raw_paste"])
def real(request: pytest.FixtureRequest, serve: Serve) -> BoardServer:
    """Each of the targets."""
    return serve(request.getfixturevalue(request.param))


@pytest.fixture
def client(real: BoardServer) -> Iterator[FastFlightClient]:
    with FastFlightClient(real.location) as client:
        yield client


def test_a_read_begins_at_an_offset(real: BoardServer, client: FastFlightClient, tmp_path: Path, mode: Mode) -> None:
    (tmp_path / "a.bin").write_bytes(CONTENT)
    assert client.put_file("demo", "/a.bin", tmp_path / "a.bin", mode=mode).bytes == len(CONTENT)
    rows = real.table(type="device.file", device="demo", path="/a.bin", format="raw", offset=3000, mode=mode)
    assert b"".join(rows["data"].to_pylist()) == CONTENT[3000:]


def test_a_write_that_broke_off_ends_whole(client: FastFlightClient, tmp_path: Path, mode: Mode) -> None:
    here, back = tmp_path / "a.bin", tmp_path / "back.bin"
    here.write_bytes(CONTENT)

    def break_off(rows: int, done: int, total: int | None) -> None:
        if done:
            raise RealCopyInterrupted

    with pytest.raises(RealCopyInterrupted):
        client.put_file("demo", "/a.bin", here, mode=mode, progress=break_off)
    copied = client.put_file("demo", "/a.bin", here, mode=mode)
    assert copied.bytes == len(CONTENT)
    assert client.get_file("demo", "/a.bin", back, mode=mode).sha256 == copied.sha256
    assert back.read_bytes() == CONTENT


def test_a_part_here_is_gone_on_with_where_the_board_takes_digests(
    client: FastFlightClient, tmp_path: Path, mode: Mode
) -> None:
    here, back = tmp_path / "a.bin", tmp_path / "back.bin"
    here.write_bytes(CONTENT)
    client.put_file("demo", "/a.bin", here, mode=mode)
    (tmp_path / "back.bin.part").write_bytes(CONTENT[:1000])
    able = {"hashlib.sha256", "binascii.crc32"} & set(client.info("demo")["features"])
    assert client.get_file("demo", "/a.bin", back, mode=mode).resumed_at == (1000 if able else 0)
    assert back.read_bytes() == CONTENT
    assert client.put_file("demo", "/a.bin", here, mode=mode, skip_unchanged=True).unchanged == bool(able)


def test_a_tree_there_and_back(client: FastFlightClient, tmp_path: Path, mode: Mode) -> None:
    # A micro:bit has no folders, and the VM's root has devices in it that never end.
    folder = "/tree" if "os.mkdir" in client.info("demo")["features"] else "/"
    files = {"a.py": b"print('a')\n", "b.bin": CONTENT[:700], "empty": b""}
    (tmp_path / "src").mkdir()
    for name, content in files.items():
        (tmp_path / "src" / name).write_bytes(content)
    assert client.put_tree("demo", folder, tmp_path / "src", mode=mode).files == tuple(files)
    copied = client.get_tree("demo", folder, tmp_path / "back", mode=mode)
    assert set(files) <= set(copied.files)
    assert {name: (tmp_path / "back" / name).read_bytes() for name in files} == files
    again = client.put_tree("demo", folder, tmp_path / "src", mode=mode, skip_unchanged=True)
    able = {"hashlib.sha256", "binascii.crc32"} & set(client.info("demo")["features"])
    assert again.unchanged == (tuple(files) if able else ())
