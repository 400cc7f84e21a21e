"""Accounts and users of NATS for tests: nkeys, and the JWTs of operator mode, which `nsc` makes for real servers."""

from __future__ import annotations

import base64
import json
import os
import time
from dataclasses import dataclass, field
from typing import Any

import nkeys  # type: ignore[import-untyped]

UNLIMITED = dict.fromkeys(
    ("subs", "data", "payload", "imports", "exports", "conn", "leaf", "mem_storage", "disk_storage"), -1
) | {"streams": -1, "consumer": -1, "wildcards": True}


@dataclass
class Identity:
    """A key pair of this kind."""

    kind: int
    seed: bytes = field(init=False)
    pair: Any = field(init=False)

    def __post_init__(self) -> None:
        self.seed = bytes(nkeys.encode_seed(os.urandom(32), self.kind))
        self.pair = nkeys.from_seed(bytearray(self.seed))

    @property
    def public(self) -> str:
        return bytes(self.pair.public_key).decode()

    def signed(self, subject: Identity, kind: str, **claims: Any) -> str:
        """A JWT by which this identity vouches for another one."""
        content = {
            "jti": "test",
            "iat": int(time.time()),
            "iss": self.public,
            "name": kind,
            "sub": subject.public,
            "nats": {"type": kind, "version": 2, **claims},
        }
        text = ".".join(
            _encoded(json.dumps(each).encode()) for each in ({"typ": "JWT", "alg": "ed25519-nkey"}, content)
        )
        return f"{text}.{_encoded(self.pair.sign(text.encode()))}"


def user() -> Identity:
    return Identity(nkeys.PREFIX_BYTE_USER)


def operator_mode(user: Identity) -> tuple[str, str]:
    """Return settings of a NATS server in operator mode, and the credentials file of `user`."""
    operator = Identity(nkeys.PREFIX_BYTE_OPERATOR)
    system, account = Identity(nkeys.PREFIX_BYTE_ACCOUNT), Identity(nkeys.PREFIX_BYTE_ACCOUNT)
    preloaded = [
        f"{each.public}: {operator.signed(each, 'account', limits={**UNLIMITED, **limits})}"
        for each, limits in ((system, {"mem_storage": 0, "disk_storage": 0}), (account, {}))
    ]
    settings = (
        f"operator: {operator.signed(operator, 'operator', system_account=system.public)}\n"
        f"system_account: {system.public}\nresolver: MEMORY\nresolver_preload: {{ {', '.join(preloaded)} }}"
    )
    jwt = account.signed(user, "user", subs=-1, data=-1, payload=-1)
    credentials = (
        f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n------END USER NKEY SEED------\n"
    )
    return settings, credentials


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
