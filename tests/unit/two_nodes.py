"""Two local nodes for a playbook run from the command line, and the state of a run on them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._run import stop as run_stop
from tests.unit.supervised import eventually, free_port, own_network
from tests.unit.typed import CHECKOUT, give_collection


def two_nodes(directory: Path, network: int, names: Sequence[str] = (), **settings: Any) -> None:
    """Give a directory the collection and machines.yml, with two nodes of one slot and settings of their group.

    network: the number of the nodes' own_network.
    names: of the nodes; without them local0 and local1.
    """
    give_collection(directory)
    text = (CHECKOUT / "inventories" / "local.yml").read_text().replace("node_slots: 2", "node_slots: 1")
    text = text.replace("127.0.0.", f"{own_network(network)}.")
    for location, name in enumerate(names):
        text = text.replace(f"local{location}", name)
    variables = {
        "launch_node_directory": f"{directory}/nodes",
        "launch_master_port": free_port(),
        "launch_lifeline_port": free_port(),
        "launch_skip": ["busy"],  # other tests also have runs on this machine
        **settings,
    }
    lines = [f"    {name}: {json.dumps(value)}\n" for name, value in variables.items()]
    (directory / "machines.yml").write_text(text + "".join(lines))


def state_of(directory: Path, run_id: str) -> str:
    """Return the state of a run on the second node; "" if there is none yet."""
    status = directory / "nodes" / run_id / "node1" / "status.json"
    return str(json.loads(status.read_text())["state"]) if status.exists() else ""


def wait_until_it_runs(directory: Path, process: subprocess.Popen[str], run_id: str) -> None:
    """Wait until a run has begun on the second node, or the command that launches it has ended."""
    eventually(lambda: process.poll() is not None or state_of(directory, run_id) == "running", 240)


def stop_run(directory: Path, run_id: str, names: Sequence[str] = ("local0", "local1")) -> None:
    """Stop a run on each node, as far as it exists there; names: of the nodes."""
    for name in names:
        nodes = {"runs_directory": f"{directory}/nodes", "node": name, "user": ""}
        run_stop.stop({**nodes, "run_id": run_id, "check": False})
