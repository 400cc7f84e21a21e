"""Lines and boards that fail in the middle of a file: never a wrong one."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastflight.device import Device, Inventory
from fastflight.device.transfer import routines
from fastflight.device.transfer.resident import NAME
from fastflight.errors import FastFlightError, ProtocolError, TransportError
from fastflight_benchmark.simulated import SimulatedBoard
from tests.device.content import CONTENT

FAULTS = ["reset-after-rx", "reset-after-tx", "unplug-after-rx", "exit-after-tx"]
# What a transfer gets over: bytes lost or changed, and the ring too small.
LOSSES = ["lose-rx", "flip-rx", "overflow-rx"]


def works_again(device: Device, folder: Path) -> None:
    """The same device carries out a transfer in both directions, once a fault has struck.

    Not where a fault ends the board's process: the next one has the fault as well.
    """
    with device.lease("test") as session:
        session.write("/after.bin", [CONTENT[:900]])
        assert b"".join(session.read("/after.bin")) == CONTENT[:900] == (folder / "after.bin").read_bytes()


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("after", [4500, 14000])
def test_a_broken_write_never_leaves_a_wrong_file(
    board: Callable[[str], Inventory], tmp_path: Path, fault: str, after: int
) -> None:
    device = board(f"fault={fault}%3D{after // (10 if 'tx' in fault else 1)}").device("demo")
    try:
        with device.lease("test") as session:
            session.write("/old.bin", [CONTENT])
    except FastFlightError:
        assert (tmp_path / "old.bin").read_bytes() == b"the old content"
        if "reset" in fault:
            works_again(device, tmp_path)
    else:
        assert (tmp_path / "old.bin").read_bytes() == CONTENT
    assert device.holder is None


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("after", [1200, 9000])
def test_a_broken_read_never_gives_wrong_bytes(
    board: Callable[[str], Inventory], tmp_path: Path, fault: str, after: int
) -> None:
    device = board(f"fault={fault}%3D{after}").device("demo")
    (tmp_path / "big.bin").write_bytes(CONTENT)
    received = b""
    try:
        with device.lease("test") as session:
            for piece in session.read("/big.bin"):
                received += piece
    except FastFlightError:
        assert CONTENT.startswith(received)
        if "reset" in fault:
            works_again(device, tmp_path)
    else:
        assert received == CONTENT


def test_a_line_that_loses_bytes_is_noticed(board: Callable[[str], Inventory], tmp_path: Path) -> None:
    device = board("fault=drop-rx%3D0.001").device("demo")
    for _ in range(3):
        try:
            with device.lease("test") as session:
                session.write("/old.bin", [CONTENT])
        except FastFlightError:
            assert (tmp_path / "old.bin").read_bytes() in (b"the old content", CONTENT)
        else:
            assert (tmp_path / "old.bin").read_bytes() == CONTENT


# A board that reads Ctrl-C as a byte, as MicroPython's unix port does: nothing but a full step ends its waiting for the
# rest of one.
NO_INTERRUPT = "no-interrupt=1&baud=921600"


@pytest.mark.parametrize(
    ("line", "fault", "size"),
    [
        ("baud=921600", "lose-rx=3500", None),
        ("baud=921600", "flip-rx=7000", None),
        ("baud=921600", "overflow-rx=11000", None),
        (f"{NO_INTERRUPT}&ring=256", "lose-rx=2600", None),
        (f"{NO_INTERRUPT}&ring=256", "flip-rx=7000", None),
        (f"{NO_INTERRUPT}&ring=256", "overflow-rx=12000", None),
        ("no-interrupt=1&baud=115200&ring=64", "lose-rx=7000", None),
        # A short file.
        (NO_INTERRUPT, "lose-rx=2600", 900),
        (NO_INTERRUPT, "lose-rx=3200", 900),
        (NO_INTERRUPT, "lose-rx=3500", 900),
        # Slow flash, and a ring smaller than it is taken for at first.
        ("baud=921600&ring=512", "flash-stall=3", None),
        ("baud=921600&ring=128", "flash-stall=20", None),
    ],
)
def test_a_write_gets_over_a_loss(
    board: Callable[[str], Inventory], tmp_path: Path, line: str, fault: str, size: int | None
) -> None:
    content = CONTENT[:size]
    device = board(f"{line}&fault={fault.replace('=', '%3D')}").device("demo")
    # On a busy computer the small ring may overflow first. Then the loss may hit the code that sends the file again,
    # which is an error of its own, and not the content.
    may_fail_once = contextlib.suppress(ProtocolError) if "ring=64" in line else contextlib.nullcontext()
    with device.lease("test") as session:
        written = None
        with may_fail_once:
            written = session.write("/old.bin", [content[:6000], content[6000:]])
        assert (written or session.write("/old.bin", [content])).bytes == len(content)
        assert b"".join(session.read("/old.bin")) == content
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old.bin"]
    assert (tmp_path / "old.bin").read_bytes() == content


@pytest.mark.parametrize("fault", ["lose-tx", "flip-tx"])
@pytest.mark.parametrize("after", [2500, 10500])
def test_a_read_gets_over_a_loss(board: Callable[[str], Inventory], tmp_path: Path, fault: str, after: int) -> None:
    device = board(f"baud=921600&fault={fault}%3D{after}").device("demo")
    (tmp_path / "big.bin").write_bytes(CONTENT)

    async def main() -> bytes:
        async with device.alease("test") as session:
            return b"".join([piece async for piece in session.read("/big.bin")])

    assert asyncio.run(main()) == CONTENT


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    fault=st.sampled_from([*FAULTS, *LOSSES, "lose-tx", "flip-tx"]),
    after=st.integers(200, 16_000),
    sizes=st.lists(st.integers(1, 5000), min_size=1, max_size=4),
    baud=st.sampled_from([0, 921_600]),
)
def test_whatever_happens_wherever_no_file_is_wrong(fault: str, after: int, sizes: list[int], baud: int) -> None:
    content = [CONTENT[:size] for size in sizes]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "old.bin"
        file.write_bytes(b"the old content")
        url = f"sim:?files={folder}&telemetry=0&baud={baud}&fault={fault}%3D{after}"
        with Inventory({"demo": url}) as inventory:
            device = inventory.device("demo")
            done, received = False, b""
            try:
                with device.lease("test") as session:
                    session.write("/old.bin", content)
                    done = True
                    for piece in session.read("/old.bin"):
                        received += piece
            except FastFlightError:
                assert b"".join(content).startswith(received)
            else:
                assert received == b"".join(content)
            assert file.read_bytes() in ([b"".join(content)] if done else [b"the old content", b"".join(content)])
            assert device.holder is None


def test_a_board_whose_host_is_gone_gives_up_by_itself(
    board: Callable[[str], Inventory], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routines, "TAKE_IN_TIME", routines.TAKE_IN_TIME.replace("30000", "20"))
    with board("baud=0").device("demo").lease("test") as session:
        session.write("/new.bin", [CONTENT])
        output = session.exec(f"import {NAME}\n{NAME}.put('/x','/part',0,300,100,0)")
        assert output.stdout.startswith(b"RE")
        assert b"ETIMEDOUT" in output.stderr
        assert b"".join(session.read("/old.bin")) == b"the old content"
        session.remove("/part")


@pytest.mark.parametrize("options", ["baud=0", "no-interrupt=1"])
def test_ctrl_c_ends_a_transfer_that_its_host_left_in_the_middle(
    board: Callable[[str], Inventory], tmp_path: Path, options: str
) -> None:
    """No byte of content is Ctrl-C, so it still is what it was: for the next owner, whoever that is."""

    def leaving() -> Iterator[bytes]:
        yield CONTENT
        raise KeyboardInterrupt

    device = board(options).device("demo")
    with device.lease("test") as session:
        with pytest.raises(KeyboardInterrupt):
            session.write("/old.bin", leaving())
        assert session.exec("print(1)").stdout == b"1\r\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old.bin"]


def test_a_board_comes_back_at_another_port(tmp_path: Path) -> None:
    """The name of a device may be a link that the system sets anew, as udev does below `/dev/serial`."""
    link = tmp_path / "port"
    with Inventory({"board": str(link)}) as inventory:
        device = inventory.device("board")
        for number in range(2):
            with SimulatedBoard(tmp_path / str(number)) as board:
                (board.folder / "number.txt").write_text(str(number))
                link.unlink(missing_ok=True)
                link.symlink_to(board.path)
                with device.lease("test") as session:
                    assert b"".join(session.read("/number.txt")) == str(number).encode()
            with pytest.raises(TransportError), device.lease("test"):
                pass
