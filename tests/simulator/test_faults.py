"""Fault specs, and what each does to traffic."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fastflight.simulator.faults import MIX_FIRST_BYTE, MIX_STRIKES, OVERFLOW_BYTES, SPECS, Faults


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
        Faults.parse([f"{name}=1"])


def test_no_fault_changes_nothing() -> None:
    faults = Faults()
    assert faults.on_receive(b"abc", 0) == (b"abc", "")
    assert faults.send_allowance(0, 100) == 100
    assert faults.on_send(memoryview(b"abc"), 0) == (b"abc", "")
    assert not faults.on_write(100)


def received(specs: list[str], data: bytes, cut: int) -> bytes:
    """What is left of `data` that arrives in pieces of `cut` bytes."""
    faults = Faults.parse(specs)
    return b"".join(faults.on_receive(data[at : at + cut], at)[0] for at in range(0, len(data), cut))


def sent(specs: list[str], data: bytes, cut: int) -> bytes:
    """What is on the line of `data` that leaves in pieces of `cut` bytes."""
    faults = Faults.parse(specs)
    return b"".join(bytes(faults.on_send(memoryview(data)[at : at + cut], at)[0]) for at in range(0, len(data), cut))


@pytest.mark.parametrize("cut", [1, 2, 3, 5, 10])
@pytest.mark.parametrize("move", [received, sent])
def test_bytes_are_lost_and_changed_where_it_was_said(move: Callable[[list[str], bytes, int], bytes], cut: int) -> None:
    way = "rx" if move is received else "tx"
    assert move([f"lose-{way}=3"], b"0123456789", cut) == b"013456789"
    assert move([f"flip-{way}=3"], b"0123456789", cut) == b'01"3456789'
    assert move([f"flip-{way}=9", f"lose-{way}=1", f"lose-{way}=2"], b"0123456789", cut) == b"234567(9"


@pytest.mark.parametrize("cut", [1, 7, 50, 1000])
def test_an_overflow_loses_bytes_in_a_row(cut: int) -> None:
    data = bytes(range(200))
    assert received(["overflow-rx=11"], data, cut) == data[:10] + data[10 + OVERFLOW_BYTES :]


def test_an_overflow_is_over_when_the_line_was_quiet() -> None:
    now = 0.0
    faults = Faults(clock=lambda: now)
    faults.join(Faults.parse(["overflow-rx=1"]), received=0, sent=0)
    assert faults.on_receive(b"abc", 0) == (b"", "")
    now = 1.0
    assert faults.on_receive(b"def", 3) == (b"def", "")


def test_a_strike_in_what_a_reset_swallowed_does_not_come_later() -> None:
    faults = Faults.parse(["reset-after-rx=3", "lose-rx=5"])
    assert faults.on_receive(b"0123456", 0) == (b"012", "reset")
    assert faults.on_receive(b"789", 7) == (b"789", "")


def test_each_strike_is_told_once() -> None:
    reported: list[str] = []
    faults = Faults.parse(["lose-rx=2", "flip-tx=1", "full-after=1"])
    faults.on_strike = reported.append
    faults.on_receive(b"abc", 0)
    faults.on_receive(b"abc", 3)
    faults.on_send(memoryview(b"a"), 0)
    faults.on_write(1)
    faults.on_write(1)
    assert reported == ["lose-rx=2", "flip-tx=1", "full-after=0"]


def test_faults_that_join_count_from_then() -> None:
    faults = Faults()
    faults.join(Faults.parse(["lose-rx=2", "reset-after-tx=3"]), received=100, sent=50)
    assert faults.on_receive(b"abc", 100) == (b"ac", "")
    assert faults.send_allowance(50, 10) == 3
    assert faults.on_send(memoryview(b"abc"), 50) == (b"abc", "reset")


def test_a_mix_is_the_same_for_the_same_seed() -> None:
    one, again, other = (Faults.parse([f"mix={seed}"]) for seed in (1, 1, 2))
    assert (one.rx, one.tx) == (again.rx, again.tx) != (other.rx, other.tx)
    assert len(one.rx) + len(one.tx) == MIX_STRIKES
    assert min(strike.at for strike in one.rx + one.tx) >= MIX_FIRST_BYTE


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


@pytest.mark.parametrize(("name", "event"), [("exit", "unplug"), ("reset", "reset"), ("stall", "stall")])
def test_an_event_after_sending(name: str, event: str) -> None:
    faults = Faults.parse([f"{name}-after-tx=5"])
    assert faults.send_allowance(0, 100) == 5
    assert faults.on_send(memoryview(b"abcde"), 0) == (b"abcde", event)
    assert faults.send_allowance(5, 100) == 100


def test_dropped_bytes_are_the_same_every_time() -> None:
    data = bytes(1000)
    kept = [len(Faults.parse(["drop-rx=0.1"]).on_receive(data, 0)[0]) for _ in range(2)]
    assert kept[0] == kept[1]
    assert 850 < kept[0] < 950
    assert len(Faults.parse(["drop-rx=0.1"], seed=1).on_receive(data, 0)[0]) != kept[0]
    assert Faults.parse(["drop-rx=1"]).on_receive(data, 0)[0] == b""
