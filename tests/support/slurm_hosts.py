"""Test hosts that form a Slurm cluster: set it up, and act on it as root or as a user."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.lab import Lab
from tests.support import drive
from tests.support.drive import root_shell


def as_user(lab: Lab, node: str, command: str, user: str = "muster") -> str:
    """Run a command as the user who runs the jobs, who has no root here."""
    return root_shell(lab, node, f"cd / && runuser --user={user} -- {command}")


def site(lab: Lab, inventory: Path | None = None, *options: str, **extra: Any) -> drive.Play:
    """Run the role as a user would."""
    options = ("--tags", "slurm", *options)
    return drive.run("site.yml", inventory or lab.inventory, options=options, timeout=540, slurm_enabled=True, **extra)


def changed(play: drive.Play) -> list[int]:
    """Return the number of changes on each node, from Ansible's recap."""
    return [int(number) for number in re.findall(r"(?m)^node\d+ .*changed=(\d+)", play.output)]


def states(lab: Lab) -> dict[str, str]:
    """Return the state of each node as Slurm shows it; {} while its controller does not reply."""
    completed = lab.exec("node1", ["sinfo", "--noheader", "--Node", "--format=%N %T"])
    return dict(line.split() for line in completed.stdout.splitlines()) if completed.returncode == 0 else {}


def in_queue(lab: Lab, run_id: str, *args: str, **extra: Any) -> drive.Play:
    """Launch a job on the first two nodes through the queue."""
    options: dict[str, Any] = {"nnodes": 2, "run_id": run_id, "launch_launcher": "env", "launch_import_test": False}
    return drive.launch(lab, "ticks.py", *args, **{**options, "launch_scheduler": "slurm", **extra})


def end_run(lab: Lab, run_id: str, nodes: tuple[str, ...] = ("node1", "node2"), user: str = "muster") -> None:
    """End all ranks of a run of ticks.py that waits for the file `enough`."""
    for rank, node in enumerate(nodes):
        as_user(lab, node, f"touch /home/{user}/.muster/runs/{run_id}/node{rank}/enough", user)


def has_job(lab: Lab, run_id: str) -> bool:
    """Return whether a run is in the queue, waiting or running."""
    return as_user(lab, "node1", f"squeue --noheader --name={run_id}") != ""


def pid_of(lab: Lab, node: str, pattern: str) -> int:
    """Return the PID of the only process on a node whose command matches."""
    (pid,) = [process.pid for process in lab.processes(node) if re.search(pattern, process.command)]
    return pid
