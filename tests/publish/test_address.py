"""URLs of outputs."""

from __future__ import annotations

import pytest

from fastflight.errors import RequestError
from fastflight.publish.address import parse_output


def test_parts_and_defaults() -> None:
    address = parse_output("mqtts://weather@broker.local/lab?ca=ca.pem")
    assert (address.kind, address.encrypted, address.host, address.port) == ("mqtt", True, "broker.local", 8883)
    assert (address.user, address.path, address.options) == ("weather", "/lab", {"ca": "ca.pem"})
    assert address.label == "mqtts://broker.local:8883/lab"
    assert parse_output("otlp://[::1]").label == "otlp://[::1]:4318"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("mqqt://broker", "Did you mean 'mqtt'"),
        ("mqtt://me:hunter2@broker", "password_file"),
        ("mqtt://", "not the URL"),
        ("mqtt://broker:70000", "not a URL"),
        ("mqtt://broker/a/#", "after #"),
        ("mqtt://broker/a/+", "beginning of a topic"),
        ("mqtt://broker?discover=x", "Did you mean 'discovery'"),
        ("mqtt://broker?discovery=", "has no value"),
        ("mqtt://broker?password_env=A", "a password needs a user"),
        ("influx://host", "where to write"),
        ("influx://host?db=a&bucket=b", "where to write"),
        ("otlp://host?password_file=a&password_env=b", "exclude"),
        ("plotjuggler://host/a", "a host and a port only"),
        ("plotjuggler://host?ca=a", "unknown option 'ca'"),
        ("plotjugler://host", "Did you mean 'plotjuggler'"),
    ],
)
def test_wrong_urls_are_refused_with_what_is_allowed(url: str, says: str) -> None:
    with pytest.raises(RequestError, match=says) as raised:
        parse_output(url)
    assert "hunter2" not in str(raised.value) and raised.value.hint
