"""Outputs with TLS and passwords: mosquitto, InfluxDB 1, and a receiver of OTLP, with a CA made for the test."""

from __future__ import annotations

import getpass
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trustme

from fastflight.app.local_cluster import free_ports
from fastflight.client import FastFlightClient
from fastflight.publish import OutputAddress, parse_output
from tests.publish.outputs import BOARD, Collector, collecting, influxdb, publishing, started, states
from tests.support.servers import serving
from tests.support.waiting import until


class Certificates:
    """Files with a CA, a certificate of 127.0.0.1 and its key, and another CA."""

    def __init__(self, folder: Path) -> None:
        ca = trustme.CA()
        self.certificate = ca.issue_cert("127.0.0.1")
        self.ca, self.chain, self.key, self.other_ca = (str(folder / name) for name in ("ca", "chain", "key", "other"))
        ca.cert_pem.write_to_path(self.ca)
        trustme.CA().cert_pem.write_to_path(self.other_ca)
        self.certificate.cert_chain_pems[0].write_to_path(self.chain)
        self.certificate.private_key_pem.write_to_path(self.key)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def broker(mosquitto: str, certificates: Certificates, tmp_path: Path) -> Iterator[str]:
    (port,), folder = free_ports(1), tmp_path
    passwords = [shutil.which("mosquitto_passwd") or "", "-b", "-c", str(folder / "passwords"), "weather", "correct"]
    subprocess.run(passwords, check=True, capture_output=True)
    (folder / "broker.conf").write_text(
        f"listener {port} 127.0.0.1\nuser {getpass.getuser()}\npassword_file {folder}/passwords\n"
        f"certfile {certificates.chain}\nkeyfile {certificates.key}\n"
    )
    with started([mosquitto, "-c", str(folder / "broker.conf")], port):
        yield f"mqtts://weather@127.0.0.1:{port}?"


@pytest.fixture
def database(influxd: str, certificates: Certificates, tmp_path: Path) -> Iterator[str]:
    tls = f'https-certificate = "{certificates.chain}"\nhttps-private-key = "{certificates.key}"\n'
    settings = f"auth-enabled = true\nhttps-enabled = true\n{tls}"
    with influxdb(influxd, tmp_path, settings, certificates.ca) as (port, query):
        query("create user admin with password 'correct' with all privileges")
        query("create database boards", u="admin", p="correct")
        yield f"influxs://admin@127.0.0.1:{port}?db=boards&"


@pytest.fixture
def collector(certificates: Certificates) -> Iterator[str]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificates.certificate.configure_cert(context)
    with collecting(Collector(authorization="Bearer correct"), context) as collector:
        yield f"otlps://127.0.0.1:{collector.port}?"


@contextmanager
def publishing_to(address: OutputAddress) -> Iterator[FastFlightClient]:
    with serving(BOARD, outputs=publishing(address)) as server, FastFlightClient(server.location) as client:
        yield client


@pytest.mark.parametrize("output", ["broker", "database", "collector"])
def test_an_encrypted_output_needs_its_ca_and_the_password(
    output: str, certificates: Certificates, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(output)
    address = replace(parse_output(f"{url}ca={certificates.ca}"), password="correct")
    with publishing_to(address) as client:
        until(lambda: states(client)["sent"] > 3)
        assert states(client)["failing"] == 0

    wrong = {
        "Check the user, and password_file": replace(address, password="hunter2"),
        "Name its CA with ca=FILE": replace(address, options={**address.options, "ca": certificates.other_ca}),
    }
    for says, refused in wrong.items():
        with publishing_to(refused) as client:
            (shown,) = until(lambda: [each for each in client.devices()[0].publishing if "failed: " in each])
            assert says in shown and address.label in shown and "hunter2" not in shown
            assert states(client)["sent"] == 0 and states(client)["failing"] == 1
