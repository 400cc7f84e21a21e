"""Publishes the rows of devices to MQTT brokers, InfluxDB and OpenTelemetry collectors.

A `Publisher` reads the traffic of one device and sends its rows to one output, at least once. `Publishers` has those of
a server. The modules of the outputs need the packages of the extra `publish`, and are imported when one is used.

`alerts` and `alert_outbox` report what is wrong with devices, at least once as well.
"""

from fastflight.publish.address import OutputAddress, parse_output
from fastflight.publish.output import open_output
from fastflight.publish.publishers import Publishers, PublishSettings
from fastflight.publish.rows import RowFormat

__all__ = ["OutputAddress", "PublishSettings", "Publishers", "RowFormat", "open_output", "parse_output"]
