# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The node health check for Slurm, also run before each job. slurmd starts it on the node as root.

`check` drains an unfit node with a reason that begins with PREFIX, and resumes it once it is fit again, but only if
this program has drained it. `prolog` fails if the node is unfit, so that Slurm runs the job elsewhere.
"""

from __future__ import annotations

import contextlib
import os

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import print_line
from ansible_collections.muster.training.plugins.module_utils._files.bounded import read_json
from ansible_collections.muster.training.plugins.module_utils._run.identity import RunError
from ansible_collections.muster.training.plugins.module_utils._run.safe_files import write_json
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import conforms
from ansible_collections.muster.training.plugins.module_utils._slurm import health_findings, health_readings, queue

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict

    from ansible_collections.muster.training.plugins.module_utils._slurm.health_findings import Decision

    Data = Dict[str, Any]

SETTINGS = "/etc/muster/slurm_health.json"  # written by the role slurm
BASELINE = "/var/lib/muster/slurm_health.json"  # the node's known hardware
DRAINED = "/run/muster_slurm_health.json"  # the findings for which it has been drained since boot
SCHEMA = {"node": str, "gpu_files": [str], "skip": [str]}
MODES = ("check", "prolog")
REFUSED = 3  # exit status of the prolog on an unfit node; differs from that of a failure of the program itself


class Files:
    """The health check's files; tests use other files."""

    def __init__(self, settings: str = SETTINGS, baseline: str = BASELINE, drained: str = DRAINED) -> None:
        self.settings = settings
        self.baseline = baseline
        self.drained = drained

    def read_settings(self) -> Data:
        """Return the Slurm name (node), gpu_files and the ids of findings to skip. Raise RunError if they are
        missing.
        """
        settings = read_json(self.settings)
        if not conforms(settings, SCHEMA):
            raise RunError(
                f"{self.settings} is missing or damaged. Write it again: ansible-playbook site.yml --tags slurm "
                "-e slurm_enabled=true"
            )
        return dict(settings)

    def read_drained_for(self) -> list[str]:
        """Return the keys of the findings that the node was drained for, or [] if it was not drained."""
        keys = read_json(self.drained)
        return [key for key in keys if isinstance(key, str)] if isinstance(keys, list) else []

    def write_drained_for(self, keys: list[str]) -> None:
        """Record the findings that the node was drained for."""
        write_json(self.drained, keys)

    def write_baseline(self, baseline: Data) -> None:
        """Record the node's hardware."""
        with contextlib.suppress(OSError):  # a full disk, which is itself a finding
            os.makedirs(os.path.dirname(self.baseline), mode=0o755, exist_ok=True)
            write_json(self.baseline, baseline, 0o644)


def check_node(mode: str, settings: Data, files: Files) -> int:
    """Check this node, and drain or resume it; return the exit status."""
    is_prolog = mode == "prolog"
    readings = health_readings.read_node(settings["gpu_files"], quick=is_prolog)
    baseline = health_findings.update_baseline(read_json(files.baseline), readings)
    problems = health_findings.find_problems(readings, baseline)
    findings = [finding for finding in problems if finding.id not in settings["skip"]]
    if is_prolog and not findings:  # without a request to slurmctld, which would delay every job
        return 0
    node = health_findings.parse_node(queue.run("scontrol", "show", "node", settings["node"], "--oneliner"))
    drained_for = files.read_drained_for()
    decision = health_findings.decide(node, findings, drained_for)
    apply_decision(decision, settings["node"])
    if decision.drained_for != drained_for:
        files.write_drained_for(decision.drained_for)
    if not is_prolog:
        files.write_baseline(baseline)
    if findings or decision.action:
        print_line(f"{settings['node']}: {decision.action or 'left alone'}: {decision.reason or 'no findings'}")
    return REFUSED if is_prolog and not decision.accepted else 0


def apply_decision(decision: Decision, node: str) -> None:
    """Drain or resume the node."""
    if decision.action in ("drain", "explain"):
        queue.run("scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={decision.reason}")
    elif decision.action == "resume":  # clears only the drain state: a node that is down stays down
        queue.run("scontrol", "update", f"NodeName={node}", "State=UNDRAIN")


def main(arguments: list[str]) -> int:
    """Run `check` or `prolog`; return the exit status."""
    if len(arguments) != 1 or arguments[0] not in MODES:
        print_line(f"usage: health_check.py {' | '.join(MODES)}")
        return 2
    files = Files()
    try:
        return check_node(arguments[0], files.read_settings(), files)
    except RunError as error:
        print_line(f"muster: the health check failed: {error}")
        return 1
