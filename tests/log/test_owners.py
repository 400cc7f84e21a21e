"""One owner per device, among threads and processes, until the lease ends."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from fastflight.errors import BusyError, StorageError
from fastflight.log import FolderOwners, Lease, Owners


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_who_comes_second_is_told_who_came_first(tmp_path: Path, clock: Clock) -> None:
    owners: Owners = FolderOwners(tmp_path, clock=clock)
    lease = owners.acquire("weather", "server-1", 30)
    assert owners.holder("weather") == lease == Lease("weather", "server-1", 1, 1030)
    with pytest.raises(BusyError) as busy:
        FolderOwners(tmp_path, clock=clock).acquire("weather", "server-2", 30)
    assert busy.value.holder == "server-1"
    assert owners.acquire("other", "server-2", 30).token == 1


def test_a_lease_that_ran_out_is_taken_over_under_a_larger_token(tmp_path: Path, clock: Clock) -> None:
    owners = FolderOwners(tmp_path, clock=clock)
    old = owners.acquire("weather", "server-1", 30)
    clock.now += 31
    assert owners.holder("weather") is None
    new = owners.acquire("weather", "server-2", 30)
    assert new.token > old.token
    with pytest.raises(BusyError) as busy:
        owners.renew(old, 30)
    assert busy.value.holder == "server-2"
    owners.release(old)
    assert owners.holder("weather") == new


def test_renewed_in_time_it_is_kept_and_late_too_if_nobody_came(tmp_path: Path, clock: Clock) -> None:
    owners = FolderOwners(tmp_path, clock=clock)
    lease = owners.acquire("weather", "server-1", 30)
    clock.now += 29
    lease = owners.renew(lease, 30)
    assert lease.until == 1059
    clock.now += 100
    assert owners.renew(lease, 30).until == 1159


def test_tokens_grow_over_a_release(tmp_path: Path, clock: Clock) -> None:
    owners = FolderOwners(tmp_path, clock=clock)
    first = owners.acquire("a/b c", "one", 30)
    owners.release(first)
    assert owners.holder("a/b c") is None
    assert owners.acquire("a/b c", "two", 30).token == first.token + 1


def test_a_damaged_lease_is_not_given_away(tmp_path: Path, clock: Clock) -> None:
    owners = FolderOwners(tmp_path, clock=clock)
    owners.acquire("weather", "server-1", 30)
    (tmp_path / "weather.lease").write_bytes(b"{}")
    with pytest.raises(StorageError, match="lease can not be read"):
        owners.acquire("weather", "server-2", 30)


@pytest.mark.parametrize(
    "damage",
    [
        b'{"until": "soon"}',
        b'{"until": NaN}',
        b'{"until": 1' + b"0" * 400 + b"}",
        b'{"token": 1.5}',
        b'{"owner": null}',
        b"[" * 100_000,
        b'{"more": 1}',
    ],
)
def test_a_lease_of_other_values_is_not_given_away_either(tmp_path: Path, clock: Clock, damage: bytes) -> None:
    owners = FolderOwners(tmp_path, clock=clock)
    owners.acquire("weather", "server-1", 30)
    path = tmp_path / "weather.lease"
    changed = damage if damage.startswith(b"[") else json.dumps(json.loads(path.read_bytes()) | json.loads(damage))
    path.write_bytes(changed if isinstance(changed, bytes) else changed.encode())
    clock.now += 31
    for ask in (lambda: owners.acquire("weather", "server-2", 30), lambda: owners.holder("weather")):
        with pytest.raises(StorageError, match="the lease can not be read"):
            ask()


def test_of_many_at_once_one_gets_it(tmp_path: Path) -> None:
    won: list[Lease] = []

    def compete(number: int) -> None:
        try:
            won.append(FolderOwners(tmp_path).acquire("weather", f"server-{number}", 30))
        except BusyError:
            pass

    threads = [threading.Thread(target=compete, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
