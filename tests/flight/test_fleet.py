"""One file over many boards, through a whole server, asked with nothing but `pyarrow.flight`; both paths alike."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from fastflight.client import FastFlightClient
from fastflight.device.transfer import digest
from fastflight.device.transfer.link import BoardLink
from fastflight.errors import IncompleteWarning
from fastflight.protocol import Conversation
from fastflight.service.requests import FleetFile
from fastflight.sources import FileCache
from tests.flight.conftest import BoardServer, board_server, command, ticket
from tests.support.refusals import refused

HEADER = "time,celsius\n"


class Fleet:
    """A server with boards `lab-0`, `lab-1`, `lab-2` and `roof`; each a simulated one with a folder for its files."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        names = ("lab-0", "lab-1", "lab-2", "roof")
        for name in names:
            (folder / name).mkdir()
        urls = {name: f"sim:?files={folder / name}&telemetry=0" for name in names}
        cache = FileCache()
        stack.callback(cache.close)
        self.server: BoardServer = stack.enter_context(board_server(urls, folder, cache))
        self.client = self.server.client
        self.location = self.server.location
        for name in names:
            self.server.act("device.info", device=name)

    def put(self, text: dict[str, str], path: str = "t.csv") -> None:
        """Give boards a file."""
        for name, content in text.items():
            (self.folder / name / path).write_text(content)

    def get(self, **request: Any) -> tuple[pa.Table, dict[str, Any], list[dict[str, Any]]]:
        """The rows, the trailer and the notes before it."""
        reader = self.client.do_get(ticket(type="fleet.file", **request))
        batches, told = [], []
        try:
            while True:
                chunk = reader.read_chunk()
                batches.append(chunk.data)
                if chunk.app_metadata is not None:
                    told.append(json.loads(chunk.app_metadata.to_pybytes()))
        except StopIteration:
            pass
        return pa.Table.from_batches(batches, reader.schema).replace_schema_metadata(None), told[-1], told[:-1]


@pytest.fixture(scope="module")
def boards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with ExitStack() as stack:
        yield Fleet(tmp_path_factory.mktemp("fleet"), stack)


@pytest.fixture
def fleet(boards: Fleet) -> Fleet:
    """The boards, with two rows each in `/t.csv`, and nothing else."""
    for file in boards.folder.glob("*/*"):
        file.unlink()
    boards.put({name: f"{HEADER}1,{at}.5\n2,{at}.75\n" for at, name in enumerate(("lab-0", "lab-1", "lab-2", "roof"))})
    return boards


def test_all_devices_come_in_one_table(fleet: Fleet) -> None:
    table, trailer, notes = fleet.get(devices="lab-*", path="/t.csv", ordered=True)
    assert table.schema == pa.schema(
        [pa.field("device", pa.string(), nullable=False), ("time", pa.int64()), ("celsius", pa.float64())]
    )
    assert table.to_pydict() == {
        "device": ["lab-0", "lab-0", "lab-1", "lab-1", "lab-2", "lab-2"],
        "time": [1, 2] * 3,
        "celsius": [0.5, 0.75, 1.5, 1.75, 2.5, 2.75],
    }
    assert (trailer["rows"], trailer["failed"], trailer["rejected"], notes) == (6, [], 0, [])
    assert [(told["device"], told["rows"]) for told in trailer["devices"]] == [("lab-0", 2), ("lab-1", 2), ("lab-2", 2)]
    assert trailer["bytes"] == sum(told["bytes"] for told in trailer["devices"])


def test_without_order_the_rows_are_the_same(fleet: Fleet) -> None:
    ordered, _, _ = fleet.get(path="/t.csv", ordered=True)
    table, _, _ = fleet.get(path="/t.csv")
    assert table.sort_by([("device", "ascending"), ("time", "ascending")]).equals(ordered.combine_chunks())


BIG = 2**53 + 1

# For each name: the ending of the files, their texts by device, and the column that matters with its type and values.
UNLIKE: dict[str, tuple[str, list[str], str, pa.DataType, list[Any]]] = {
    "whole numbers and fractions": ("csv", ["v\n20\n", "v\n20.5\n"], "v", pa.float64(), [20, 20.5]),
    "a number that no double holds": (
        "csv",
        [f"v\n{BIG}\n", "v\n20.5\n"],
        "v",
        pa.string(),
        [str(BIG), "20.5"],
    ),
    "text and numbers": ("csv", ["v\n020\n", "v\nwarm\n", "v\n20\n"], "v", pa.string(), ["020", "warm", "20"]),
    "unsigned and negative": ("csv", [f"v\n{2**64 - 1}\n", "v\n-1\n"], "v", pa.string(), [str(2**64 - 1), "-1"]),
    "nothing and numbers": ("csv", ["t,v\n1,\n", "t,v\n1,N/A\n", "t,v\n1,7\n"], "v", pa.int64(), [None, None, 7]),
    "days and moments": (
        "csv",
        ["v\n2026-01-02\n", "v\n2026-01-02 03:04\n"],
        "v",
        pa.timestamp("us"),
        [datetime(2026, 1, 2), datetime(2026, 1, 2, 3, 4)],
    ),
    "a column of one file": ("csv", ["t\n1\n", "t,co2\n2,400\n", "t\n3\n"], "co2", pa.int64(), [None, 400, None]),
    "another order": ("csv", ["t,v\n1,2\n", "v,t\n3.5,4\n"], "v", pa.float64(), [2, 3.5]),
    "an empty file": ("csv", ["", "v\n1\n", "v\n"], "v", pa.int64(), [1]),
    "decimal commas in one": ("csv", ["t;v\n1;2,5\n", "t,v\n1,3.5\n"], "v", pa.float64(), [2.5, 3.5]),
    "keys of one file": ("jsonl", ['{"t": 1}\n', '{"t": 1, "co2": 400}\n'], "co2", pa.int64(), [None, 400]),
    "JSON of two kinds": ("jsonl", ['{"v": 3}\n', '{"v": "a"}\n'], "v", pa.string(), ["3", "a"]),
    "fields of objects": (
        "jsonl",
        ['{"v": {"x": 1}}\n', '{"v": {"x": 1.5, "y": null}}\n'],
        "v",
        pa.struct([("x", pa.float64()), ("y", pa.string())]),
        [{"x": 1.0, "y": None}, {"x": 1.5, "y": None}],
    ),
    "an object and a number": ("jsonl", ['{"v": {"x": 1}}\n', '{"v": 2}\n'], "v", pa.string(), ['{"x": 1}', "2"]),
    "lists": ("jsonl", ['{"v": [1]}\n', '{"v": [1.5]}\n'], "v", pa.list_(pa.float64()), [[1.0], [1.5]]),
}


@pytest.mark.parametrize("case", UNLIKE)
def test_the_values_of_all_files_decide_the_types(fleet: Fleet, case: str) -> None:
    ending, texts, name, type_, values = UNLIKE[case]
    path = f"/unlike.{ending}"
    fleet.put({f"lab-{at}": text for at, text in enumerate(texts)}, path[1:])
    request = {"devices": f"lab-[0-{len(texts) - 1}]", "path": path, "ordered": True}
    table, trailer, notes = fleet.get(**request)
    assert (table.schema.field(name).type, table[name].to_pylist()) == (type_, values)
    assert (trailer["failed"], notes, trailer["rejected"], trailer.get("null_cells")) == ([], [], 0, None)
    descriptor = command(type="fleet.file", **request)
    info = fleet.client.get_flight_info(descriptor)
    assert info.schema.equals(table.schema) and fleet.client.get_schema(descriptor).schema.equals(table.schema)
    assert len(info.endpoints) == len(texts)
    parts = [fleet.client.do_get(endpoint.ticket).read_all() for endpoint in info.endpoints]
    assert pa.concat_tables(part.replace_schema_metadata(None) for part in parts).equals(table)
    some, _, _ = fleet.get(**request, columns=[name])
    assert some.equals(table.select(["device", name]))


def test_each_board_is_asked_once(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """The board computes the digest of a file, which takes seconds for a large one."""
    asked: list[str] = []
    ask = digest.digest

    def noted(link: BoardLink, path: str, limit: int | None) -> Conversation[tuple[str, str]]:
        asked.append(path)
        return ask(link, path, limit)

    monkeypatch.setattr(digest, "digest", noted)
    table, _, _ = fleet.get(path="/t.csv")
    assert table.num_rows == 8
    assert asked == 4 * ["/t.csv"]


def test_rows_that_do_not_fit_are_told_with_their_device(fleet: Fleet) -> None:
    fleet.put({"lab-1": f"{HEADER}1,warm\n2,8.5\n3\n", "lab-2": "celsius,time,more\n9.5,1,x\n"})
    table, trailer, _ = fleet.get(devices="lab-*", path="/t.csv", ordered=True)
    assert table["celsius"].to_pylist() == ["0.5", "0.75", "warm", "8.5", "9.5"]
    assert table["more"].to_pylist() == [None, None, None, None, "x"]
    (aside,) = trailer["rejected_rows"]
    assert (aside["device"], aside["offset"]) == ("lab-1", len(f"{HEADER}1,warm\n2,8.5\n"))
    sampled, trailer, _ = fleet.get(devices="lab-*", path="/t.csv", ordered=True, infer="sample")
    assert sampled["celsius"].to_pylist() == [0.5, 0.75, None, 8.5, 9.5]
    assert trailer["null_cells"] == {"celsius": 1}


def test_a_device_that_cannot_be_read_loses_no_other_rows(fleet: Fleet) -> None:
    (fleet.folder / "lab-0" / "t.csv").unlink()
    fleet.put({"lab-1": "time\n1\n"})
    table, trailer, notes = fleet.get(path="/t.csv", schema={"time": "int64", "celsius": "double"})
    assert sorted(table["device"].to_pylist()) == ["lab-2", "lab-2", "roof", "roof"]
    assert [(told["device"], told["code"]) for told in trailer["failed"]] == [
        ("lab-0", "device.file_missing"),
        ("lab-1", "data"),
    ]
    assert sorted(note["failure"]["device"] for note in notes) == ["lab-0", "lab-1"]
    inferred, trailer, _ = fleet.get(devices="[!r]*", path="/t.csv")
    assert inferred.schema.names == ["device", "time", "celsius"]
    assert sorted(set(inferred["device"].to_pylist())) == ["lab-1", "lab-2"]
    assert inferred["celsius"].null_count == 1
    assert [told["device"] for told in trailer["failed"]] == ["lab-0"]


def test_a_device_that_cannot_be_read_fails_the_stream_where_that_is_asked(fleet: Fleet) -> None:
    (fleet.folder / "lab-2" / "t.csv").unlink()
    with refused(KeyError, code="device.file_missing", where="lab-2:/t.csv"):
        fleet.get(path="/t.csv", on_error="fail")


def test_where_no_device_says_the_columns_the_first_error_is_told(fleet: Fleet) -> None:
    with refused(KeyError, code="device.file_missing", where="lab-0:/none.csv"):
        fleet.get(path="/none.csv")
    table, trailer, _ = fleet.get(path="/none.csv", schema={"n": "int64"})
    assert (table.num_rows, table.schema.names, len(trailer["failed"])) == (0, ["device", "n"], 4)


def test_no_device_of_that_name_is_not_found_with_the_nearest(fleet: Fleet) -> None:
    with pytest.raises(KeyError, match="'lab_'.*Did you mean 'lab-."):
        fleet.get(devices="lab_", path="/t.csv")


def test_a_file_with_a_device_column_of_its_own_is_refused(fleet: Fleet) -> None:
    fleet.put({"lab-0": "device,n\nx,1\n"}, "own.csv")
    with pytest.raises(pa.ArrowInvalid, match="named 'device'"):
        fleet.get(devices="lab-0", path="/own.csv")
    table, _, _ = fleet.get(devices="lab-0", path="/own.csv", columns=["n"])
    assert table.to_pylist() == [{"device": "lab-0", "n": 1}]


def test_a_bad_request_is_refused_before_a_device_is_asked(fleet: Fleet) -> None:
    with pytest.raises(pa.ArrowInvalid, match="no Arrow type is named 'integer'"):
        fleet.get(path="/t.csv", schema={"time": "integer"})


def test_raw_bytes_need_no_columns(fleet: Fleet) -> None:
    table, _, _ = fleet.get(devices="lab-?", path="/t.csv", format="raw", ordered=True)
    assert table.schema.names == ["device", "offset", "data"]
    assert table["data"][0].as_py() == b"time,celsius\n1,0.5\n2,0.75\n"


def test_a_flight_has_an_endpoint_for_each_device_with_the_columns_spelled_out(fleet: Fleet) -> None:
    request = {"type": "fleet.file", "devices": "lab-*", "path": "/t.csv", "ordered": True}
    info = fleet.client.get_flight_info(command(**request))
    assert info.ordered
    assert info.schema.names == ["device", "time", "celsius"]
    asked = [json.loads(endpoint.ticket.ticket) for endpoint in info.endpoints]
    assert [part["devices"] for part in asked] == ["lab-0", "lab-1", "lab-2"]
    assert all(list(part["kinds"]) == ["time", "celsius"] for part in asked)
    parts = [fleet.client.do_get(endpoint.ticket).read_all() for endpoint in info.endpoints]
    whole, _, _ = fleet.get(**{key: value for key, value in request.items() if key != "type"})
    assert pa.concat_tables(part.replace_schema_metadata(None) for part in parts).equals(whole)


def test_columns_that_only_the_file_says_have_one_endpoint(fleet: Fleet) -> None:
    with pa.OSFile(str(fleet.folder / "lab-0" / "t.arrow"), "wb") as sink:
        table = pa.table({"n": [1, 2]})
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    info = fleet.client.get_flight_info(command(type="fleet.file", path="/t.arrow"))
    assert len(info.endpoints) == 1
    assert info.schema.names == ["device", "n"]


def test_the_listing_shows_what_several_devices_have(fleet: Fleet) -> None:
    fleet.put({"roof": "n\n1\n"}, "only.csv")
    found = list(fleet.client.list_flights(b"fleet.file/*"))
    assert [json.loads(info.descriptor.command)["path"] for info in found] == ["/t.csv"]
    assert found[0].descriptor.descriptor_type == flight.DescriptorType.CMD


def test_a_client_that_leaves_frees_every_device(fleet: Fleet) -> None:
    fleet.put(dict.fromkeys(("lab-0", "lab-1"), HEADER + "1,1.5\n" * 100000))
    reader = fleet.client.do_get(ticket(type="fleet.file", devices="lab-*", path="/t.csv"))
    while not reader.read_chunk().data.num_rows:
        pass
    reader.cancel()
    for name in ("lab-0", "lab-1", "lab-2"):
        with fleet.server.inventory.device(name).lease("a test"):
            pass


def test_the_client_warns_of_a_device_that_could_not_be_read(fleet: Fleet) -> None:
    (fleet.folder / "lab-1" / "t.csv").unlink()
    with FastFlightClient(fleet.location) as client:
        with pytest.warns(IncompleteWarning, match="1 device could not be read: lab-1: no such file") as warned:
            stream = client.read_fleet("lab-*", "/t.csv", ordered=True)
            whole = stream.to_arrow()
            parts = client.read_parallel(FleetFile(devices="lab-*", path="/t.csv"))
            assert parts.to_arrow().equals(whole)
    assert len(warned) == 2
    assert whole["device"].to_pylist() == ["lab-0", "lab-0", "lab-2", "lab-2"]
    for read in (stream, parts):
        assert list(read.failed) == ["lab-1"]
        assert (read.summary["rows"], read.summary["failed"][0]["code"]) == (4, "device.file_missing")
