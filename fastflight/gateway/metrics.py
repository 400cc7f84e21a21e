"""The metrics of the gateway itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from fastflight.gateway.http.connections import Connections
from fastflight.gateway.page.viewers import Viewers
from fastflight.gateway.ws.sockets import Sockets


class EdgeMetrics(Collector):
    """Collects what the gateway itself counts: answers, connections, WebSockets and viewers of the page.

    The counts change on the gateway's loop and are read in another thread, so they may be a moment old. `answers`
    counts by method and status.
    """

    def __init__(
        self,
        answers: Counter[tuple[str, int]],
        connections: Connections,
        sockets: Sockets,
        viewers: Viewers,
    ) -> None:
        self._answers = answers
        self._connections = connections
        self._sockets = sockets
        self._viewers = viewers

    def collect(self) -> Iterator[Metric]:
        answered = CounterMetricFamily(
            "fastflight_http_answers", "Answers that were begun, including refusals.", labels=["method", "status"]
        )
        for (method, status), count in list(self._answers.items()):
            answered.add_metric([method, str(status)], count)
        yield answered
        yield GaugeMetricFamily("fastflight_http_connections", "Open connections.", value=self._connections.open)
        yield GaugeMetricFamily(
            "fastflight_http_connections_unasked",
            "Open connections that have not sent a request yet.",
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
            "fastflight_websockets_evicted",
            "WebSockets that were ended because the caller's access was revoked or changed.",
            value=self._sockets.revoked,
        )
        viewers = list(self._viewers.all())
        yield GaugeMetricFamily(
            "fastflight_page_waiting",
            "Messages that wait for the slowest page.",
            value=max((viewer.waiting for viewer in viewers), default=0),
        )
        yield CounterMetricFamily(
            "fastflight_page_skipped", "Messages that slow pages missed.", value=self._viewers.skipped
        )
