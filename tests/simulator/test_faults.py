"""Fault specs, and what each does to traffic."""

from __future__ import annotations

import pytest

from fastflight.simulator.faults import SPECS, Faults


class Unplugged(BaseException):
    """Stands for the end of the process."""


def unplug() -> None:
    raise Unplugged


@pytest.mark.parametrize(
    "spec", ["", "reset", "reset-after-rx", "reset-after-rx=", "drop-rx=2", "full-after=-1", "x=1"]
)
def test_a_wrong_spec_is_refused(spec: str) -> None:
    with pytest.raises(ValueError, match="fault"):
        Faults.parse([spec])


def test_every_spec_is_documented_and_parsed() -> None:
    import fastflight.simulator.faults as module

    for name in SPECS:
        assert f"`{name}=" in (module.__doc__ or "")
        assert getattr(Faults.parse([f"{name}=1"]), name.replace("-", "_")) == 1


def test_no_fault_changes_nothing() -> None:
    faults = Faults()
    assert faults.on_receive(b"abc", 0) == (b"abc", "")
    assert faults.send_allowance(0, 100) == 100
    assert faults.on_sent(100) == ""


@pytest.mark.parametrize("name", ["reset", "stall"])
@pytest.mark.parametrize("cut", [1, 4, 5])
def test_a_limit_strikes_once_at_its_byte(name: str, cut: int) -> None:
    faults = Faults.parse([f"{name}-after-rx=5"])
    first, event = faults.on_receive(b"abcdefgh"[:cut], 0)
    if cut < 5:
        assert (first, event) == (b"abcdefgh"[:cut], "")
        assert faults.on_receive(b"abcdefgh"[cut:], cut) == (b"abcde"[cut:], name)
    else:
        assert (first, event) == (b"abcde", name)
    assert faults.on_receive(b"xyz", 5) == (b"xyz", "")


def test_unplug_after_receiving() -> None:
    faults = Faults.parse(["unplug-after-rx=5"], unplug=unplug)
    faults.on_receive(b"abcd", 0)
    with pytest.raises(Unplugged):
        faults.on_receive(b"e", 4)


def test_exit_after_sending() -> None:
    faults = Faults.parse(["exit-after-tx=5"], unplug=unplug)
    assert faults.send_allowance(0, 100) == 5
    with pytest.raises(Unplugged):
        faults.on_sent(5)


def test_dropped_bytes_are_the_same_every_time() -> None:
    data = bytes(1000)
    kept = [len(Faults.parse(["drop-rx=0.1"]).on_receive(data, 0)[0]) for _ in range(2)]
    assert kept[0] == kept[1]
    assert 850 < kept[0] < 950
    assert Faults.parse(["drop-rx=1"]).on_receive(data, 0)[0] == b""
