# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Watch a node's health during a run: the kernel log, GPUs, RDMA ports, memory and the run's disk."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess

from ansible_collections.muster.training.plugins.module_utils._health import gpu_health, host_health
from ansible_collections.muster.training.plugins.module_utils._health.kernel_log import KernelLog, journal_command
from ansible_collections.muster.training.plugins.module_utils._health.xid_catalogue import (
    MACHINE,
    NOTHING,
    describe_error,
    normalize_pci,
    parse_line,
)
from ansible_collections.muster.training.plugins.module_utils._run.gpu_tools import health_command
from ansible_collections.muster.training.plugins.module_utils._run.processes import signal_all, start_shielded
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    HEALTH_CHECK_INTERVAL,
    HEALTH_CHECK_TIMEOUT,
    HOST_CHECK_INTERVAL,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.health import judge
from ansible_collections.muster.training.plugins.module_utils._supervisor.health.nccl_network import NcclNetwork
from ansible_collections.muster.training.plugins.module_utils._supervisor.health.step_times import StepTimes

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from collections.abc import Iterable, Mapping
    from typing import Any

    from ansible_collections.muster.training.plugins.module_utils._health.xid_catalogue import GpuError
    from ansible_collections.muster.training.plugins.module_utils._run.documents import Plan
    from ansible_collections.muster.training.plugins.module_utils._supervisor.health.judge import Problem
    from ansible_collections.muster.training.plugins.module_utils._supervisor.journal import Journal
    from ansible_collections.muster.training.plugins.module_utils._supervisor.watchers import Notice

# This runs on a node without an AnsibleModule, so its run_command is not available.
# pylint: disable=ansible-bad-function

# Kinds of notices: a problem, broken hardware, the end of a problem, figures for rank 0.
HEALTH, BROKEN, HEALTHY, PACE = "health", "broken", "healthy", "pace"
MAX_OUTPUT = 262144  # maximum number of bytes of a query's output
MAX_FINDINGS = 20  # number of findings in a node report
MAX_EVENTS = 100  # number of events about one node in a run; a failing GPU repeats itself


def reading_queries(smi: str, selection: list[str]) -> list[tuple[str, list[str]]]:
    """Return the name and command of each query in one reading of the GPUs.

    The last one is the alternative to the one before, for drivers with another name of the throttle reasons.
    """
    first, second = (
        gpu_health.query(smi, "gpu", (*gpu_health.PACE_FIELDS, field)) for field in gpu_health.THROTTLE_FIELDS
    )
    return [
        ("devices", gpu_health.query(smi, "gpu", gpu_health.DEVICE_FIELDS) + selection),
        ("rows", gpu_health.query(smi, "remapped-rows", gpu_health.ROW_FIELDS) + selection),
        ("links", [smi, "nvlink", "--status"]),
        ("link_errors", [smi, "nvlink", "-e"]),
        ("pace", first + selection),
        ("other_pace", second + selection),
    ]


def parse_reading(outputs: Mapping[str, str]) -> dict[str, Any]:
    """Return the readings of GPUs in the outputs of reading_queries()."""
    return {
        "devices": gpu_health.parse_devices(outputs.get("devices", "")),
        "rows": gpu_health.parse_remapped(outputs.get("rows", "")),
        "nvlinks": gpu_health.parse_nvlinks(outputs.get("links", ""), outputs.get("link_errors", "")),
        "pace": gpu_health.parse_pace(outputs.get("pace", "")) or gpu_health.parse_pace(outputs.get("other_pace", "")),
    }


class LinesOfChild:
    """A child process whose output is read without waiting."""

    def __init__(self, command: list[str]) -> None:
        self.process = start_shielded(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        if self.process is not None and self.process.stdout is not None:
            os.set_blocking(self.process.stdout.fileno(), False)

    @property
    def pid(self) -> int | None:
        """Return the pid, or None if the child could not be started."""
        return self.process.pid if self.process is not None else None

    def read(self) -> bytes:
        """Return the output that has arrived since the last call, at most MAX_OUTPUT bytes."""
        data = b""
        with contextlib.suppress(OSError, ValueError):
            while self.process is not None and self.process.stdout is not None and len(data) < MAX_OUTPUT:
                block = os.read(self.process.stdout.fileno(), 65536)
                if not block:
                    break
                data += block
        return data

    def kill(self) -> None:
        """End the child."""
        if self.pid is not None:
            signal_all([self.pid], signal.SIGKILL)

    def close(self) -> None:
        """Close its output."""
        if self.process is not None and self.process.stdout is not None:
            self.process.stdout.close()


class NodeHealth:
    """The health of a node during a run; reports each change once."""

    def __init__(self, journal: Journal, plan: Plan) -> None:
        self.journal = journal
        self.plan = plan
        self.name = plan["node"]["name"]
        self.log: KernelLog | None = None
        self.follower: LinesOfChild | None = None  # follows the journal if only root can read the kernel log
        self.partial_line = b""
        self.reader: LinesOfChild | None = None  # the running GPU query
        self.queries: list[tuple[str, list[str]]] = []  # the remaining queries of this reading, by name
        self.query = ""  # name of the running query
        self.outputs: dict[str, str] = {}
        self.output = b""
        self.reader_due = self.host_due = self.reader_killed = 0.0
        self.first: dict[str, Any] | None = None  # the first readings of GPUs
        self.first_ports: list[dict[str, Any]] | None = None
        self.forecast = host_health.DiskForecast()
        self.problems: dict[str, Problem] = {}  # current problems by key
        self.errors: dict[tuple[Any, ...], str] = {}  # errors in the kernel log during this run
        self.findings: list[dict[str, str]] = []  # findings for the report
        self.events = 0
        self.step_times = StepTimes(journal.directory, plan)
        self.network = NcclNetwork(journal.directory, plan)

    def begin_attempt(self, plan: Plan) -> None:
        """Watch the next attempt, whose report has only its own findings."""
        self.plan = plan
        self.findings = []
        self.errors.clear()  # anything that goes wrong again, or is still wrong, is also a finding of this attempt
        self.problems.clear()
        self.step_times = StepTimes(self.journal.directory, plan)
        self.network = NcclNetwork(self.journal.directory, plan)

    def step(self, now: float, ended: dict[int, int], running: bool) -> list[Notice]:
        """Continue watching; return notices. ended: wait statuses just reaped, by pid."""
        if running and self.log is None:
            self.open_log()
        notices = self.read_log(ended)
        if running and now >= self.host_due:
            self.host_due = now + HOST_CHECK_INTERVAL
            notices += self.check_host(now)
        return notices + self.read_gpus(now, ended, running)

    def pids(self) -> list[int]:
        """Return the pids of processes that need not end before the job is considered to have ended."""
        return [child.pid for child in (self.follower, self.reader) if child is not None and child.pid is not None]

    def texts(self) -> list[str]:
        """Return the node's current problems, for its status."""
        texts = [*self.errors.values(), *(problem.text for problem in self.problems.values())]
        return texts[-MAX_FINDINGS:]

    def close(self) -> None:
        """Kill the child processes."""
        for child in (self.follower, self.reader):
            if child is not None:
                child.kill()

    # - kernel log

    def open_log(self) -> None:
        """Follow the kernel log, if the node has NVIDIA GPUs, by the journal if this user cannot read the log."""
        if not health_command(self.plan):
            return
        self.log = KernelLog()
        command = journal_command("-f", "-n", "0", "-o", "cat") if self.log.error else []
        if command:
            self.follower = LinesOfChild(["/bin/sh", "-c", f"exec {shlex.join(command)} 2>/dev/null"])

    def read_log(self, ended: dict[int, int]) -> list[Notice]:
        """Return notices of new errors in the kernel log."""
        errors = self.log.new_errors() if self.log is not None else []
        if self.follower is not None:
            *lines, self.partial_line = (self.partial_line + self.follower.read()).split(b"\n")
            self.partial_line = self.partial_line[-65536:]
            parsed = [parse_line(line.decode("utf-8", "replace")) for line in lines]
            errors += [error for error in parsed if error is not None]
            if self.follower.pid in ended:
                self.follower.close()
                self.follower = None
        return [notice for error in errors for notice in self.note_error(error)]

    def note_error(self, error: GpuError) -> list[Notice]:
        """Return a notice of an error in the kernel log, once."""
        key = (error.kind, error.code, error.pci)
        if error.level == NOTHING or key in self.errors:
            return []
        gpu = self.find_gpu(error.pci) if error.kind == "Xid" else None
        if gpu is None and error.kind == "Xid" and self.plan.get("gpus") and self.first is not None:
            return []  # a GPU that the job does not use
        text = describe_error(error, f"GPU {gpu['index']}" if gpu else "")
        self.errors[key] = text
        return self.report(text, gpu["uuid"] if gpu else "", error.level == MACHINE)

    def find_gpu(self, pci: str) -> dict[str, Any] | None:
        """Return the GPU at a PCI address, as it was first read: a lost one is no longer listed."""
        devices = self.first["devices"] if self.first is not None else []
        return next((gpu for gpu in devices if gpu["pci"] and normalize_pci(gpu["pci"]) == pci), None)

    def report(self, text: str, uuid: str, is_hardware: bool) -> list[Notice]:
        """Remember a finding for the node report, and return its notice."""
        self.findings = [*self.findings, {"text": text, "gpu": uuid, "hardware": "yes" if is_hardware else ""}]
        self.findings = self.findings[-MAX_FINDINGS:]
        return self.notice(BROKEN if is_hardware else HEALTH, f"{self.name}: {text}")

    def notice(self, kind: str, text: str) -> list[Notice]:
        """Return a notice, unless there were too many, and have the status written."""
        self.events += 1
        self.journal.status_due = 0.0
        return [(kind, text)] if self.events <= MAX_EVENTS else []

    # - readings

    def check_host(self, now: float) -> list[Notice]:
        """Return notices about RDMA ports, memory and the run's disk."""
        ports = host_health.read_ports()
        self.first_ports = self.first_ports if self.first_ports is not None else ports
        problems = [*judge.port_problems(self.first_ports, ports), *self.network.problems()]
        problems += judge.memory_shortage(host_health.read_memory(), "memory" in self.problems)
        free = host_health.free_bytes(self.journal.directory)
        if free is not None:
            self.forecast.add(now, free)
            problems += judge.disk_shortage(self.journal.directory, free, self.forecast)
        return self.compare(problems, lambda problem: problem.gpu is None)

    def read_gpus(self, now: float, ended: dict[int, int], running: bool) -> list[Notice]:
        """Query the GPUs in child processes, since nvidia-smi may hang; return notices of what has changed."""
        if self.reader is None:
            self.start_query(now, running)
            return []
        self.output = (self.output + self.reader.read())[:MAX_OUTPUT]
        if now >= self.reader_killed or not running:  # nothing is waiting for the query
            self.reader.kill()
        if self.reader.pid is not None and self.reader.pid not in ended:
            return []
        output = (self.output + self.reader.read())[:MAX_OUTPUT]
        self.outputs[self.query] = output.decode("utf-8", "replace")
        self.reader.close()
        self.reader = None
        if self.query == "pace" and gpu_health.parse_pace(self.outputs["pace"]):
            self.queries = []
        if self.queries or not running:
            return []
        reading = parse_reading(self.outputs)
        return self.take_reading(reading) if reading["devices"] else []

    def start_query(self, now: float, running: bool) -> None:
        """Start the next query of a reading, or a new reading when it is due."""
        if not running:
            self.queries = []
            return
        if not self.queries and now >= self.reader_due and health_command(self.plan):
            smi, *options = health_command(self.plan)
            self.queries = reading_queries(smi, [option for option in options if option.startswith("--id=")])
            self.outputs = {}
            self.reader_due = now + HEALTH_CHECK_INTERVAL
        if self.queries:
            self.query, command = self.queries.pop(0)
            self.output, self.reader_killed = b"", now + HEALTH_CHECK_TIMEOUT
            self.reader = LinesOfChild(command)

    def take_reading(self, reading: dict[str, Any]) -> list[Notice]:
        """Return notices from a reading of the GPUs, and the figures that rank 0 uses to compare the nodes."""
        self.first = self.first or reading
        notices = self.compare(list(judge.gpu_problems(self.first, reading)), lambda problem: problem.gpu is not None)
        figures = {"gpus": reading["pace"], "steps": self.step_times.take()}
        return [*notices, (PACE, json.dumps(figures))]

    def compare(self, problems: Iterable[Problem], is_covered: Any) -> list[Notice]:
        """Return notices of problems that are new, and of those that have ended.

        is_covered: whether a problem would be among these problems if it had not ended.
        """
        current = {problem.key: problem for problem in problems}
        notices: list[Notice] = []
        for key, problem in list(self.problems.items()):
            if is_covered(problem) and key not in current:
                del self.problems[key]
                notices += self.notice(HEALTHY, f"{self.name}: no longer the case: {problem.text}")
        for key, problem in current.items():
            is_new = key not in self.problems
            self.problems[key] = problem
            if is_new:
                notices += self.report(problem.text, self.uuid_of(problem.gpu), problem.is_hardware)
        return notices

    def uuid_of(self, index: int | None) -> str:
        """Return the UUID of a GPU by its index, or "" if it is unknown."""
        devices = self.first["devices"] if self.first is not None else []
        return next((gpu["uuid"] for gpu in devices if index is not None and gpu["index"] == index), "")
