"""`ls`, `get`, `put`, `rm`, `mkdir`, `mv` against the simulated board."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

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


def test_a_file_on_a_terminal_has_types_ends_and_a_count(opened: str, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = shown(opened, monkeypatch, "get", "demo:/readings.csv")
    lines = [line for line in printed.splitlines() if line.strip()]  # the progress bar leaves an empty line
    assert lines[0].split()[:2] == ["time", "temperature"]
    assert lines[1].split()[-1] == "double"
    assert lines[-1] == "10,000 rows, 5 columns"
    assert len(lines) == 2 + 10 + 1 + 5 + 1


def test_a_schema_that_nests_too_deep_is_wrong_usage(run: Run) -> None:
    result = run("get", "demo:/readings.csv", "--schema", '{"a":' + "[" * 5000)
    assert (result.exit_code, "not JSON" in result.stderr) == (2, True)


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


def test_a_path_is_found_in_either_form_of_unicode(run: Run, tmp_path: Path) -> None:
    composed, parts = "\u00fc.csv", "u\u0308.csv"
    (tmp_path / "here.csv").write_text("a,b\n1,2\n")
    for stored, typed in ((composed, parts), (parts, composed)):
        assert run("put", str(tmp_path / "here.csv"), f"demo:/{stored}").exit_code == 0
        assert run("get", f"demo:/{typed}", "-o", str(tmp_path / "t.parquet")).stdout.endswith(" B, 1 row\n")
        assert run("cat", f"demo:/{typed}").stdout == "a,b\n1,2\n"
        assert run("hash", f"demo:/{typed[:-3]}*").stdout.endswith(f"demo:/{stored}\n")
        assert run("rm", f"demo:/{typed}").exit_code == 0
    for stored in (composed, parts):  # both exist: each is found by its own name
        run("put", "-", f"demo:/{stored}", input=f"a\n{len(stored)}\n")
    assert run("cat", f"demo:/{parts}").stdout == "a\n6\n"
    assert run("rm", f"demo:/{composed}", f"demo:/{parts}").exit_code == 0
