"""What requests say to a board is not what the board said: sessions leave it out, and nothing else."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fastflight.device import Device
from tests.flight.conftest import BoardServer, Serve, ticket
from tests.flight.session_messages import SESSION, TELEMETRY, messages

FILE = {"type": "device.file", "device": "demo", "path": "/new.csv"}


def test_a_session_has_what_the_board_said_and_no_word_of_an_upload(talking: BoardServer) -> None:
    device = talking.inventory.device("demo")
    stream = messages(talking.client.do_get(ticket(**SESSION, format="lines", since_seq=0)))
    texts: list[str] = []
    numbers: list[int] = []

    def read(count: int) -> None:
        while len(texts) < count:
            rows, note = next(stream)
            assert not note, note
            texts.extend(row["text"] for row in rows)
            numbers.extend(row["seq"] for row in rows)

    read(5)
    for _ in range(3):
        put = talking.put(pa.table({"a": list(range(3000))}), FILE, chunk=500)
        assert put.error is None
        assert talking.act("device.info", device="demo")
        read(len(texts) + 5)
    banner = texts.index('Type "help()" for more information.')
    # Its prompt stands before the first row: a board prints it before its program goes on.
    ticks = [json.loads(text.removeprefix(">>> ")) for text in texts[banner + 1 :]]
    assert all(TELEMETRY.keys() <= tick.keys() for tick in ticks)
    assert numbers == sorted(numbers)
    assert device.tap.missed == 0


def test_rows_go_on_after_a_request_without_a_gap_and_without_a_row_rejected(talking: BoardServer) -> None:
    keys: dict[str, Any] = {"format": "jsonl", "schema": TELEMETRY}
    assert talking.get(**SESSION, limit_rows=3, **keys).error is None
    begin = talking.inventory.device("demo").tap.next_seq
    for _ in range(3):
        assert talking.exec("print(6 * 7)") == "42\n"
    got = talking.get(**SESSION, since_seq=begin, limit_rows=10, **keys)
    assert got.error is None and got.trailer is not None
    assert (got.trailer["gaps"], got.trailer["lost"]) == (0, 0)
    # The board may have been in the middle of a line where this session begins.
    begun_before = "the line may have begun before the session"
    assert [row["reason"] for row in got.trailer["rejected_rows"]] in ([], [begun_before])


def test_a_program_that_runs_loses_no_word_to_a_request_that_finds_it_running(serve: Serve, tmp_path: Path) -> None:
    folder = tmp_path / "board"
    folder.mkdir()
    (folder / "main.py").write_text("import time\nn = 0\nwhile True:\n print('row', n)\n n += 1\n time.sleep_ms(20)\n")
    board = serve(f"sim:?files={folder}&telemetry=0")
    stream = messages(board.client.do_get(ticket(**SESSION, format="lines")))
    texts = [row["text"] for row in next(stream)[0]]
    refused = board.get(type="device.file", device="demo", path="/main.py")
    assert "a program is running on it" in str(refused.error)
    stopped = board.get(type="device.file", device="demo", path="/main.py", interrupt=True, format="raw")
    assert stopped.error is None
    while not any("KeyboardInterrupt" in text for text in texts):
        rows, note = next(stream)
        assert not note
        texts += [row["text"] for row in rows]
    rows = [text for text in texts if text.startswith("row ")]
    assert rows == [f"row {number}" for number in range(int(rows[0][4:]), int(rows[0][4:]) + len(rows))]
    assert not any("raw REPL" in text or "\x04" in text for text in texts)


def test_what_a_board_says_after_a_soft_reset_is_its_own(serve: Serve, tmp_path: Path) -> None:
    folder = tmp_path / "board"
    folder.mkdir()
    (folder / "main.py").write_text("print('first word')\n")
    board = serve(f"sim:?files={folder}&telemetry=0")
    assert board.exec("print(1)") == "1\n"
    begin = board.inventory.device("demo").tap.next_seq
    assert board.act("device.reset", device="demo")
    got = board.get(**SESSION, format="lines", since_seq=begin, limit_rows=3)
    assert "first word" in got.table["text"].to_pylist()


def test_a_session_that_asks_for_requests_sees_both_and_can_tell_them_apart(talking: BoardServer) -> None:
    stream = messages(talking.client.do_get(ticket(**SESSION, requests=True)))
    rows = next(stream)[0]
    assert talking.exec("print('asked')") == "asked\n"
    theirs = b""
    # The board may print a row between the first byte of the request and its own first answer.
    while not (b"asked\r\n" in theirs and rows[-1]["data"].startswith(b'{"ms"')):
        rows += next(stream)[0]
        theirs = b"".join(row["data"] for row in rows if row["request"])
    own = b"".join(row["data"] for row in rows if not row["request"])
    assert b"raw REPL" in theirs and b"print('asked')" in theirs and b"asked\r\n" in theirs
    assert b"raw REPL" not in own and b"asked" not in own
    assert {row["direction"] for row in rows if row["request"]} == {"rx", "tx"}
    assert [row["seq"] for row in rows] == list(range(len(rows)))


def test_only_bytes_show_requests(board: BoardServer) -> None:
    got = board.get(**SESSION, format="lines", requests=True)
    assert "ask for bytes" in str(got.error)


@pytest.mark.parametrize("method", ["line", "lease"])
def test_the_traffic_of_a_tool_remains_visible_and_that_of_a_request_does_not(board: BoardServer, method: str) -> None:
    device: Device = board.inventory.device("demo")
    with device.listen() as reader:
        if method == "line":
            with device.line("a tool") as port:
                asyncio.run(port.awrite(b"print(6 * 7)\r", 10.0))
                said = b""
                while b"42\r\n" not in said:
                    said += asyncio.run(port.aread(10.0))
        else:
            with device.lease("a request") as session:
                assert session.exec("print(6 * 7)").stdout == b"42\r\n"
        seen = b"".join(getattr(item, "data", b"") for item in reader.rest())
    assert (b"42" in seen) == (method == "line")
