"""Tools for a running job over ssh: notifications under faults, the page, a profile, metrics and a debugger."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from tests.lab import Lab
from tests.support import drive
from tests.unit.plugins.module_utils.supervisor.test_debug_rank import DebugClient
from tests.unit.supervised import free_port

FIRST, PEER = "node1", "node3"


def power_off(lab: Lab, node: str) -> None:
    lab.power_off(node)


def reboot(lab: Lab, node: str) -> None:
    subprocess.run(lab.ssh(node, "sudo systemctl reboot"), check=False)


FAULTS: dict[str, tuple[Callable[[Lab, str], None], str, str]] = {
    "first-off": (power_off, FIRST, "lost"),
    "off": (power_off, PEER, "failed"),
    "first-reboots": (reboot, FIRST, "failed"),
    "reboots": (reboot, PEER, "failed"),
}


@pytest.mark.thorough  # tests/unit/plugins/module_utils/supervisor/test_one_notification.py
@pytest.mark.parametrize("name", FAULTS)
def test_the_end_is_reported_in_a_single_message(lab: Lab, nodes: list[str], webhook: Any, name: str) -> None:
    inject, node, state = FAULTS[name]
    run_id = f"notify-{name}"
    play = drive.launch(lab, "ticks.py", run_id=run_id, nnodes=3, launch_launcher="env", launch_notify=webhook.url)
    play.wait_for(r"step 3 of rank 0")
    inject(lab, node)
    play.wait()
    assert play.rc == 2, play.output
    drive.nothing_left(lab, [name for name in nodes if name != node], within=30)
    assert len(webhook.messages("started")) == 1
    (message,) = webhook.messages("ended")
    assert (message["run_id"], message["state"]) == (run_id, state), message
    assert node in message["text"], message


@pytest.mark.thorough  # test_last_message.py of the supervisor
def test_unit_of_a_single_node_reports_the_end_if_its_supervisor_is_killed(
    lab: Lab, nodes: list[str], webhook: Any
) -> None:
    run_id = "notify-single"
    play = drive.launch(lab, "ticks.py", run_id=run_id, nnodes=1, launch_launcher="env", launch_notify=webhook.url)
    play.wait_for(r"step 3 of rank 0")
    drive.output_of(lab, FIRST, "kill", "-9", str(drive.pid_of(lab, FIRST, "supervisor.py")))
    play.wait()
    assert play.rc == 2, play.output
    drive.nothing_left(lab, nodes, within=30)
    drive.eventually("the end is reported", lambda: bool(webhook.messages("ended")), 60)
    (message,) = webhook.messages("ended")
    assert (message["run_id"], message["state"]) == (run_id, "failed"), message
    assert f"the supervisor on {FIRST} was killed (SIGKILL), and the job with it" in message["text"], message
    secrets = lab.exec(FIRST, ["sh", "-c", "ls /run/muster/*/* /home/muster/.muster/runs/*/*/notify.json"])
    assert "notify.json" not in secrets.stdout, "the URL is left"
    journal = drive.output_of(lab, FIRST, "journalctl", "--no-pager", "--unit", f"muster-{run_id}")
    assert webhook.url not in journal


def read_page(play: drive.Play, path: str) -> Any:
    """Return a document of the page served by a command."""
    match = re.search(r"page: (http://127\.0\.0\.1:[0-9]+)/#token=([\w-]+)", play.output)
    assert match is not None, play.output
    request = urllib.request.Request(f"{match[1]}/api/{path}", headers={"Authorization": f"Bearer {match[2]}"})
    with urllib.request.urlopen(request, timeout=120) as reply:
        return json.load(reply)


@pytest.mark.thorough  # tests/unit/playbooks/test_page.py, and test_metrics_file.py of the supervisor
def test_page_and_metrics_show_a_run(lab: Lab, nodes: list[str]) -> None:
    textfiles = "/home/muster/metrics"
    for name in nodes[:2]:
        drive.output_of(lab, name, "install", "-d", "-o", "muster", textfiles)
    options: dict[str, Any] = {"nnodes": 2, "launch_launcher": "env", "launch_node_exporter_directory": textfiles}
    play = drive.launch(lab, "ticks.py", "--until", "end", run_id="shown", **options)
    play.wait_for(r"step 3 of rank 0")
    page = drive.start("page.yml", lab.inventory, run_id="shown")
    page.wait_for(r"page: http")
    try:
        read_page(page, "runs/shown")
        drive.eventually("connected", lambda: read_page(page, "runs/shown")["connection"]["state"] == "connected", 60)

        def has_samples() -> bool:
            rows = read_page(page, "runs/shown")["nodes"]
            return len(rows) == 2 and all(row["state"] == "running" and row.get("memory") for row in rows)

        drive.eventually("samples of both nodes", has_samples, 60)
        lines = "runs/shown/output?rank=1"
        drive.eventually("output of rank 1", lambda: "step 3 of rank 1" in read_page(page, lines)["lines"], 60)
        matches = read_page(page, "runs/shown/search?text=STEP%202%20of")["matches"]
        assert [match["node"] for match in matches] == ["node1", "node2"]

        def has_metrics() -> bool:
            text = drive.output_of(lab, "node2", "sh", "-c", f"cat {textfiles}/*.prom")
            return bool(re.search(r"^muster_job_running\{[^}]*shown[^}]*\} 1$", text, re.MULTILINE))

        drive.eventually("metrics of a running job", has_metrics, 60)
    finally:
        page.stop.set()
    for name in nodes[:2]:
        lab.exec(name, ["sh", "-c", "for run in /home/muster/.muster/runs/shown/node*; do touch $run/end; done"])
    play.wait()
    page.wait()
    assert play.rc == 0, play.output
    drive.nothing_left(lab, nodes, within=30)
    assert lab.exec("node2", ["ls", textfiles]).stdout == "", "the series end with the run"


@pytest.mark.thorough  # tests/unit/playbooks/test_profile.py profiles the same job
def test_profile_of_a_running_job_names_the_late_rank(lab: Lab, nodes: list[str]) -> None:
    end_file = "/home/muster/over"
    options: dict[str, Any] = {"nnodes": 2, "launch_launcher": "torchrun", "launch_nproc_per_node": 1}
    play = drive.launch(lab, "profiled.py", "1", "0.3", end_file, run_id="profiled", **options)
    play.wait_for(r"step 2: loss", timeout=300)
    profile = drive.run("profile.yml", lab.inventory, run_id="profiled", profile_steps=3)
    assert profile.rc == 0, profile.output
    assert "2 ranks, 3 steps of" in profile.output and "the other ranks wait for rank 1" in profile.output
    for name in nodes[:2]:
        lab.exec(name, ["touch", end_file])
    play.wait()
    for name in nodes[:2]:
        lab.exec(name, ["rm", end_file])
    assert play.rc == 0, play.output
    record = lab.inventory.parent / "runs" / "profiled"
    assert json.loads((record / "profile.json").read_text())["late"] == [1]
    assert (record / "profiles" / "timeline.json.gz").stat().st_size > 1000


def connect(port: int) -> DebugClient:
    """Connect to the tunnel, which may open after its instructions are shown."""
    clients: list[DebugClient] = []

    def is_open() -> bool:
        with contextlib.suppress(ConnectionRefusedError):
            clients.append(DebugClient(port))
        return bool(clients)

    drive.eventually("the tunnel is open", is_open, 60)
    return clients[0]


@pytest.mark.thorough  # test_debug_rank.py in tests/unit/playbooks and in supervisor
def test_debugger_follows_its_rank_to_another_node(lab: Lab, nodes: list[str]) -> None:
    port = free_port()
    options: dict[str, Any] = {"nnodes": 2, "launch_launcher": "env", "launch_restarts": 1, "launch_spares": 1}
    debug = {"debug_rank": 1, "debug_port": port}
    play = drive.launch(lab, "ticks.py", "--until", "end", run_id="debugged", **options, **debug)
    play.wait_for(r"rank 1 on node2 is waiting for a debugger on port", timeout=300)
    lab.power_off("node2")
    play.wait_for(r"attempt 1 starts: node2 was lost after")
    play.wait_for(r"rank 1 on node3 is waiting for a debugger at 127\.0\.0\.1", timeout=300)
    client = connect(port)
    client.request("initialize", adapterID="debugpy", clientID="test", linesStartAt1=True, pathFormat="path")
    client.send("attach", subProcess=False)
    client.event("initialized")
    client.request("configurationDone")
    play.wait_for(r"a debugger is attached to rank 1 on node3")
    for name in ("node1", "node3"):
        lab.exec(name, ["sh", "-c", "for run in /home/muster/.muster/runs/debugged/node*; do touch $run/end; done"])
    play.wait()
    assert play.rc == 0, play.output
    drive.nothing_left(lab, ["node1", "node3"], within=30)
