"""The settings of a cluster: what is refused, and what is read from files and from the environment."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fastflight.access.identity import scopes
from fastflight.access.tokens import Book, issued
from fastflight.app.cluster_config import TOKEN_COMMAND
from fastflight.app.overlay import read_config
from fastflight.errors import RequestError

URL = "nats://127.0.0.1:4222"
LOCATION = "grpc://127.0.0.1:8815"


@pytest.mark.parametrize(
    ("url", "fleet", "options", "said"),
    [
        ("http://127.0.0.1", "", {}, "not an address of NATS: 'http://127.0.0.1'"),
        (",", "", {}, "no address of NATS"),
        ("nats://server:secret@127.0.0.1", "", {}, "other users can read a password"),
        (URL, "", {"cluster_name": "a b"}, "no server's name"),
        (URL, '[devices.b]\nurl = "serial:///dev/ttyACM0"', {"cluster_name": "a"}, 'servers = ["a"]'),
        (URL, '[devices]\n[cluster]\nuser = "u"', {}, "Give user and password_file"),
        (URL, '[devices]\n[cluster]\nuser = "u"\npassword_file = "nothing"', {}, "No such file"),
        (URL, '[devices]\n[cluster]\nwrong = "u"', {}, "unknown key"),
        (URL, "[devices]", {"tokens": Path("tokens.json")}, "servers with tokens ask each other with a token"),
    ],
)
def test_wrong_settings_are_refused(
    tmp_path: Path, url: str, fleet: str, options: dict[str, object], said: str
) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(fleet or "[devices]")
    with pytest.raises(RequestError) as refusal:
        read_config(LOCATION, [], file, cluster=url, **options)  # type: ignore[arg-type]
    assert said in str(refusal.value) and "secret" not in str(refusal.value)


def test_the_token_of_the_servers_must_grant_everything(tmp_path: Path) -> None:
    """A server would hide the devices of the others, or refuse, without a word of the reason."""
    fleet, tokens = tmp_path / "fleet.toml", tmp_path / "tokens.json"
    fleet.write_text('[devices]\n[cluster]\ntoken_file = "cluster.token"\n')
    # The command of the hint.
    (scope,) = re.findall("--scope '(.*?)'", TOKEN_COMMAND)
    for granted, said in (
        ("admin:*", "does not grant read, write, session, exec on all devices"),
        ("read,write,session,exec,admin:a", "does not grant read, write, session, exec, admin on all"),
        (None, f"this token is not in {tokens}"),
        (scope, ""),
    ):
        entry, text = issued("cluster", scopes([granted or scope]), datetime.now(UTC))
        tokens.write_bytes(Book((entry,) if granted else ()).encode())
        tokens.chmod(0o600)
        (tmp_path / "cluster.token").write_text(text)
        if said:
            with pytest.raises(RequestError) as refusal:
                read_config(LOCATION, [], fleet, cluster=URL, tokens=tokens)
            assert said in str(refusal.value) and TOKEN_COMMAND in str(refusal.value) and text not in str(refusal.value)
        else:
            found = read_config(LOCATION, [], fleet, cluster=URL, tokens=tokens).cluster
            assert found is not None and found.token == text


def test_files_and_the_environment_name_the_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "password").write_text("secret\n")
    (tmp_path / "fleet.toml").write_text(
        '[cluster]\nuser = "u"\npassword_file = "password"\nnkey = "in_file"\ncredentials = "user.creds"\n'
        '[devices.cable]\nurl = "serial:///dev/ttyACM0"\nservers = ["b"]\n'
        '[devices.net]\nurl = "socket://127.0.0.1:1"\n'
    )
    monkeypatch.setenv("FASTFLIGHT_NATS_NKEY", "from_environment")
    urls = f"{URL}, tls://nats2:4222"
    found = read_config(
        LOCATION, ["mine=serial:///dev/ttyACM1"], tmp_path / "fleet.toml", cluster=urls, cluster_name="a"
    ).cluster
    assert found is not None and found.servers == (URL, "tls://nats2:4222")
    assert (found.user, found.password) == ("u", "secret") and "secret" not in repr(found)
    assert (found.credentials, found.nkey) == (tmp_path / "user.creds", tmp_path / "from_environment")
    assert found.unreachable == {"cable"} and found.local == {"mine"}
