"""An elastic run under the real torchrun: a lost node returns, and takes part in torchrun's next attempt."""

from __future__ import annotations

from typing import Any

import pytest

from tests.lab import Lab
from tests.support import drive

SKIP: dict[str, Any] = {"launch_skip": ["own-name-loopback"]}


@pytest.mark.thorough
def test_returning_node_takes_part_in_an_elastic_run_again(lab: Lab, nodes: list[str]) -> None:
    play = drive.launch(lab, "loop.py", run_id="elastic-return", nodes="node1,node2,node3", nnodes="2:3", **SKIP)
    play.wait_for(r"step 3 sum 3 world 3", timeout=300)
    lab.power_off("node3")
    play.wait_for(r"node3 is lost: .* the run continues with 2 of 3 nodes")
    play.wait_for(r"the run continues(.|\n)*step 3 sum 2 world 2", timeout=300)
    lab.power_on("node3")
    joined = drive.run("join.yml", lab.inventory, run_id="elastic-return", node="node3", **SKIP)
    assert joined.rc == 0, joined.output
    play.wait_for(r"node3 joins the run(.|\n)*step 3 sum 3 world 3", timeout=300)
    assert play.output.count("world 3") > play.output.count("is lost")
    stopped = drive.run("stop.yml", lab.inventory, run_id="elastic-return")
    assert stopped.rc == 0, stopped.output
    play.wait()
    assert drive.record(lab, "elastic-return")["state"] == "stopped"
    drive.nothing_left(lab, nodes, within=15)
