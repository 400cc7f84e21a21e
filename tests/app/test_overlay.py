"""What `serve` is told, and what it refuses to be told."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastflight.app.addresses import check_host, http_address, http_origins
from fastflight.app.config import BridgeTable
from fastflight.app.overlay import read_config
from fastflight.errors import RequestError
from fastflight.runtime.admission import DEFAULT_LIMITS, Limits
from fastflight.service.requests import TextKeys
from tests.support.servers import config

HERE = "grpc://127.0.0.1:0"


def fleet(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "fleet.toml"
    path.write_text(text)
    return path


def test_without_devices_there_is_a_simulated_one_and_nothing_is_recorded_unasked() -> None:
    settings = read_config(HERE, [], None)
    assert settings.recordings is not None and settings.recordings.on_demand and not settings.recorded
    assert settings.model_copy(update={"recordings": None}) == config({"demo": "sim:"})


def test_a_fleet_file_without_devices_serves_none(tmp_path: Path) -> None:
    assert read_config(HERE, [], fleet(tmp_path, "[devices]\n")).devices == {}


def test_devices_keep_their_order_and_their_urls() -> None:
    settings = read_config(HERE, ["b=sim:?baud=9600", "a=exec:micropython -X heapsize=4M"], None)
    assert list(settings.urls.items()) == [("b", "sim:?baud=9600"), ("a", "exec:micropython -X heapsize=4M")]


def test_a_fleet_file_comes_first(tmp_path: Path) -> None:
    path = fleet(tmp_path, '[devices.weather]\nurl = "/dev/ttyACM0"\n')
    assert read_config(HERE, ["extra=sim:"], path).urls == {"weather": "/dev/ttyACM0", "extra": "sim:"}


def test_a_fleet_file_opens_bridges(tmp_path: Path) -> None:
    text = """
    [devices.a]
    url = "sim:"
    bridge = { rfc2217 = 2217, socket = 0, viewers = 2219, takeover = true }
    [devices.b]
    url = "sim:"
    bridge = { socket = 2218 }
    [devices.c]
    url = "sim:"
    """
    settings = read_config(HERE, [], fleet(tmp_path, text))
    assert list(settings.devices) == ["a", "b", "c"]
    assert {name: device.bridge for name, device in settings.devices.items()} == {
        "a": BridgeTable(rfc2217=2217, socket=0, viewers=2219, takeover=True),
        "b": BridgeTable(socket=2218),
        "c": None,
    }


def test_a_fleet_file_says_how_text_files_are_written(tmp_path: Path) -> None:
    entry = '[devices.weather]\nurl = "sim:"\nfiles = {{ "/log-*.csv" = {{ {} = ";" }} }}'
    settings = read_config(HERE, [], fleet(tmp_path, entry.format("delimiter")))
    assert settings.devices["weather"].files == {"/log-*.csv": TextKeys(delimiter=";")}
    with pytest.raises(RequestError, match="delimiter"):
        read_config(HERE, [], fleet(tmp_path, entry.format("delimeter")))


def test_targets_of_the_relay_are_those_of_the_fleet_file_and_of_the_options(tmp_path: Path) -> None:
    path = fleet(tmp_path, "[devices.a]\nurl = 'sim:'\n[relay]\nallow = ['127.0.0.1:23']\n")
    settings = read_config(HERE, [], path, http="0", relay=["board.local:*"])
    assert settings.relay.allow == ["127.0.0.1:23", "board.local:*"]
    assert read_config(HERE, [], None, http="0").relay.allow == []
    with pytest.raises(RequestError, match="--http"):
        read_config(HERE, [], path)


def test_limits_are_those_of_the_fleet_file_unless_options_say_otherwise(tmp_path: Path) -> None:
    path = fleet(tmp_path, "[devices.a]\nurl = 'sim:'\n[limits]\nstreams = 1000\nper_device = 8\nwait_seconds = 0.5\n")
    assert read_config(HERE, [], path).limits == Limits(streams=1000, per_device=8, wait_seconds=0.5)
    limits = read_config(HERE, [], path, per_device=9, per_identity=10).limits
    assert (limits.streams, limits.per_device, limits.per_identity) == (1000, 9, 10)
    assert read_config(HERE, [], None).limits == DEFAULT_LIMITS


def test_limits_and_the_cache_of_sql(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.toml"
    fleet.write_text("[sql]\nmemory = '64MB'\nseconds = 5\ncache = 'c'\ncache_bytes = 9\n[devices.a]\nurl = 'sim:'\n")
    settings = read_config(HERE, [], fleet).sql
    assert (settings.limits.memory_bytes, settings.limits.seconds, settings.limits.queries) == (64_000_000, 5, 4)
    assert (settings.cache, settings.cache_bytes) == (tmp_path / "c", 9)
    assert read_config(HERE, [], fleet, cache=tmp_path / "d").sql.cache == tmp_path / "d"


def test_a_missing_fleet_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="nowhere.toml: No such file"):
        read_config(HERE, [], tmp_path / "nowhere.toml")


def test_a_name_is_given_once() -> None:
    with pytest.raises(RequestError, match="demo: two devices"):
        read_config(HERE, ["demo=sim:", "demo=/dev/ttyACM0"], None)


def test_host_and_port_are_an_address(tmp_path: Path) -> None:
    assert read_config("127.0.0.1:8815").location == "grpc://127.0.0.1:8815"
    guarded = dict.fromkeys(("tokens", "tls_cert", "tls_key"), tmp_path)
    assert read_config("[::]:8815", **guarded).location == "grpc+tls://[::]:8815"


@pytest.mark.parametrize("location", ["grpc://localhost:0", "grpc://[::1]:0", "grpc+tcp://127.0.0.2:1"])
def test_loopback_has_several_names(location: str) -> None:
    assert read_config(location, [], None).location == location


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "board.lan", ""])
def test_a_bridge_is_for_this_computer_only(host: str) -> None:
    with pytest.raises(RequestError, match="ssh -L"):
        check_host(host)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.8.0.1"])
def test_a_bridge_may_have_any_address_of_this_computer(host: str) -> None:
    check_host(host)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("8000", ("127.0.0.1", 8000)),
        ("0", ("127.0.0.1", 0)),
        ("localhost:80", ("localhost", 80)),
        ("[::1]:8000", ("::1", 8000)),
    ],
)
def test_where_the_gateway_listens(text: str, address: tuple[str, int]) -> None:
    assert http_address(text) == address


def test_a_gateway_for_others_is_shown_what_it_needs() -> None:
    with pytest.raises(RequestError, match="--http-host NAME --server grpc.tls://127.0.0.1:8815 --tls-cert server.pem"):
        http_address("example.com:8000")


@pytest.mark.parametrize("text", ["http://localhost:5173", "https://notebook.example", "http://[::1]:8000"])
def test_pages_that_may_ask(text: str) -> None:
    assert http_origins([text]) == (text,)


PUBLISHED = '[devices.a]\nurl = "sim:"\npublish = ["influx://127.0.0.1?db=x&password_file=secret"]\n'


def test_a_device_publishes_with_a_password_that_no_text_shows(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hunter2\n")
    secret.chmod(0o644)
    path = fleet(tmp_path, PUBLISHED)
    with pytest.raises(RequestError, match="chmod 600"):
        read_config(HERE, [], path)
    secret.chmod(0o600)
    settings = read_config(HERE, [], path)
    assert settings.outputs["a"].outputs[0].password == "hunter2"
    assert "hunter2" not in repr(settings)
