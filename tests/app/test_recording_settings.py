"""What is to be recorded, and where to."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastflight.app.overlay import read_config
from fastflight.errors import RequestError
from fastflight.log import Retention

HERE = "grpc://127.0.0.1:0"
FLEET = """
[recordings]
folder = "kept"
sync_ms = 100
max_days = 0.5
max_bytes = "1.5 GB"
[devices.a]
url = "sim:"
record = true
[devices.b]
url = "sim:"
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    path = tmp_path / "fleet.toml"
    path.write_text(FLEET)
    return path


def test_nothing_is_kept_unless_somebody_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("XDG_DATA_HOME", "LOCALAPPDATA", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    kept = read_config(HERE, [], None).recordings
    assert kept is not None and kept.on_demand
    assert kept.folder.is_relative_to(tmp_path) and not list(tmp_path.iterdir())


def test_a_user_without_a_home_can_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_DATA_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # as for a user id that has no entry
    assert read_config(HERE, [], None).recordings is None


def test_a_fleet_file_says_what_is_kept(fleet: Path, tmp_path: Path) -> None:
    found = read_config(HERE, [], fleet)
    assert found.recordings is not None and found.recorded == ["a"]
    assert (found.recordings.folder, found.recordings.sync_ms) == (tmp_path / "kept", 100)
    assert found.recordings.retention == Retention(43_200, 1_500_000_000)


def test_the_command_line_goes_first_and_adds(fleet: Path, tmp_path: Path) -> None:
    found = read_config(HERE, ["c=sim:"], fleet, recordings=tmp_path / "there", record=["[bc]"])
    assert found.recordings is not None and found.recordings.folder == tmp_path / "there"
    assert found.recorded == ["a", "b", "c"]


def test_without_a_folder_it_is_among_the_users_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("XDG_DATA_HOME", "LOCALAPPDATA", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    found = read_config(HERE, [], None, record=["*"])
    kept = found.recordings
    assert kept is not None and found.recorded == ["demo"]
    assert kept.folder.parts[-2:] == ("fastflight", "recordings") and kept.folder.is_relative_to(tmp_path)


def test_a_name_that_fits_no_device_is_refused() -> None:
    with pytest.raises(RequestError, match="--record dmeo: no device has this name. Did you mean 'demo'"):
        read_config(HERE, [], None, record=["dmeo"])


def test_a_folder_in_the_home_of_nobody_is_refused(fleet: Path) -> None:
    fleet.write_text(FLEET.replace('"kept"', '"~nobody-at-all/kept"'))
    with pytest.raises(RequestError, match="no user here has the home of '~nobody-at-all/kept'"):
        read_config(HERE, [], fleet)
