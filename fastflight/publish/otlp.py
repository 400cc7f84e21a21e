"""Publishes rows to an OpenTelemetry collector, by OTLP over HTTP with protobuf.

Each column of numbers or truth values is a gauge with the name of the column and the attribute `device`. Other columns
are left out. Rows of format `lines` are log records.
"""

from __future__ import annotations

import math
import time
from typing import Any

import pyarrow as pa
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from fastflight.errors import TransportError
from fastflight.publish.address import OutputAddress
from fastflight.publish.http import HttpOutput, quoted
from fastflight.publish.influx import MAX_INTEGER, timed
from fastflight.publish.output import Message, Refusal
from fastflight.publish.rows import RowFormat, is_number

SERVICE = "fastflight"


class OtlpOutput(HttpOutput):
    """An `Output`."""

    def __init__(self, device: str, address: OutputAddress, rows: RowFormat) -> None:
        super().__init__(address, "Bearer")
        self._device = device
        self._rows = rows

    def encode(self, rows: pa.RecordBatch) -> Message:
        found = self._logs(rows) if self._rows.layout is None else self._metrics(rows)
        return Message(rows.num_rows, found.SerializeToString())

    async def send(self, message: Message) -> Refusal | None:
        logs = self._rows.layout is None
        path = self._address.path + ("/v1/logs" if logs else "/v1/metrics")
        answer = await self.post(path, message.content, "application/x-protobuf", {})
        if not answer.acknowledges:
            return Refusal(message.rows, quoted(answer.content.decode(errors="replace")))
        try:
            if logs:
                partial = ExportLogsServiceResponse.FromString(answer.content).partial_success
                refused = partial.rejected_log_records
            else:
                partial = ExportMetricsServiceResponse.FromString(answer.content).partial_success
                refused = partial.rejected_data_points
        except DecodeError as error:
            hint = "Is this the port for OTLP over HTTP?"
            raise TransportError("its answer is not OTLP", where=self._address.label, hint=hint) from error
        return Refusal(min(refused, message.rows), quoted(partial.error_message)) if refused else None

    def _metrics(self, rows: pa.RecordBatch) -> Any:
        message = ExportMetricsServiceRequest()
        resource = message.resource_metrics.add()
        scope = _scope(resource, resource.scope_metrics)
        found = timed(rows)
        for column in self._rows.columns:
            if not is_number(column.type):
                continue
            metric = scope.metrics.add(name=column.name, unit=self._rows.units.get(column.name, ""))
            for row, nanoseconds in found:
                value = row[column.name]
                if value is None or not math.isfinite(value):
                    continue
                point = metric.gauge.data_points.add(time_unix_nano=nanoseconds or time.time_ns())
                point.attributes.append(_attribute("device", self._device))
                if isinstance(value, int) and -MAX_INTEGER <= value < MAX_INTEGER:
                    point.as_int = value
                else:
                    point.as_double = value
        return message

    def _logs(self, rows: pa.RecordBatch) -> Any:
        message = ExportLogsServiceRequest()
        resource = message.resource_logs.add()
        scope = _scope(resource, resource.scope_logs)
        for row, nanoseconds in timed(rows):
            record = scope.log_records.add(time_unix_nano=nanoseconds or 0, observed_time_unix_nano=time.time_ns())
            record.body.string_value = row["text"]
            record.attributes.append(_attribute("device", self._device))
        return message


def _scope(resource: Any, scopes: Any) -> Any:
    """Name the service in `resource`, and return a new scope in it."""
    resource.resource.attributes.append(_attribute("service.name", SERVICE))
    scope = scopes.add()
    scope.scope.name = SERVICE
    return scope


def _attribute(key: str, text: str) -> KeyValue:
    found = KeyValue(key=key)
    found.value.string_value = text
    return found
