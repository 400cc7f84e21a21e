"""`GET /cluster`: who may see it, and what it says without a cluster. `tests/app/test_any_server.py` has clusters."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import httpx

from fastflight.access.identity import scopes
from fastflight.access.tokens import Book, issued
from fastflight.app.config import ClusterSettings
from tests.support.servers import serving

GRANTED = {"reader": "read,session:*", "admin": "admin:*"}


def may_see_it(url: str, token: str = "") -> bool:
    """Return what the page learns when the user signs in."""
    (identity,) = httpx.post(f"{url}/actions/identity", headers=proof(token)).json()["results"]
    return bool(identity["cluster"])


def proof(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"} if token else {}


def test_a_server_without_a_cluster_says_so() -> None:
    with serving(http=("127.0.0.1", 0)) as running:
        answer = httpx.get(f"{running.http}/cluster")
        assert (answer.status_code, answer.json()["what"]) == (404, "this server is not in a cluster")
        assert "--cluster" in answer.json()["hint"]
        assert not may_see_it(str(running.http))


def test_it_is_shown_to_admins_only(tmp_path: Path) -> None:
    """Also by a server that cannot reach NATS, which says so."""
    made = {
        name: issued(name, scopes((granted,)), datetime(2026, 1, 1, tzinfo=UTC)) for name, granted in GRANTED.items()
    }
    book = tmp_path / "tokens.json"
    book.write_bytes(Book(tuple(token for token, _ in made.values())).encode())
    book.chmod(0o600)
    alone = ClusterSettings(servers=("nats://127.0.0.1:9",), name="alpha")
    with serving(cluster=alone, http=("127.0.0.1", 0), auth={"tokens": book}) as running:
        url = str(running.http)
        said = {name: httpx.get(f"{url}/cluster", headers=proof(token)) for name, (_, token) in made.items()}
        assert httpx.get(f"{url}/cluster").status_code == 401
        assert said["reader"].status_code == 403 and "demo" not in said["reader"].text
        assert [may_see_it(url, token) for _, token in made.values()] == [False, True]
        known = said["admin"].json()
        assert known["server"] == "alpha" and known["trouble"] and known["replicas"] == []
