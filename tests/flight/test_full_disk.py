"""A disk that is really full: what was promised stays, what cannot be kept is told, and with room all goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from fastflight.cli.main import app
from fastflight.client import FastFlightClient
from fastflight.errors import FastFlightError, RequestError, StorageFull
from fastflight.log import Store
from fastflight.sources import recorder as recorder_module
from tests.flight.test_recordings import RECORDING, SESSION, messages, recording
from tests.log.rows import batch_of, numbers
from tests.support.servers import serving
from tests.support.small_disk import BLOCK_BYTES, SmallDisk


def test_the_disk_is_full_and_has_room_again(small_disk: SmallDisk) -> None:
    (small_disk.folder / "before").write_bytes(b"x" * BLOCK_BYTES)
    small_disk.fill()
    assert small_disk.free() == 0
    with pytest.raises(OSError, match="No space left"):
        (small_disk.folder / "more").write_bytes(b"x")
    small_disk.empty()
    (small_disk.folder / "more").write_bytes(b"x" * BLOCK_BYTES)
    small_disk.fill(2 * BLOCK_BYTES)
    assert small_disk.free() == 2 * BLOCK_BYTES


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


def test_live_rows_go_on_and_the_recording_catches_up(
    small_disk: SmallDisk, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr(recorder_module, "LAST_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(recorder_module, "FIRST_RETRY_SECONDS", 0.01)
    with recording(small_disk.folder / "kept") as (board, _):
        live = messages(board, **SESSION, mode=mode)
        said: list[str] = []
        number = -1
        for rows, note in live:
            for row in rows:
                assert row["seq"] == number + 1 or number == -1
                number = row["seq"]
            if "recording" in note:
                said.append(note["recording"])
                small_disk.empty()
            elif rows and not said:
                small_disk.fill()
            if len(said) == 2 and rows:
                break
        live.close()
        assert "no room on the disk" in said[0] and said[1] == "recording"
        board.act("recording.stop", device="demo")
        assert board.table(**RECORDING, to_seq=number)["seq"].to_pylist() == list(range(number + 1))


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
