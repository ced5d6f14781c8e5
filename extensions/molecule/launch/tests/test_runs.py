"""The runs on the nodes: listed, and the old ones removed."""

from __future__ import annotations

import pytest

from tests.lab import Lab
from tests.support import drive

RUNS = "/home/muster/.muster/runs"


@pytest.mark.thorough  # tests/unit/plugins/module_utils/run/test_list_runs.py
def test_old_runs_are_removed_but_running_ones_are_kept(lab: Lab, nodes: list[str]) -> None:
    over = drive.launch(lab, "ticks.py", run_id="ended", nnodes=2, launch_launcher="env", detach=True).wait()
    assert over.rc == 0, over.output
    assert drive.run("stop.yml", lab.inventory, run_id="ended").rc == 0
    alive = drive.launch(lab, "ticks.py", run_id="alive", nnodes=2, launch_launcher="env", detach=True).wait()
    assert alive.rc == 0, alive.output

    shown = drive.run("runs.yml", lab.inventory, keep=0, options=("--check",))
    assert shown.rc == 0, shown.output
    lines = [line.split() for line in shown.output.splitlines()]
    assert ["alive", "running"] in [line[:2] for line in lines] and ["ended", "stopped"] in [line[:2] for line in lines]
    assert lab.exec("node1", ["ls", RUNS]).stdout.count("ended") == 1

    removed = drive.run("runs.yml", lab.inventory, keep=0)
    assert removed.rc == 0 and "to be removed, with everything in their directories: " in removed.output
    for name in nodes:
        assert lab.exec(name, ["ls", RUNS]).stdout.split() == (["alive"] if name in ("node1", "node2") else []), name
    assert drive.run("stop.yml", lab.inventory, run_id="alive").rc == 0
