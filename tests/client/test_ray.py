"""Ray Data: a block for each endpoint, read by Ray's workers. In a process of its own, because Ray starts several."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile

from fastflight_benchmark import mock
from tests.support.servers import serving

SECONDS = 100.0
PROGRAM = """
import sys
import ray
from fastflight import FastFlightClient
from fastflight.client import Endpoint
from fastflight_benchmark.mock import Mock

with FastFlightClient(sys.argv[1]) as client:
    endpoints = client.endpoints(Mock(rows_per_batch=100, total_rows=1000, endpoints=4, variant="simple"))
ray.init(
    num_cpus=1, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1", _temp_dir=sys.argv[2]
)
reading = ray.remote(Endpoint.to_arrow)
dataset = ray.data.from_arrow_refs([reading.remote(endpoint) for endpoint in endpoints])
print(dataset.num_blocks(), dataset.count())
ray.shutdown()
"""


def test_a_block_for_each_endpoint() -> None:
    # Ray's sockets have long names. In pytest's folder they would be longer than Linux allows.
    with serving(sources=(mock.SOURCE,)) as running, tempfile.TemporaryDirectory(prefix="ray") as folder:
        environment = {**os.environ, "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0", "RAY_USAGE_STATS_ENABLED": "0"}
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, running.location, folder],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
        try:
            out, errors = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise
    assert (out, process.returncode) == ("4 1000\n", 0), errors
