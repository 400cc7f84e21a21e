"""`ls`, `get`, `put`, `rm`, `mkdir`, `mv` against the simulated board."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from click.testing import Result

from fastflight.cli.main import app

Run = Callable[..., Result]


def shown(location: str, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    """What a command prints on a terminal."""
    pytest.importorskip("pty", reason="only a pseudo-terminal is one")
    from tests.support.terminal import terminal

    for name, value in (("FASTFLIGHT_SERVER", location), ("TERM", "dumb"), ("COLUMNS", "120")):
        monkeypatch.setenv(name, value)
    with terminal() as ended:
        with pytest.raises(SystemExit) as code:
            app(arguments)
        printed = ended()
    assert code.value.code == 0, printed
    return printed


def test_a_listing_is_a_table(run: Run) -> None:
    result = run("ls", "demo")
    assert result.exit_code == 0
    heading, *lines = result.stdout.splitlines()
    assert heading.split() == ["size", "modified", "path"]
    assert "/readings.csv" in {line.split()[-1] for line in lines}


def test_a_listing_is_json(run: Run) -> None:
    entries = json.loads(run("ls", "demo:/", "--json").stdout)
    assert {"/readings.csv", "/events.jsonl", "/log.bin"} <= {entry["path"] for entry in entries}
    assert set(entries[0]) == {"path", "kind", "size", "modified"}


def test_a_file_on_a_terminal_has_types_ends_and_a_count(opened: str, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = shown(opened, monkeypatch, "get", "demo:/readings.csv")
    lines = [line for line in printed.splitlines() if line.strip()]  # the progress bar leaves an empty line
    assert lines[0].split()[:2] == ["time", "temperature"]
    assert lines[1].split()[-1] == "double"
    assert lines[-1] == "10,000 rows, 5 columns"
    assert len(lines) == 2 + 10 + 1 + 5 + 1


def test_a_file_of_the_same_ending_is_copied(run: Run, tmp_path: Path) -> None:
    copy = tmp_path / "readings.csv"
    result = run("get", "demo:/readings.csv", "-o", str(copy), "--json")
    told = json.loads(result.stdout)
    assert told["bytes"] == copy.stat().st_size
    assert told["output"] == str(copy)
    assert pyarrow.csv.read_csv(copy).num_rows == 10_000


def test_a_folder_takes_the_devices_name(run: Run, tmp_path: Path) -> None:
    assert run("get", "demo:/log.bin", "-o", str(tmp_path)).exit_code == 0
    assert (tmp_path / "log.bin").stat().st_size == 18_000


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_another_ending_converts_there_and_back(run: Run, tmp_path: Path, mode: str) -> None:
    table = tmp_path / "readings.parquet"
    assert run("get", "demo:/readings.csv", "-o", str(table), "--mode", mode).exit_code == 0
    assert pq.read_table(table).num_rows == 10_000
    result = run("put", str(table), f"demo:/{mode}.csv", "--mode", mode, "--json")
    told = json.loads(result.stdout)
    assert (told["path"], told["rows"]) == (f"/{mode}.csv", 10_000)
    again = tmp_path / "again.parquet"
    assert run("get", f"demo:/{mode}.csv", "-o", str(again)).exit_code == 0
    assert pq.read_table(again).equals(pq.read_table(table))
    assert run("rm", f"demo:/{mode}.csv").exit_code == 0


def test_bytes_go_there_and_back(run: Run, tmp_path: Path) -> None:
    content = bytes(range(256)) * 300
    (tmp_path / "a.dat").write_bytes(content)
    result = run("put", str(tmp_path / "a.dat"), "demo:/")
    assert (result.exit_code, result.stdout) == (0, "demo:/a.dat: 76.8 kB written\n")
    assert run("get", "demo:/a.dat", "-o", str(tmp_path / "b.dat")).exit_code == 0
    assert (tmp_path / "b.dat").read_bytes() == content
    assert run("rm", "demo:/a.dat").exit_code == 0


def test_a_packed_file_needs_its_record(run: Run, tmp_path: Path) -> None:
    output = tmp_path / "log.csv"
    refused = run("get", "demo:/log.bin", "-o", str(output))
    assert (refused.exit_code, output.exists()) == (1, False)
    assert "--format" in refused.stderr
    read = run(
        "get", "demo:/log.bin", "-o", str(output), "--format", "packed", "--struct", "<6B", "--columns", "a,b,c,d,e,f"
    )
    assert read.exit_code == 0
    assert pyarrow.csv.read_csv(output).num_rows == 3000


def test_columns_and_types_can_be_chosen(run: Run) -> None:
    result = run("get", "demo:/readings.csv", "--columns", "battery,time", "--json")
    assert list(json.loads(result.stdout)["columns"]) == ["battery", "time"]
    result = run("get", "demo:/readings.csv", "--schema", "time=string,battery=float", "--json")
    assert json.loads(result.stdout)["columns"] == {"time": "string", "battery": "float"}


def test_a_schema_that_nests_too_deep_is_wrong_usage(run: Run) -> None:
    result = run("get", "demo:/readings.csv", "--schema", '{"a":' + "[" * 5000)
    assert (result.exit_code, "not JSON" in result.stderr) == (2, True)


def test_folders_are_made_renamed_and_removed(run: Run) -> None:
    assert run("mkdir", "demo:/old").exit_code == 0
    assert run("mv", "demo:/old", "/new").exit_code == 0
    assert "/new/" in run("ls", "demo").stdout
    assert "/new" not in run("ls", "demo:/new").stdout
    assert run("rm", "demo:/new").exit_code == 0
    assert "/new" not in run("ls", "demo").stdout


def test_a_failed_get_keeps_the_old_file(run: Run, tmp_path: Path) -> None:
    output, rows = tmp_path / "x.parquet", tmp_path / "rows.csv"
    output.write_text("old")
    rows.write_text("a,b\n" + "1,2\n" * 100_000 + "1,two\n")
    assert run("put", str(rows), "demo:/rows.csv").exit_code == 0
    for arguments in (("demo:/missing.csv",), ("demo:/rows.csv", "--schema", "a=int64,b=int64", "--on-error", "fail")):
        assert run("get", *arguments, "-o", str(output)).exit_code == 1
        assert output.read_text() == "old"
        assert set(tmp_path.iterdir()) == {output, rows}
    skipped = run("get", "demo:/rows.csv", "--schema", "a=int64,b=int64", "-o", str(output))
    assert skipped.exit_code == 0
    assert skipped.stderr.startswith("warning: values that do not fit became null: 1 in b (")
    assert pq.read_table(output)["b"].null_count == 1
    told = json.loads(pq.read_metadata(output).metadata[b"fastflight.summary"])
    assert told["null_cells"] == {"b": 1}
    run("rm", "demo:/rows.csv")


def test_a_failed_put_keeps_the_old_file(run: Run, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.csv"
    good.write_text('{"a":1}\n')
    bad.write_text("a,b\n" + "1,2\n" * 100_000 + "1,2,3\n")
    assert run("put", str(good), "demo:/kept.jsonl").exit_code == 0
    refused = run("put", str(bad), "demo:/kept.jsonl")
    assert (refused.exit_code, "bad.csv" in refused.stderr) == (1, True)
    copy = tmp_path / "copy.jsonl"
    run("get", "demo:/kept.jsonl", "-o", str(copy))
    assert copy.read_text() == '{"a":1}\n'
    run("rm", "demo:/kept.jsonl")


def test_the_digest_is_that_of_the_board(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"content")
    assert run("put", str(tmp_path / "a.bin"), "demo:/digest.bin").exit_code == 0
    digest = hashlib.sha256(b"content").hexdigest()
    assert run("hash", "demo:/digest.bin").stdout == f"{digest}  demo:/digest.bin\n"
    shown = json.loads(run("hash", "demo:/diges?.bin", "--json").stdout)
    assert (shown["path"], shown["algorithm"], shown["digest"]) == ("/digest.bin", "sha256", digest)
