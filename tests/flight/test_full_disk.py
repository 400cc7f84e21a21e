"""A disk that is really full: what was promised stays, what cannot be kept is told, and with room all goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from fastflight.cli.main import app
from fastflight.client import FastFlightClient
from fastflight.errors import FastFlightError, RequestError, StorageFull
from fastflight.log import Store
from tests.log.rows import batch_of, numbers
from tests.support.servers import serving
from tests.support.small_disk import BLOCK_BYTES, SmallDisk


@pytest.mark.parametrize("room", [0, BLOCK_BYTES])
def test_what_was_acknowledged_is_there_and_numbers_go_on(small_disk: SmallDisk, room: int) -> None:
    with Store(small_disk.folder / "kept", sync_ms=0) as store:
        log = store.open("demo")
        reached = 0
        for _ in range(3):
            small_disk.fill(room)
            with pytest.raises(StorageFull):
                while True:
                    log.append(batch_of("demo", reached, 5), first=reached).result()
                    reached += 5
            small_disk.empty()
            log.append(batch_of("demo", reached, 5), first=reached).result()
            reached += 5
            assert numbers(log.read()) == set(range(reached))
        assert not store.content.damaged
        small_disk.fill()
    with Store(small_disk.folder / "kept", sync_ms=0) as store:  # opened while it is full
        assert numbers(store.log("demo").read()) == set(range(reached))


def test_a_copy_leaves_the_old_file(small_disk: SmallDisk, tmp_path: Path) -> None:
    place, folder = small_disk.folder / "b.bin", small_disk.folder / "tree"
    folder.mkdir()
    for old in (place, folder / "b.bin"):
        old.write_bytes(b"old")
    (tmp_path / "board").mkdir()
    (tmp_path / "board" / "b.bin").write_bytes(bytes(3 * BLOCK_BYTES))
    with serving({"demo": f"sim:?files={tmp_path / 'board'}"}) as server:
        with FastFlightClient(server.location) as client:
            small_disk.fill()
            with pytest.raises(RequestError, match="No space left"):
                client.get_file("demo", "/b.bin", place)
            with pytest.raises(FastFlightError, match="No space left"):
                client.get_tree("demo", "/", folder)
            result = CliRunner().invoke(app, ["get", "demo:/b.bin", "-o", str(place), "--server", server.location])
            assert result.exit_code == 1 and "No space left" in result.stderr
            assert place.read_bytes() == (folder / "b.bin").read_bytes() == b"old"
            small_disk.empty()
            client.get_file("demo", "/b.bin", place)
            client.get_tree("demo", "/", folder)
            assert place.read_bytes() == (folder / "b.bin").read_bytes() == bytes(3 * BLOCK_BYTES)
    assert sorted(path.name for path in small_disk.folder.rglob("*")) == ["b.bin", "b.bin", "tree"]


def test_tokens_stay_as_they_are(small_disk: SmallDisk) -> None:
    path = small_disk.folder / "tokens.json"
    added = ["token", "add", "ada", "--scope", "read:*", "--file", str(path)]
    assert CliRunner().invoke(app, added).exit_code == 0
    before = path.read_bytes()
    small_disk.fill()
    result = CliRunner().invoke(app, added)
    assert result.exit_code == 1 and "No space left" in result.stderr and result.stdout == ""
    assert path.read_bytes() == before
    small_disk.empty()
    assert CliRunner().invoke(app, added).exit_code == 0
    assert {each.name for each in small_disk.folder.iterdir()} == {"tokens.json", "tokens.json.lock"}
