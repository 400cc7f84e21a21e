"""SQL over HTTP: `POST /sql` in each format, and the box of the live page."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Browser, expect

from tests.support.printing_board import HOST, BufferingBoard

from .browsing import looking, serving

QUERY = 'select time, temperature from demo."readings.csv" order by time limit 2'
TEMPERATURES = [17.86, 18.1]
PER_HOUR = """select time_bucket(interval 1 hour, time) as hour, avg(temperature) as warm, max(humidity) as moist
from demo."readings.csv" group by 1 order by 1"""
# The first query starts a process, and a busy computer takes its time.
LONG = 60.0


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving(demo="sim:?telemetry=0") as running:
        httpx.post(f"{running.http}/sql", content=QUERY, timeout=LONG)  # starts what stays
        yield str(running.http)


@pytest.fixture
def http(address: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=address, timeout=LONG) as client:
        yield client


def test_each_format_has_the_same_rows(http: httpx.Client) -> None:
    def ask(format: str, content: str = QUERY) -> bytes:
        answer = http.post("/sql", params={"format": format}, content=content.encode())
        assert answer.status_code == 200, answer.text
        return answer.content

    assert pa.ipc.open_stream(http.post("/sql", content=QUERY).content).read_all()[1].to_pylist() == TEMPERATURES
    assert pq.read_table(io.BytesIO(ask("parquet")))["temperature"].to_pylist() == TEMPERATURES
    assert [json.loads(line)["temperature"] for line in ask("jsonl").splitlines()] == TEMPERATURES
    assert [line.split(",")[1] for line in ask("csv").decode().splitlines()] == ["temperature", "17.86", "18.1"]
    by_json = json.dumps({"query": "select $a::int as a, $b as b", "parameters": {"a": 1, "b": "x"}})
    assert json.loads(ask("jsonl", by_json)) == {"a": 1, "b": "x"}


def test_tables_that_are_not_listed_are_told_in_a_header_and_on_the_page(browser: Browser) -> None:
    said = "the files of demo are not listed ("
    with BufferingBoard() as board, serving(demo=f"socket://{HOST}:{board.port}") as running:
        answer = httpx.post(f"{running.http}/sql?format=csv", content="show tables", timeout=LONG)
        assert said in json.loads(answer.headers["fastflight-summary"])["text"]
        with looking(browser, f"{running.http}/#/sql") as page:
            page.get_by_role("button", name="Tables").click()
            expect(page.locator("#sql-said")).to_contain_text(said)


def test_bytes_are_base64_as_text(http: httpx.Client) -> None:
    query = r"select '\x00\xFFab'::blob as data, null::blob as none, 1 as n"
    csv = http.post("/sql?format=csv", content=query)
    assert csv.status_code == 200 and csv.text == "data,none,n\nAP9hYg==,,1\n"
    assert http.post("/sql?format=jsonl", content=query).json() == {"data": "AP9hYg==", "none": None, "n": 1}
    assert pa.ipc.open_stream(http.post("/sql", content=query).content).read_all()["data"].to_pylist() == [b"\0\xffab"]


def test_what_is_wrong_gets_its_status(http: httpx.Client) -> None:
    for content, status, text in (
        (b"drop table x", 400, "SQL only reads"),
        (b"select * from demo.nothing", 404, "no such file"),
        (b'{"qeury": "select 1"}', 400, "query"),
        (b"\xff", 400, "not UTF-8"),
        (b"", 400, "query"),
    ):
        answer = http.post("/sql?format=jsonl", content=content)
        assert answer.status_code == status and text in answer.json()["text"], answer.text


def test_the_page_shows_a_table_and_charts_over_time(browser: Browser, http: httpx.Client, tmp_path: Path) -> None:
    with looking(browser, f"{http.base_url}/#/sql") as page:
        page.get_by_role("button", name="Tables").click()
        expect(page.get_by_role("cell", name='demo."readings.csv"')).to_be_visible()
        expect(page.locator("#sql-charts canvas")).to_have_count(0)
        page.locator("#sql-query").fill(PER_HOUR)
        page.keyboard.press("Control+Enter")
        expect(page.locator("#sql-charts figcaption span")).to_have_text(["warm", "moist"])
        expect(page.locator("#sql-charts canvas")).to_have_count(2)
        expect(page.locator("#sql-rows th")).to_have_text(["hour", "warm", "moist"])
        expect(page.locator("#sql-said")).to_contain_text("rows.")
        # A download has all rows, and the last row of a chart is not taken for the newest data.
        expect(page.locator("#sql-charts figcaption b").first).to_have_text(re.compile(r"^[\d.]+ at .*\d\d:\d\d:\d\d$"))
        with page.expect_download() as downloading:
            page.locator("#sql-save").get_by_role("button", name="Parquet").click()
        downloading.value.save_as(tmp_path / "query.parquet")
        assert pq.read_table(tmp_path / "query.parquet").column_names == ["hour", "warm", "moist"]
        page.locator("#sql-query").fill("select '<b onclick=x>' as a, 1 as b")
        page.get_by_role("button", name="Run").click()
        expect(page.get_by_role("cell", name="<b onclick=x>")).to_be_visible()
        expect(page.locator("#sql-charts canvas")).to_have_count(0)
        page.locator("#sql-query").fill("selec 1")
        page.get_by_role("button", name="Run").click()
        expect(page.locator("#sql-said")).to_have_class("failed")
        expect(page.locator("#sql-rows table")).to_have_count(0)
