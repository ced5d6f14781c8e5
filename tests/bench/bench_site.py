# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure how long site.yml takes if nothing has to be changed, compared with preflight and launch, for nearby and
distant nodes.

By hand: python -m tests.bench.bench_site --nodes 4 16 --rounds 3
"""

from __future__ import annotations

import os
import re
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.bench import by_nodes
from tests.lab import Lab, LabError
from tests.lab.hosts import down

CHECKOUT = Path(__file__).resolve().parents[2]
PLAYBOOK = str(CHECKOUT / ".venv" / "bin" / "ansible-playbook")
LAB = "bench"
ROUND_TRIP = 150
"""Round-trip time in milliseconds for the rows with distant nodes."""
LIMITS = {("site.yml", 4, False): 12.0, ("site.yml", 4, True): 20.0, ("site.yml", 64, False): 60.0}
"""Limits in seconds, by playbook, number of nodes, and whether they are distant."""
MOST_TASKS = 45
ON_ONE_HOST = 64
"""Number of nodes in the row whose nodes are all names of one test host."""
EXPLANATION = """\
Seconds from the start of the command to its end, medians (fastest-slowest) of {rounds} rounds, over existing
connections. Nothing changes, since site.yml has run before. far: everything that SSH sends is delayed by {half} ms in
each direction. site.yml runs without python_env and pytorch, which the section on the Python environment covers.
launch.yml starts a bare script on all nodes, with one rank each, and ends with it. {many} nodes are names of one test
host, each with its own connection, and share the cores of this machine.
CPU: CPU seconds of the command on this machine, excluding processes on the nodes.
tasks: tasks of site.yml that run on a node."""
# Roles whose second run is measured elsewhere, and a separate port for the nodes, as users have.
SITE = ["-e", '{"python_env_enabled": false, "pytorch_enabled": false, "ssh_mesh_port": 2222}']
TASKS_ON_NODES = """\
from ansible.plugins.callback import CallbackBase
HERE = {"assert", "debug", "fail", "set_fact", "meta", "include_tasks", "include_role", "validate_argument_spec"}
MUSTER_HERE = {"known_variables", "check_site", "choose_nodes", "ssh_authority"}
DOCUMENTATION = "name: nodes_touched\\ntype: aggregate\\nshort_description: count\\ndescription: count"
class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "nodes_touched"
    CALLBACK_NEEDS_ENABLED = True
    touched = frozenset()
    def v2_runner_on_ok(self, result):
        name = result.task_fields["action"].rpartition(".")[2]
        if name not in HERE | MUSTER_HERE:
            self.touched |= {result._task._uuid if hasattr(result, "_task") else result.task._uuid}
    def v2_playbook_on_stats(self, stats):
        self._display.display(f"nodes touched by {len(self.touched)} tasks")
"""


def inventory(lab: Lab, far: bool, directory: Path) -> Path:
    """Return the inventory of the test hosts; for distant nodes, with an intermediate command that adds a delay."""
    text = yaml.safe_load(lab.inventory.read_text())
    if far:
        half = ROUND_TRIP / 2
        relay = shlex.join([sys.executable, str(Path(__file__).with_name("delay.py"))]) + f" %h %p {half:g}"
        ssh_arguments = text["training"]["vars"].get("ansible_ssh_common_args", "")
        text["training"]["vars"]["ansible_ssh_common_args"] = (
            f"{ssh_arguments} -o ProxyCommand={shlex.quote(relay)}".strip()
        )
    return write_inventory(text, directory / f"{'far' if far else 'near'}.yml")


def write_inventory(text: dict[str, Any], path: Path) -> Path:
    """Write an inventory with its own connections, since those to nearby nodes would otherwise be reused for distant
    ones.
    """
    connections = path.with_suffix("")
    connections.mkdir()
    text["training"]["vars"]["ansible_control_path"] = f"{connections}/%%h"
    path.write_text(yaml.safe_dump(text))
    return path


class TimedPlay(NamedTuple):
    """A playbook that has ended. cpu: its CPU time in seconds, including all processes that it started locally."""

    seconds: float
    cpu: float
    text: str


def cpu_of_children() -> float:
    """Return the CPU time in seconds that has been used by ended child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(arguments: list[str], path: Path, directory: Path) -> TimedPlay:
    """Run a playbook. Raises LabError if it fails."""
    environment = {
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_CALLBACK_PLUGINS": str(directory),
        "ANSIBLE_CALLBACKS_ENABLED": "nodes_touched",
    }
    start, before = time.monotonic(), cpu_of_children()
    completed = subprocess.run(
        [PLAYBOOK, *arguments, "-i", str(path)],
        cwd=CHECKOUT,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )
    seconds, cpu = time.monotonic() - start, cpu_of_children() - before
    if completed.returncode:
        raise LabError(
            f"{arguments[0]} failed ({completed.returncode}): {completed.stdout[-1500:]}{completed.stderr[-1500:]}"
        )
    return TimedPlay(seconds, cpu, completed.stdout)


def measure(counts: list[int], rounds: int) -> int:
    """Print the table; return 1 if a limit is exceeded."""
    over = 0
    print(EXPLANATION.format(rounds=rounds, half=f"{ROUND_TRIP / 2:g}", many=ON_ONE_HOST))
    print(f"\n{'':<14}{'nodes':>5}  {'':<5}{'seconds':>8}  {'(fastest-slowest)':<18}  {'CPU':>5}  {'tasks':>5}  limit")
    for count in counts:
        with redirect_stdout(sys.stderr), tempfile.TemporaryDirectory(prefix="muster-bench-") as scratch:
            directory = Path(scratch)
            (directory / "nodes_touched.py").write_text(TASKS_ON_NODES)
            lab = Lab.up(nodes=count, name=LAB)
            try:
                over |= of_size(lab, count, rounds, directory)
                if count == counts[0]:
                    launch_on_one_host(lab, rounds, directory)
            finally:
                down(LAB)
    return over


def launch_on_one_host(lab: Lab, rounds: int, directory: Path) -> None:
    """Measure the row with many nodes, all of which are names of the first test host, each with its own loopback
    address for SSH.
    """
    text = yaml.safe_load(lab.inventory.read_text())
    host = lab.nodes[0]
    variables, nodes = text["training"]["hosts"][host.name], {}
    for number in range(ON_ONE_HOST):
        nodes[f"n{number}"] = variables | {
            "ansible_host": by_nodes.extra_address(lab, host, number),
            "node_address": f"127.0.30.{number + 1}",
            "ansible_ssh_extra_args": f"-o HostKeyAlias={host.address}",
        }
    text["training"]["hosts"] = nodes
    path = write_inventory(text, directory / "many.yml")
    arguments = ["playbooks/launch.yml", *job_of(ON_ONE_HOST, directory)]
    run(arguments, path, directory)  # opens the connections
    results = [run(arguments, path, directory) for _round in range(rounds)]
    print_row("launch.yml", ON_ONE_HOST, "", results)


def print_row(  # noqa: PLR0913
    name: str, count: int, distance: str, rounds: list[TimedPlay], tasks: str = "", verdict: str = ""
) -> None:
    """Print a row of the table."""
    seconds, cpu = [result.seconds for result in rounds], statistics.median(result.cpu for result in rounds)
    row = f"{name:<14}{count:>5}  {distance:<5}{statistics.median(seconds):>8.1f}  "
    row += f"{f'({min(seconds):.1f}-{max(seconds):.1f})':<18}  {cpu:>5.1f}  {tasks:>5}  {verdict}"
    print(row.rstrip(), file=sys.__stdout__, flush=True)


def job_of(count: int, directory: Path) -> list[str]:
    """Return the arguments that make launch.yml start the bare script on the given number of nodes."""
    job = ["-e", f"nnodes={count}", "-e", "launch_script=/tmp/job.py", "-e", "launch_launcher=env"]
    return [*job, "-e", "nproc_per_node=1", "-e", f"launch_runs_directory={directory}/runs"]


def of_size(lab: Lab, count: int, rounds: int, directory: Path) -> int:
    """Return the rows for the given number of nodes."""
    for node in lab.nodes:
        lab.exec(node.name, ["install", "-m", "0644", "/dev/null", "/tmp/job.py"])
    near = inventory(lab, False, directory)
    run(["playbooks/site.yml", *SITE], near, directory)
    preflight = ["-e", f"nnodes={count}"]
    playbooks = {"site.yml": SITE, "preflight.yml": preflight, "launch.yml": job_of(count, directory)}
    over = 0
    for far in (False, True):
        path = inventory(lab, True, directory) if far else near
        for name, arguments in playbooks.items():
            run([f"playbooks/{name}", *arguments], path, directory)  # opens the connections
            results = [run([f"playbooks/{name}", *arguments], path, directory) for _round in range(rounds)]
            median, limit = statistics.median(play.seconds for play in results), LIMITS.get((name, count, far))
            result = re.search(r"nodes touched by (\d+) tasks", results[-1].text)
            tasks = result.group(1) if result and name == "site.yml" else ""
            is_kept = (limit is None or median < limit) and int(tasks or 0) <= MOST_TASKS
            verdict = "" if limit is None else f"{limit:g}" if is_kept else f"{limit:g}: not kept"
            print_row(name, count, "far" if far else "", results, tasks, verdict)
            over |= not is_kept
    return int(over)


if __name__ == "__main__":
    sys.exit(by_nodes.main(__doc__, [4], measure))
