"""NATS servers for tests: those of the benchmark, which may not import the tests."""

from __future__ import annotations

from fastflight.app.cluster_demo import HOST, free_ports
from fastflight_benchmark.nats_servers import NatsNode, NatsServers, nats_servers

__all__ = ["HOST", "NatsNode", "NatsServers", "free_ports", "nats_servers"]
