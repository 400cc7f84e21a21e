"""Peers: what they send is Flight, those that cannot be had are named, and who they are is known."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import cast

import pyarrow as pa
import pytest
from pyarrow import flight

from fastflight.service import Catalog, decode, encode
from fastflight.service.requests import Mock
from fastflight.sources import mock, pacer
from fastflight_benchmark.contenders import AIO, BARE, CONTENDERS, MODES, NAMESAKES, PEERS
from fastflight_benchmark.loading.reading import read
from fastflight_benchmark.peers import constant, environment, running, wire
from fastflight_benchmark.peers.environment import Missing
from fastflight_benchmark.spawned import spawned
from fastflight_benchmark.table import check

TABLE = Mock(rows_per_batch=40, total_rows=100)


def catalog() -> Catalog:
    known = Catalog()
    known.add(mock.SOURCE)
    return known


def test_numbers_and_fields_are_written_as_protobuf_is() -> None:
    assert wire.varint(0) == b"\x00"
    assert wire.varint(300) == b"\xac\x02"
    assert wire.field(1, 150) == b"\x08\x96\x01"
    assert wire.field(2, "testing") == b"\x12\x07testing"
    assert wire.field(1000, b"") == b"\xc2\x3e\x00"


def test_messages_are_those_that_arrow_writes_itself() -> None:
    assert wire.field(1, b"abc") == flight.Ticket(b"abc").serialize() == flight.Result(b"abc").serialize()
    assert wire.field(1, "health") + wire.field(2, b"{}") == flight.Action("health", b"{}").serialize()
    assert wire.field(1, 2) + wire.field(2, b"x") == flight.FlightDescriptor.for_command(b"x").serialize()


def test_a_frame_holds_the_metadata_and_the_body_of_a_message() -> None:
    batch = pa.record_batch({"a": pa.array([1, 2, 3], pa.int32())})
    message = pa.ipc.read_message(batch.serialize())
    header, body = message.metadata.to_pybytes(), message.body.to_pybytes()

    assert wire.frame(batch) == wire.field(wire.DATA_HEADER, header) + wire.field(wire.DATA_BODY, body)
    assert wire.frame(batch.schema).startswith(wire.field(wire.DATA_HEADER, b"")[:1])


def test_the_reference_on_grpc_aio_gives_the_table_whatever_its_columns() -> None:
    with spawned("fastflight_benchmark.peers.aio") as peer, flight.FlightClient(peer.location) as client:
        for variant in ("default", "simple", "complex"):
            request = TABLE.model_copy(update={"variant": variant})
            check(request, read(client, CONTENDERS[AIO].ticket(request)), AIO)


def test_constant_answers_are_alike_whoever_gives_them() -> None:
    with (
        constant.ConstantServer("grpc://127.0.0.1:0") as bare,
        spawned("fastflight_benchmark.peers.aio", "--constant") as aio,
    ):
        answers = []
        for location in (f"grpc://127.0.0.1:{bare.port}", aio.location):
            with flight.FlightClient(location) as client:
                table = client.do_get(flight.Ticket(b"any")).read_all()
                info = client.get_flight_info(flight.FlightDescriptor.for_command(b"any"))
                (result,) = client.do_action(flight.Action("any", b""))
                answers.append((table, info.serialize(), result.body.to_pybytes()))

    assert answers[0] == answers[1]
    assert answers[0][0].num_rows == constant.REQUEST.total_rows


def test_a_ticket_says_the_same_to_each_in_its_own_words() -> None:
    for mode in MODES:
        assert decode(CONTENDERS[mode].ticket(TABLE), catalog()) == TABLE.model_copy(update={"mode": mode})
    assert CONTENDERS[BARE].ticket(TABLE) == encode(TABLE)
    for name, kind in zip(NAMESAKES, ("SyncTable", "AsyncTable"), strict=True):
        assert json.loads(CONTENDERS[name].ticket(TABLE)) == {
            "param_type": f"__main__.{kind}",
            "total_rows": 100,
            "rows_per_batch": 40,
            "delay_per_row": 0.0,
            "columns": 50,
        }


def taken_at_once(batches: AsyncIterator[object]) -> int:
    """How many come without the event loop's help."""
    count = 0
    while True:
        following = batches.__anext__()
        try:
            following.__await__().send(None)
        except StopIteration:
            count += 1
        except StopAsyncIteration:
            return count
        else:
            raise AssertionError(f"after {count} batches it waits")


def test_without_a_pace_neither_async_table_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    class Base:
        def __class_getitem__(cls, _: object) -> type[Base]:
            return cls

    there = SimpleNamespace(BaseDataService=Base, BaseParams=Base, FastFlightServer=Base)
    monkeypatch.setitem(sys.modules, "fastflight", cast(ModuleType, there))
    theirs = runpy.run_path(str(running.NAMESAKE_SCRIPT))
    monkeypatch.undo()
    theirs["AsyncService"].aget_batches.__globals__["Pacer"] = pacer.BatchPacer
    asked = SimpleNamespace(total_rows=100, rows_per_batch=40, delay_per_row=0.0, columns=2)

    assert taken_at_once(theirs["AsyncService"]().aget_batches(asked)) == 3
    assert taken_at_once(mock._alots(TABLE, mock._shape(TABLE))) == 2  # all whole batches, and the last one


def refuse(*_: object) -> Path:
    raise Missing("no network")


def test_a_peer_that_cannot_be_had_is_named_and_the_others_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "namesake", refuse)
    said: list[str] = []

    servers = running.prepared(set(PEERS), running.TABLE_MODULES, said.append)

    assert said == [f"missing peer {name}: no network" for name in NAMESAKES]
    assert servers.described() == {"peers": [BARE, AIO], "missing": dict.fromkeys(NAMESAKES, "no network")}


def test_what_is_not_wanted_is_not_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "namesake", refuse)
    said: list[str] = []

    servers = running.prepared({"sync", BARE}, running.TABLE_MODULES, said.append)

    assert (said, servers.described()) == ([], {"peers": [BARE], "missing": {}})


def test_an_environment_that_is_there_is_used_and_one_that_cannot_be_made_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[list[str]] = []

    def fails(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        ran.append(command)
        return subprocess.CompletedProcess(command, 2, "", "error: no route to the registry")

    monkeypatch.setattr(subprocess, "run", fails)
    with pytest.raises(Missing, match="no route to the registry"):
        environment.namesake(lambda _: None, tmp_path)
    assert ran[0][1] == "venv"
    assert not list(tmp_path.iterdir())  # nothing half made is left

    monkeypatch.setattr(subprocess, "run", makes)
    python = environment.namesake(lambda _: None, tmp_path)
    assert python.is_relative_to(tmp_path)
    monkeypatch.setattr(subprocess, "run", fails)
    assert environment.namesake(lambda _: None, tmp_path) == python


def makes(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
    if command[1] == "venv":
        Path(command[-1]).mkdir()
    return subprocess.CompletedProcess(command, 0, "", "")


def test_ghz_is_the_one_on_the_path_else_gos_else_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment.shutil, "which", {"ghz": "/somewhere/ghz"}.get)
    assert environment.ghz(lambda _: None, tmp_path) == Path("/somewhere/ghz")

    monkeypatch.setattr(environment.shutil, "which", lambda _: None)
    with pytest.raises(Missing, match="neither is go"):
        environment.ghz(lambda _: None, tmp_path)
