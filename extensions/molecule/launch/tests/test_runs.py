"""List the runs on the nodes, and remove old ones."""

from __future__ import annotations

import pytest

from tests.lab import Lab
from tests.support import drive

RUNS = "/home/muster/.muster/runs"


@pytest.mark.thorough  # tests/unit/plugins/module_utils/run/test_list_runs.py
def test_old_runs_are_removed_but_running_ones_are_kept(lab: Lab, nodes: list[str]) -> None:
    finished = drive.launch(lab, "ticks.py", run_id="ended", nnodes=2, launch_launcher="env", detach=True).wait()
    assert finished.rc == 0, finished.output
    assert drive.run("stop.yml", lab.inventory, run_id="ended").rc == 0
    active = drive.launch(lab, "ticks.py", run_id="alive", nnodes=2, launch_launcher="env", detach=True).wait()
    assert active.rc == 0, active.output

    preview = drive.run("runs.yml", lab.inventory, keep=0, options=("--check",))
    assert preview.rc == 0, preview.output
    lines = [line.split() for line in preview.output.splitlines()]
    assert ["alive", "running"] in [line[:2] for line in lines] and ["ended", "stopped"] in [line[:2] for line in lines]
    assert lab.exec("node1", ["ls", RUNS]).stdout.count("ended") == 1

    removed = drive.run("runs.yml", lab.inventory, keep=0)
    assert removed.rc == 0 and "to be removed, with everything in their directories: " in removed.output
    for name in nodes:
        assert lab.exec(name, ["ls", RUNS]).stdout.split() == (["alive"] if name in ("node1", "node2") else []), name
    assert drive.run("stop.yml", lab.inventory, run_id="alive").rc == 0
