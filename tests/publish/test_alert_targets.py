"""Messages of alerts reach a webhook, a broker and a command, and a served board's crash reaches all three."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from fastflight.app.fleet_file import read_fleet_file
from fastflight.app.local_cluster import free_ports
from fastflight.app.overlay import read_config
from fastflight.client import FastFlightClient
from fastflight.errors import RequestError, TransportError
from fastflight.publish import alert_targets
from fastflight.publish.address import parse_alert_target
from fastflight.publish.alert_targets import AlertTarget, body_of, deliver
from fastflight.publish.alerts import AlertRule
from tests.publish.outputs import Collector, collecting, started
from tests.publish.test_outputs import subscribed
from tests.support.servers import config, serving
from tests.support.waiting import until

ALERT = {"text": "lab-3 crashed", "time": "2026-11-30T03:00:00+00:00"}
NOW = 1_796_007_600 * 10**9
BODY = body_of([ALERT], NOW)


@dataclass
class Webhook(Collector):
    """Keeps the path and the JSON of each message."""

    messages: list[tuple[str, Any]] = field(default_factory=list)

    def receive(self, path: str, content: bytes, authorization: str) -> int:
        status = super().receive("/v1/metrics", b"", authorization)
        if status == 200:
            self.messages.append((path, json.loads(content)))
        return status


def script(folder: Path, code: str) -> AlertTarget:
    (folder / "notify.py").write_text(code)
    return AlertTarget(argv=(sys.executable, str(folder / "notify.py")))


def test_a_webhook_gets_the_options_that_are_its_own_and_the_token() -> None:
    with collecting(Webhook(authorization="Bearer s3cret")) as hook:
        url = f"http://127.0.0.1:{hook.port}/a%2Fb?room=lab&password_env=TOKEN"
        target = AlertTarget(parse_alert_target(url))
        assert target.label == f"http://127.0.0.1:{hook.port}"  # the path may be a secret
        with pytest.raises(RequestError, match="credentials"):
            asyncio.run(deliver(target, BODY))
        target = AlertTarget(replace(parse_alert_target(url), password="s3cret"))
        assert asyncio.run(deliver(target, BODY)) == ""
        assert hook.messages == [("/a%2Fb?room=lab", {"text": "lab-3 crashed", "alerts": [ALERT]})]
        hook.statuses = [503, 404, 400]
        for _ in range(2):
            with pytest.raises(TransportError):
                asyncio.run(deliver(target, BODY))
        assert asyncio.run(deliver(target, BODY)).startswith("it refuses the message")


def test_an_alert_that_comes_late_says_when_it_was() -> None:
    late = json.loads(body_of([ALERT], NOW + 3600 * 10**9))
    assert late["text"] == "lab-3 crashed (at 2026-11-30T03:00:00+00:00)"


def test_a_webhook_that_is_not_there_is_tried_again() -> None:
    (port,) = free_ports(1)
    with pytest.raises(TransportError):
        asyncio.run(deliver(AlertTarget(parse_alert_target(f"http://127.0.0.1:{port}")), BODY))


def test_a_broker_gets_the_message_at_the_topic_of_the_url(mosquitto: str) -> None:
    (port,) = free_ports(1)
    with started([mosquitto, "-p", str(port)], port), subscribed(port) as messages:
        for path in ("", "/lab/alerts"):
            assert asyncio.run(deliver(AlertTarget(parse_alert_target(f"mqtt://127.0.0.1:{port}{path}")), BODY)) == ""
        until(lambda: len(messages) == 2)
    assert messages == [("fastflight/alerts", BODY), ("lab/alerts", BODY)]
    with pytest.raises(TransportError):
        asyncio.run(deliver(AlertTarget(parse_alert_target(f"mqtt://127.0.0.1:{port}")), BODY))


def test_a_command_gets_the_message_as_its_input(tmp_path: Path) -> None:
    code = f"import sys; open({str(tmp_path / 'got')!r}, 'wb').write(sys.stdin.buffer.read())"
    assert asyncio.run(deliver(script(tmp_path, code), BODY)) == ""
    assert (tmp_path / "got").read_bytes() == BODY


def test_a_command_that_fails_or_does_not_end_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TransportError, match="ended with 3: no modem"):
        asyncio.run(deliver(script(tmp_path, "import sys; sys.stderr.write('no modem'); sys.exit(3)"), BODY))
    with pytest.raises(TransportError, match="cannot be started"):
        asyncio.run(deliver(AlertTarget(argv=(str(tmp_path / "missing"),)), BODY))
    monkeypatch.setattr(alert_targets, "COMMAND_SECONDS", 0.05)
    with pytest.raises(TransportError, match="was stopped"):
        asyncio.run(deliver(script(tmp_path, "import threading; threading.Event().wait()"), BODY))


def test_a_crash_of_a_served_board_reaches_a_webhook_and_a_command(tmp_path: Path) -> None:
    (tmp_path / "board").mkdir()
    (tmp_path / "board" / "main.py").write_text('raise ValueError("cable")\n')
    command = script(tmp_path, f"import sys; open({str(tmp_path / 'got')!r}, 'ab').write(sys.stdin.buffer.read())")
    with collecting(Webhook()) as hook:
        to_hook = AlertTarget(parse_alert_target(f"http://127.0.0.1:{hook.port}/lab"))
        rules = (AlertRule(to_hook, "demo", crash=True), AlertRule(command, crash=True))
        board = {"demo": f"sim:?files={tmp_path / 'board'}"}
        with serving(board) as server, capture_logs() as logged:
            server.apply(config(board, alert_rules=rules))  # as SIGHUP does
            assert [each["alerts"] for each in logged] == [2]
            with FastFlightClient(server.location) as client:
                client.reset("demo")
            until(lambda: hook.messages and (tmp_path / "got").exists() and (tmp_path / "got").read_bytes())
    path, message = hook.messages[0]
    assert path == "/lab" and message["text"].startswith("demo crashed: ValueError: cable at main.py:1")
    assert json.loads((tmp_path / "got").read_bytes())["alerts"][0]["traceback"].startswith("Traceback")


def test_the_fleet_file_has_rules_and_secrets_come_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    os.chmod(tmp_path / "token", 0o600)
    (tmp_path / "fleet.toml").write_text(
        'alerts = [{ device = "lab-*", silent = "90s", to = ["page-me", "-v"] },\n'
        '  { column = "t", above = 40, for = "2m", quiet = "1h", to = "https://example.org/x?password_file=token" }]\n'
        '[devices.demo]\nurl = "sim:"\n'
    )
    silent, hot = read_config("grpc://127.0.0.1:0", fleet=tmp_path / "fleet.toml").alert_rules
    assert silent == AlertRule(AlertTarget(argv=("page-me", "-v")), "lab-*", silent=90)
    assert (hot.column, hot.above, hot.hold, hot.quiet, hot.text) == ("t", 40, 120, 3600, "t above 40 for 2 min")
    assert hot.target.address is not None and hot.target.address.password == "s3cret"
    assert "s3cret" not in repr(hot) + hot.key + hot.target.label


@pytest.mark.parametrize(
    ("rule", "where", "what"),
    [
        ('crash = true, silent = "1m", to = ["x"]', "alerts.0", "one of crash = true, silent and column"),
        ('to = ["x"]', "alerts.0", "one of crash = true, silent and column"),
        ('column = "t", to = ["x"]', "alerts.0", "column needs above or below"),
        ('crash = true, above = 3, to = ["x"]', "alerts.0", "above and below need column"),
        ('silent = "60", to = ["x"]', "alerts.0.silent", 'as in "90s"'),
        ("crash = true, to = []", "alerts.0", "to names no target"),
        ("crash = true", "alerts.0.to", "required"),
        ('crash = true, quite = "1m", to = ["x"]', "alerts.0.quite", "Did you mean 'quiet'"),
    ],
)
def test_a_rule_that_is_wrong_is_refused_by_its_place(tmp_path: Path, rule: str, where: str, what: str) -> None:
    (tmp_path / "fleet.toml").write_text(f'alerts = [{{ {rule} }}]\n[devices.demo]\nurl = "sim:"\n')
    with pytest.raises(RequestError) as refused:
        read_fleet_file(tmp_path / "fleet.toml", {})
    assert where in refused.value.where and what in str(refused.value)


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("ftp://h.example.org", "unknown kind of output"),
        ("https://user:pw@h.example.org", "may not hold a password"),
        ("mqtt://h.example.org/a/#", "not part of a URL"),
        ("mqtt://h.example.org/a?discovery=x", "unknown option"),
        ("hooks.example.org", "unknown kind of output"),
    ],
)
def test_a_url_that_is_no_target_is_refused(url: str, what: str) -> None:
    with pytest.raises(RequestError, match=what) as refused:
        parse_alert_target(url)
    assert "pw" not in str(refused.value)
