"""Launches that are refused before anything starts, with their messages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab import Lab
from tests.support import drive


def assert_refused(lab: Lab, names: list[str], *expected_text: str, job: str = "loop.py", **extra: object) -> str:
    """Start a launch; it must be rejected with all of these texts, and must not start anything.

    Return its output.
    """
    before = {name: drive.traces(lab, name) for name in names}
    play = drive.launch(lab, job, **extra).wait()
    assert play.rc not in (None, 0), play.output
    for word in expected_text:
        assert word in play.output, play.output
    # the listener from the connection tests may still be waiting for a peer that cannot connect
    drive.eventually(
        f"all is as it was: {before}", lambda: {name: drive.traces(lab, name) for name in names} == before, 40
    )
    return play.output


@pytest.fixture
def pretender(lab: Lab) -> Iterator[str]:
    """Yield the unit of a process on node1: another user's, with the command line of the supervisor of run first."""
    arguments = ["/x/supervisor.py", "/home/muster/.muster/runs/first/node0", "first", lab.node("node1").address]
    start = [
        "systemd-run",
        "--unit=pretender",
        "--uid=nobody",
        "python3",
        "-c",
        "import time; time.sleep(3600)",
        *arguments,
    ]
    assert lab.exec("node1", start).returncode == 0
    yield "pretender"
    lab.exec("node1", ["systemctl", "stop", "pretender"])


def test_busy_nodes_are_refused_unless_their_run_is_replaced(lab: Lab, nodes: list[str], pretender: str) -> None:
    first = drive.launch(lab, "ticks.py", run_id="first", nnodes=2, detach=True, launch_launcher="env").wait()
    assert first.rc == 0 and "step" not in first.output, first.output
    at_work = ["grep", "-q", "^step 3 ", "/home/muster/.muster/runs/first/node1/launcher.log"]
    drive.eventually("it is at work", lambda: lab.exec("node2", at_work).returncode == 0, 120)
    output = assert_refused(lab, nodes, "run first of muster, in /home/muster/.muster/runs/first, is running", nnodes=3)
    assert "busy on node1, node2:" in output and "port-in-use" not in output
    second = drive.launch(lab, "first_node.py", run_id="second", nnodes=3, replace=True, launch_launcher="env").wait()
    assert second.rc == 0, second.output
    status = drive.run("status.yml", lab.inventory, run_id="first")
    assert status.output.count(" stopped  ") == 2, status.output
    assert lab.exec("node1", ["systemctl", "is-active", pretender]).stdout.strip() == "active"


@pytest.mark.parametrize(
    ("port", "what"),
    [(29500, "the rendezvous port"), (29499, "the lifeline's port")],
)
@pytest.mark.thorough  # molecule/preflight tests this, and a launch runs the same checks
def test_port_in_use_is_refused(lab: Lab, nodes: list[str], port: int, what: str) -> None:
    command = (
        f"systemd-run --unit=squatter --uid=muster python3 -m http.server {port} --bind {lab.node('node1').address}"
    )
    assert lab.exec("node1", ["sh", "-c", command]).returncode == 0
    try:
        listening = ["sh", "-c", f"ss -Hltn | grep -q :{port}"]
        drive.eventually("the port is taken", lambda: lab.exec("node1", listening).returncode == 0, 120)
        assert_refused(lab, nodes, "port-in-use on node1", f"{what} {port}", "http.server", nnodes=2)
    finally:
        lab.exec("node1", ["systemctl", "stop", "squatter"])


@pytest.mark.thorough  # tests/unit/plugins/plugin_utils/checks/test_start_conditions.py
def test_missing_script_is_refused(lab: Lab, nodes: list[str]) -> None:
    for name in ("node1", "node4"):
        lab.exec(name, ["sh", "-c", "echo 'print(1)' > /home/muster/only_here.py"])
    play = drive.start("launch.yml", lab.inventory, launch_script="only_here.py", nnodes=4).wait()
    output = "script-missing on node2, node3: /home/muster/only_here.py is missing or not readable"
    assert play.rc == 2 and play.output.count(output) == 1, play.output
    assert play.output.count("is missing or not readable") == 1, play.output
    assert f"playbooks/site.yml -i {lab.inventory.relative_to(drive.CHECKOUT)} --tags code" in play.output, play.output


@pytest.mark.thorough  # molecule/preflight tests this, and a launch runs the same checks
def test_missing_interpreter_is_refused(lab: Lab, nodes: list[str]) -> None:
    assert_refused(
        lab,
        nodes,
        "interpreter-missing on node1, node2, node3, node4",
        "/opt/none/python",
        launch_python="/opt/none/python",
    )


@pytest.mark.thorough  # molecule/preflight tests this, and a launch runs the same checks
def test_missing_working_directory_is_refused(lab: Lab, nodes: list[str]) -> None:
    assert_refused(
        lab,
        nodes,
        "working-directory-missing on node1, node2",
        "/srv/none",
        launch_working_directory="/srv/none",
        nnodes=2,
    )


@pytest.mark.thorough
@pytest.mark.parametrize("node", ["node1", "node3"])
def test_unreachable_node_is_refused(lab: Lab, nodes: list[str], node: str) -> None:
    lab.exec(node, ["systemctl", "stop", "ssh"])
    lab.exec(node, ["pkill", "-f", "sshd: muster"])  # connections that are kept open
    try:
        assert_refused(lab, nodes, f"unreachable on {node}", "Connection refused", "ansible_port", nnodes=4)
    finally:
        lab.exec(node, ["systemctl", "start", "ssh"])


@pytest.mark.thorough  # run/test_run.py and plan/test_job.py in tests/unit
def test_run_id_that_is_in_use_or_unsafe_is_refused(lab: Lab, nodes: list[str]) -> None:
    assert drive.launch(lab, "first_node.py", run_id="taken", nnodes=1, launch_launcher="env").wait().rc == 0
    assert_refused(lab, nodes, "run-id-taken on node1", "run taken already exists", run_id="taken", nnodes=1)
    assert_refused(lab, nodes, "is not a valid name", run_id="../up", nnodes=1)


@pytest.mark.thorough
def test_wrong_node_address_is_refused(lab: Lab, nodes: list[str], tmp_path: Path) -> None:
    more = tmp_path / "address.yml"
    more.write_text("training: {hosts: {node2: {node_address: 203.0.113.9}}}\n")
    arguments = ("address-not-here on node2", "203.0.113.9", lab.node("node2").address)
    assert_refused(lab, nodes, *arguments, nnodes=2, options=("-i", str(more)))


@pytest.mark.thorough  # tests/unit/plugins/action/test_choose_nodes.py
def test_too_many_nodes_are_refused(lab: Lab, nodes: list[str]) -> None:
    assert_refused(lab, nodes, "nnodes is 40", nnodes=40)


def test_limit_must_name_exactly_the_nodes_of_the_run(lab: Lab, nodes: list[str]) -> None:
    """--limit can select the nodes of a run, as in other playbooks, but must match them exactly."""
    assert_refused(lab, nodes, "--limit node1 selects node1: pass exactly", nnodes=2, options=("--limit", "node1"))
    limit = "node2,node3,node4"
    assert_refused(
        lab, nodes, "nnodes is 2, but --limit node2,node3,node4 selects", nnodes=2, options=("--limit", limit)
    )
    play = drive.launch(lab, "loop.py", nnodes=2, options=("--limit", "node2,node3", "--check")).wait()
    assert play.rc == 0 and "2 nodes" in play.output, play.output
    assert re.search(r"node 0  node2 .*\n +node 1  node3 ", play.output), play.output


def test_failed_start_on_one_node_removes_the_run_everywhere(lab: Lab, nodes: list[str]) -> None:
    """All or none: the run is removed from the other nodes, and its name can be used again."""
    directory = "/home/muster/.muster/runs/halfway"
    runs = Path(directory).parent
    command = f"install -d -o muster -m 700 {runs.parent} {runs} && install -d -o root -m 755 {directory}"
    assert lab.exec("node2", ["sh", "-c", command]).returncode == 0
    play = drive.launch(lab, "loop.py", run_id="halfway", nnodes=3).wait()
    assert play.rc == 2 and "cannot create the run directory" in play.output and "node2" in play.output, play.output
    assert "was removed from the other nodes" in " ".join(play.output.split()), play.output
    drive.nothing_left(lab, nodes, within=15)
    lab.exec("node2", ["rmdir", directory])
    rerun = drive.launch(lab, "first_node.py", run_id="halfway", nnodes=3, launch_launcher="env").wait()
    assert rerun.rc == 0, rerun.output


def test_run_directory_of_another_account_is_refused(lab: Lab, nodes: list[str]) -> None:
    """Its owner could replace programs that run there as the job's user."""
    directory = "/scratch/runs/race9"
    for name in nodes[:2]:
        assert lab.exec(name, ["install", "-d", "-m", "1777", str(Path(directory).parent)]).returncode == 0
    assert lab.exec("node2", ["install", "-d", "-o", "nobody", "-m", "777", directory]).returncode == 0
    try:
        output = f"{directory} was not created by muster"
        assert_refused(lab, nodes, output, run_id="race9", nnodes=2, launch_node_directory=str(Path(directory).parent))
        assert lab.exec("node2", ["ls", directory]).stdout == ""
    finally:
        for name in nodes:
            lab.exec(name, ["rm", "-rf", "/scratch"])


@pytest.mark.thorough  # test_known_variables.py and test_choose_nodes.py in tests/unit/plugins/action
def test_inventory_can_set_the_number_of_nodes(lab: Lab, nodes: list[str], tmp_path: Path) -> None:
    """The play uses only those nodes, and -e nnodes is refused because it would have no effect."""
    inventory = yaml.safe_load(lab.inventory.read_text())
    inventory["training"]["vars"].update(launch_nnodes=2, launch_runs_directory=str(tmp_path / "runs"))
    inventory_path = tmp_path / "own.yml"
    inventory_path.write_text(yaml.safe_dump(inventory))
    settings: dict[str, Any] = {"launch_script": str(drive.JOBS / "loop.py"), "launch_args": "--steps '3'"}
    play = drive.run("launch.yml", inventory_path, **settings)
    assert play.rc == 0 and "2 nodes, world size 2" in play.output and "node3" not in play.output, play.output
    assert "loop.py --steps 3\n" in play.output and play.output.count("sum 2 world 2") == 3, play.output
    play = drive.run("launch.yml", inventory_path, **settings, nnodes=3)
    assert play.rc == 2 and "use -e launch_nnodes=3 instead" in " ".join(play.output.split()), play.output
    play = drive.run("preflight.yml", inventory_path)
    assert "node2" in play.output and "node3" not in play.output, play.output


@pytest.mark.thorough  # tests/unit/plugins/plugin_utils/plan
def test_elastic_runs_require_c10d(lab: Lab, nodes: list[str]) -> None:
    assert_refused(lab, nodes, "needs launch_rdzv_backend: c10d", launch_rdzv_backend="static", nnodes="2:4")
