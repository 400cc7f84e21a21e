"""NATS servers for tests: those of the benchmark, which may not import the tests."""

from __future__ import annotations

from fastflight_benchmark.nats_servers import HOST, NatsNode, NatsServers, free_ports, nats_servers

__all__ = ["HOST", "NatsNode", "NatsServers", "free_ports", "nats_servers"]
