"""All playbooks work with any login shell, from the first ping to the end of a run."""

from __future__ import annotations

import pytest

from tests.lab import Lab
from tests.support import drive


@pytest.mark.parametrize(
    "shell", ["", *(pytest.param(shell, marks=pytest.mark.thorough) for shell in ("/bin/dash", "/bin/bash"))]
)
def test_machines_respond_regardless_of_login_shell(lab: Lab, nodes: list[str], shell: str) -> None:
    before = drive.output_of(lab, "node3", "getent", "passwd", "muster").strip().rpartition(":")[2]
    try:
        drive.output_of(lab, "node3", "usermod", "--shell", shell or before, "muster")
        ping = drive.run("ping.yml", lab.inventory)
    finally:
        drive.output_of(lab, "node3", "usermod", "--shell", before, "muster")
    assert ping.rc == 0 and "3 of 3 machines respond" in ping.output, ping.output


@pytest.mark.thorough  # each shell is checked above, and the playbooks have the same connection
def test_playbooks_work_from_preflight_to_logs(lab: Lab, nodes: list[str]) -> None:
    preflight = drive.run("preflight.yml", lab.inventory, preflight_skip=["own-name-loopback", "name-unknown"])
    assert preflight.rc == 0, preflight.output
    one_each = {"launch_launcher": "env", "nproc_per_node": 1}
    launch = drive.launch(lab, "ticks.py", run_id="shells", detach=True, **one_each).wait()
    assert launch.rc == 0, launch.output
    status = drive.run("status.yml", lab.inventory, run_id="shells")
    assert status.rc == 0 and status.output.count(" running  ") == 3, status.output
    stop = drive.run("stop.yml", lab.inventory, run_id="shells")
    assert stop.rc == 0 and stop.output.count(" stopped  ") == 3, stop.output
    logs = drive.run("logs.yml", lab.inventory, run_id="shells", fetch=True)
    assert logs.rc == 0, logs.output
    for number, name in enumerate(nodes):
        text = (lab.inventory.parent / f"runs/shells/logs/node{number}/launcher.log").read_text()
        assert f"on {name}" in text, text
    runs = drive.run("runs.yml", lab.inventory)
    assert runs.rc == 0 and "shells" in runs.output, runs.output
    fetch = drive.run("fetch.yml", lab.inventory, run_id="shells")
    assert fetch.rc == 0, fetch.output
    shell = drive.run("shell.yml", lab.inventory, nodes="node2")
    assert shell.rc == 0 and "ssh " in shell.output, shell.output
