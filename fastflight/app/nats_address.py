"""The address of NATS, from the settings of a cluster."""

from __future__ import annotations

import re
import ssl
from pathlib import Path

from fastflight.app.config import ClusterSettings
from fastflight.cluster.connection import NatsAddress
from fastflight.errors import RequestError

# Where files of NATS have the seed of a key, and how they are named.
SEED = re.compile(r"\A\s*S[A-Z2-7]{57}\s*\Z")
SEED_IN_CREDENTIALS = re.compile(r"BEGIN NATS USER JWT-+\s+\S+\s.*BEGIN USER NKEY SEED-+\s+S[A-Z2-7]{57}\s", re.DOTALL)
EXAMPLES = {"credentials": "server.creds", "nkey": "server.nk"}


def nats_address(settings: ClusterSettings) -> NatsAddress:
    """Return the address of NATS. `RequestError` if the TLS files cannot be used."""
    tls = None
    if settings.ca is not None or settings.cert is not None or any(url.startswith("tls:") for url in settings.servers):
        tls = ssl.create_default_context()
        try:
            if settings.ca is not None:
                tls.load_verify_locations(settings.ca)
            if settings.cert is not None:
                tls.load_cert_chain(settings.cert, settings.key)
        except (OSError, ssl.SSLError) as error:
            raise RequestError(
                "the TLS files for NATS cannot be used", where="[cluster]", hint="ca, cert and key are PEM files"
            ) from error
    for name, file, seed in (
        ("credentials", settings.credentials, SEED_IN_CREDENTIALS),
        ("nkey", settings.nkey, SEED),
    ):
        if file is not None:
            _check_seed(name, file, seed)
    return NatsAddress(
        settings.servers,
        settings.credentials,
        settings.nkey,
        settings.user,
        settings.password,
        token=settings.nats_token,
        tls=tls,
    )


def _check_seed(key: str, file: Path, seed: re.Pattern[str]) -> None:
    """Raise `RequestError` unless the file has what nats-py takes from it. The error has nothing of its content."""
    try:
        found = seed.search(file.read_text(errors="replace"))
    except OSError as error:
        raise RequestError(error.strerror or "cannot be read", where=str(file), hint=f"Check cluster.{key}") from error
    if found is None:
        hint = f"Give a file of nsc or nk, as in [cluster] {key} = {EXAMPLES[key]!r}"
        raise RequestError(f"this is no {key} file of NATS", where=str(file), hint=hint)
