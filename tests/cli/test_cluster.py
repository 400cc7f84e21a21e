"""`fastflight cluster`."""

from __future__ import annotations

import json
import re
import signal
import subprocess

from tests.support.commands import FASTFLIGHT, Command

from .conftest import Run


def test_a_demo_runs_and_ends_all_that_it_has_started(run: Run) -> None:
    command = [*FASTFLIGHT, "cluster", "demo", "--boards", "2"]
    demo = Command(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert demo.stdout is not None
        said = ""
        while "Ctrl-C ends all" not in said:
            line = demo.stdout.readline()
            assert line, said
            said += line
        location = re.findall(r"status --server (\S+)", said)[0]
        known = json.loads(run("cluster", "status", "--json", "--server", location).stdout)
        assert [each["name"] for each in known["servers"]] == ["alpha", "beta", "gamma"] and not known["trouble"]
        assert all(each["owner"] for each in known["devices"]) and len(known["devices"]) == 2
        folder = re.findall(r"are in (\S+)\.", said)[0]
        demo.send_signal(signal.SIGINT)
        assert demo.wait(60) == 0
        left = subprocess.run(["pgrep", "-f", folder], capture_output=True, text=True)
        assert left.stdout == ""
    finally:
        if demo.poll() is None:
            demo.send_signal(signal.SIGINT)  # it ends what it has started
            demo.wait(60)
        assert demo.stdout is not None
        demo.stdout.close()


def test_a_server_on_its_own_has_no_cluster(run: Run) -> None:
    done = run("cluster", "status")
    assert done.exit_code == 1 and "cluster" in done.stderr
