# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure where a launch spends its time: Ansible's startup, skipped tasks, local tasks, and calls to the nodes.

By hand: python -m tests.bench.bench_phases --nodes 2 8 --rounds 3
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench import by_nodes
from tests.bench.bench_launch import BIN, CHECKOUT, HOME, SCRIPT, end_connections
from tests.lab import Lab, LabError
from tests.lab.hosts import down

LAB = "bench"
COLLECTION = "muster.training"
NODE_CALLS = tuple(
    f"{COLLECTION}.{name}"
    for name in ("call_nodes", "node_facts", "reach_nodes", "run_logs", "training_run", "training_watch")
)
START = "Ansible's start, until it has read the playbook"
BETWEEN = "between tasks: loading the next plugin, variables"
SKIPPED = "tasks that are skipped"
LOCAL = "tasks on the controller"
CALLS = "calls to the nodes, with their tasks"
END = "after the last task"
PHASES = (START, BETWEEN, SKIPPED, LOCAL, CALLS, END)
FIRST_TASK_OF_JOB = "Start the run on all nodes at once"
EXPLANATION = """\
Phases of `ansible-playbook launch.yml` with a bare script, over existing connections; medians of {rounds} rounds.
before: seconds until the nodes have started the job; after: seconds from then to the end of the command. processes:
Ansible starts one for each task and node, even if the task is skipped. CPU: CPU seconds on this machine, excluding
processes on the nodes. imports: those of the collection's own plugins, in a process that does nothing else; without
bytecode: as Ansible's loader imports them."""
IMPORTS = f"""
import sys, time
from ansible.plugins.loader import action_loader, init_plugin_loader
init_plugin_loader([sys.argv[2]])
if sys.argv[1] == "compile":
    from {f"ansible_collections.{COLLECTION}.plugins.plugin_utils"} import _compiled_modules
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _compiled_modules.CompiledModules)]
action_loader.get("{COLLECTION}.shell_command", class_only=True)  # Ansible's own part of loading a plugin
before = time.process_time()
for name in sys.argv[3:]:
    action_loader.get(name, class_only=True)
print(time.process_time() - before)
"""


@dataclass
class Phase:
    """The time taken by one part of a launch."""

    before: float = 0.0
    after: float = 0.0
    cpu: float = 0.0
    tasks: int = 0
    processes: int = 0

    def add(self, seconds: float, cpu: float, started: bool) -> None:
        """Add a duration, either before or after the job's start."""
        self.cpu += cpu
        if started:
            self.after += seconds
        else:
            self.before += seconds


def phase_of(action: str, results: Sequence[str]) -> str:
    """Return the phase that a task belongs to."""
    if results and set(results) == {"skipped"}:
        return SKIPPED
    return CALLS if action in NODE_CALLS else LOCAL


def split_into_phases(events: Sequence[Mapping[str, Any]], began: float, ended: float) -> dict[str, Phase]:
    """Return the duration of each phase in a launch, from the events recorded by the launch_events callback."""
    phases = {name: Phase() for name in PHASES}
    last = {"time": began, "cpu": 0.0}
    phases[START].add(events[0]["time"] - began, events[0]["cpu"], False)
    last = dict(events[0])
    started = False
    starts = [index for index, event in enumerate(events) if event["event"] in ("task", "end")]
    for index, following in zip(starts, starts[1:], strict=False):
        task, inside = events[index], events[index + 1 : following]
        phases[BETWEEN].add(task["time"] - last["time"], task["cpu"] - last["cpu"], started)
        results = [event["event"] for event in inside if event["event"] in ("result", "skipped")]
        phase = phases[phase_of(task["action"], results)]
        last = dict(inside[-1] if inside else task)
        phase.add(last["time"] - task["time"], last["cpu"] - task["cpu"], started)
        phase.tasks += 1
        phase.processes += sum(event["event"] == "process" for event in inside)
        started = started or task["task"].endswith(FIRST_TASK_OF_JOB)
    phases[END].add(ended - last["time"], events[-1]["cpu"] - last["cpu"], True)
    return phases


def launch(lab: Lab, count: int, directory: Path, number: int) -> tuple[dict[str, Phase], list[str]]:
    """Launch once; return the phases, and the action plugins that Ansible loaded. Raise LabError if it fails."""
    log = directory / "events.jsonl"
    variables = {
        "nnodes": count,
        "launch_launcher": "env",
        "launch_script": SCRIPT,
        "launch_args": [f"{HOME}/{directory.name}-{number}"],
        "launch_runs_directory": str(directory / "runs"),
        "ansible_control_path": f"{directory / 'kept'}/%%h",
    }
    (directory / "kept").mkdir(exist_ok=True)
    settings = {
        "ANSIBLE_CALLBACK_PLUGINS": str(Path(__file__).with_name("callback")),
        "ANSIBLE_CALLBACKS_ENABLED": "launch_events",
        "MUSTER_LAUNCH_EVENTS": str(log),
    }
    command = [str(BIN / "ansible-playbook"), "playbooks/launch.yml", "-i", str(lab.inventory)]
    began = time.time()
    completed = subprocess.run(
        [*command, "-e", json.dumps(variables)],
        cwd=CHECKOUT,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    ended = time.time()
    if completed.returncode:
        raise LabError(f"launch failed: {completed.stdout[-1500:]}{completed.stderr[-1500:]}")
    events = [json.loads(line) for line in log.read_text().splitlines()]
    actions = list(dict.fromkeys(event["action"] for event in events if event["event"] == "task"))
    return split_into_phases(events, began, ended), [name for name in actions if name.startswith(COLLECTION)]


def import_seconds(actions: Sequence[str], how: str) -> float:
    """Return the CPU time for importing some action plugins. how: "compile" or "cached"."""
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as tree:
        namespace = Path(tree, "ansible_collections", "muster")
        namespace.mkdir(parents=True)
        (namespace / "training").symlink_to(CHECKOUT)
        command = [sys.executable, "-c", IMPORTS, how, tree, *actions]
        completed = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True)
    return float(completed.stdout)


def median_phase(phases: Sequence[Phase]) -> Phase:
    """Return the medians for the same phase in several launches."""
    first = phases[0]
    before, after, cpu = (
        statistics.median(getattr(phase, name) for phase in phases) for name in ("before", "after", "cpu")
    )
    return Phase(before, after, cpu, first.tasks, first.processes)


def table(count: int, rounds: Sequence[Mapping[str, Phase]]) -> str:
    """Format the phases of launches on the given number of nodes as text."""
    lines = [f"{f'{count} nodes':<52}{'before':>8}{'after':>8}{'CPU':>8}{'tasks':>8}{'processes':>11}"]
    medians = {name: median_phase([phases[name] for phases in rounds]) for name in PHASES}
    for name, phase in medians.items():
        counts = f"{phase.tasks:>8}{phase.processes:>11}" if phase.tasks else ""
        lines.append(f"{name:<52}{phase.before:>8.2f}{phase.after:>8.2f}{phase.cpu:>8.2f}{counts}")
    sums = [sum(getattr(phase, name) for phase in medians.values()) for name in ("before", "after", "cpu")]
    counts = "".join(
        f"{sum(getattr(phase, name) for phase in medians.values()):>{width}}"
        for name, width in (("tasks", 8), ("processes", 11))
    )
    return "\n".join([*lines, f"{'all':<52}{''.join(f'{value:>8.2f}' for value in sums)}{counts}"])


def measure(counts: list[int], rounds: int) -> int:
    """Print the tables."""
    with redirect_stdout(sys.stderr):
        lab = Lab.up(nodes=max(counts), name=LAB)
    directory = Path(tempfile.mkdtemp(prefix="muster-bench-"))
    texts, actions = [], []
    try:
        for count in counts:
            launch(lab, count, directory, 1000 * count)  # opens the connections
            launches = [launch(lab, count, directory, 1000 * count + number) for number in range(1, rounds + 1)]
            texts.append(table(count, [phases for phases, _actions in launches]))
            actions = launches[0][1]
        import_seconds(actions, "cached")  # writes the bytecode
        imports = {how: import_seconds(actions, how) for how in ("cached", "compile")}
    finally:
        end_connections(directory.glob("kept"))
        shutil.rmtree(directory)
        with redirect_stdout(sys.stderr):
            down(LAB)
    print(EXPLANATION.format(rounds=rounds), *texts, sep="\n\n")
    print(f"\nimports: {imports['cached']:.2f} s of CPU, without bytecode {imports['compile']:.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(by_nodes.main(__doc__, [2, 8], measure))
