"""What the gateway itself has to tell `/metrics`: answers, connections, WebSockets and viewers of the page.

Read in another thread than the one that counts: each number is one that was true a moment ago.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from fastflight.gateway.connections import Connections
from fastflight.gateway.session import Sessions
from fastflight.gateway.sockets import Sockets
from fastflight.gateway.viewers import Viewers


class Edge(Collector):
    """The collector of one gateway's edge. `answers`: how many of each method and status."""

    def __init__(
        self,
        answers: Counter[tuple[str, int]],
        connections: Connections,
        sockets: Sockets,
        sessions: Sessions,
        viewers: Viewers,
    ) -> None:
        self._answers = answers
        self._connections = connections
        self._sockets = sockets
        self._sessions = sessions
        self._viewers = viewers

    def describe(self) -> list[Metric]:
        """Nothing: what there is depends on what was asked."""
        return []

    def collect(self) -> Iterator[Metric]:
        answered = CounterMetricFamily(
            "fastflight_http_answers", "Answers that were begun, refusals among them.", labels=["method", "status"]
        )
        for (method, status), count in list(self._answers.items()):
            answered.add_metric([method, str(status)], count)
        yield answered
        yield GaugeMetricFamily("fastflight_http_connections", "Open connections.", value=self._connections.open)
        yield GaugeMetricFamily(
            "fastflight_http_connections_unasked",
            "Of these, ones that have asked nothing yet.",
            value=self._connections.unasked,
        )
        ended = CounterMetricFamily(
            "fastflight_http_connections_cut", "Connections that the gateway ended.", labels=["why"]
        )
        ended.add_metric(["too many"], self._connections.refused)
        ended.add_metric(["crowded out"], self._connections.crowded_out)
        ended.add_metric(["late"], self._connections.late)
        ended.add_metric(["not read"], self._connections.not_read)
        yield ended
        opened = GaugeMetricFamily("fastflight_websockets_open", "Open WebSockets.", labels=["kind"])
        for kind, count in self._sockets.open().items():
            opened.add_metric([kind], count)
        yield opened
        yield CounterMetricFamily(
            "fastflight_websockets_put_out",
            "WebSockets that were ended because a proof held no more.",
            value=self._sockets.put_out,
        )
        yield CounterMetricFamily(
            "fastflight_websocket_missed_chunks",
            "Chunks of live sessions that WebSocket clients were too slow for.",
            value=self._sessions.missed,
        )
        viewers = list(self._viewers.all())
        yield GaugeMetricFamily(
            "fastflight_page_waiting",
            "Messages that wait for the page that is furthest behind.",
            value=max((viewer.waiting for viewer in viewers), default=0),
        )
        yield CounterMetricFamily(
            "fastflight_page_skipped", "Messages that pages were too slow for.", value=self._viewers.skipped
        )
