# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module keep: replaces nodes that a run has lost, until the run ends."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible.inventory.manager import InventoryManager
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.plugin_utils._clouds.inventory_provider import has_provider
from ansible_collections.muster.training.plugins.plugin_utils._command_line.command_hints import adapt_commands
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.launches import (
    AnsiblePlaybookRunner,
    PlaybookResult,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.preconditions import sequence
from ansible_collections.muster.training.plugins.plugin_utils._keep.keeper import Clock, Keeper
from ansible_collections.muster.training.plugins.plugin_utils._keep.planner import Situation
from ansible_collections.muster.training.plugins.plugin_utils._keep.situation import read_situation
from ansible_collections.muster.training.plugins.plugin_utils._record.active_run import read_object
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import printable
from ansible_collections.muster.training.plugins.plugin_utils._user_error import UserError

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "run_id": {"type": "str", "required": True},
    "record": {"type": "path", "required": True},
    "group": {"type": "str", "default": "training"},
    "provider": {"type": "str", "default": ""},
    "max_usd_per_hour": {"type": "float"},
    "interval": {"type": "float", "default": 20.0},
}
STATUS_TIMEOUT = 300.0  # seconds for status.yml
RENT_TIMEOUT = 3600.0  # seconds for provision.yml
PREPARE_TIMEOUT = 7200.0  # seconds for site.yml, which may install a driver and download packages
JOIN_TIMEOUT = 600.0  # seconds for join.yml


class PlaybookSteps:
    """The steps of keep, each of which runs a playbook in a separate process."""

    def __init__(
        self, args: dict[str, Any], runner: AnsiblePlaybookRunner, sources: Sequence[str], loader: Any
    ) -> None:
        self.args, self.runner, self.sources, self.loader = args, runner, sources, loader
        self.argv = list(runner.argv)
        self.record = Path(args["record"])
        self.rents = bool(args["provider"]) or has_provider(sources)

    def machines(self) -> tuple[str, ...]:
        """Return the machines that are in the inventory now."""
        inventory = InventoryManager(loader=self.loader, sources=list(self.sources), cache=False)
        return tuple(inventory.get_groups_dict().get(self.args["group"], []))

    def observe(self) -> Situation:
        """Return the state reported by status.yml."""
        file = self.runner.directory / "status.json"
        file.unlink(missing_ok=True)
        self.play("status", "status", {"run_id": self.args["run_id"], "json": str(file)}, STATUS_TIMEOUT)
        try:
            status = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            status = None
        plan = read_object(self.record / "plan.json")
        names = [str(node["name"]) for node in plan.get("nodes", [])]
        has_result = (self.record / "result.json").exists()
        purse = (self.rents, self.args["max_usd_per_hour"] is not None)
        return read_situation(status, has_result, names, self.machines(), purse)

    def rent(self, nnodes: int) -> str:
        """Create machines within the cost limit, which provision.yml enforces."""
        variables = {"nnodes": nnodes, "max_usd_per_hour": self.args["max_usd_per_hour"]}
        result = self.play("provision", "provision", variables, RENT_TIMEOUT)
        return self.describe("no machine was created", "provision", result)

    def prepare(self, names: tuple[str, ...]) -> str:
        """Set up machines with site.yml, as for new machines."""
        result = self.play("site", f"site-{names[0]}", {}, PREPARE_TIMEOUT, ["--limit", ",".join(names)])
        return self.describe(f"{', '.join(names)} could not be set up", f"site-{names[0]}", result)

    def join(self, name: str) -> str:
        """Add a machine to the run."""
        variables = {"run_id": self.args["run_id"], "node": name}
        result = self.play("join", f"join-{name}", variables, JOIN_TIMEOUT)
        return self.describe(f"{name} could not join", f"join-{name}", result)

    def play(
        self, name: str, log: str, variables: dict[str, Any], timeout: float, options: Sequence[str] = ()
    ) -> PlaybookResult:
        """Run a playbook with the same options as the current playbook."""
        self.runner.argv = [*self.argv, *options]
        return self.runner.play(name, log, variables, timeout)

    def describe(self, problem: str, log: str, result: PlaybookResult) -> str:
        """Return why a playbook failed, or "" if it succeeded."""
        if result.exit_code == 0 and not result.timed_out:
            return ""
        why = printable(result.failures[-1]) if result.failures else f"see {self.runner.directory / log}.log"
        return f"{problem}: {'timed out; ' if result.timed_out else ''}{why}"


class ActionModule(ActionBase):
    """Starts playbooks, and writes into the run's record."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Keep the run's set of nodes complete until the run ends."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        if self._task.check_mode:
            return {"changed": False}
        record, display = Path(args["record"]), Display()
        sources = [str(source) for source in task_vars.get("ansible_inventory_sources") or []]
        with sequence(record / "keep") as runner:
            steps = PlaybookSteps(args, runner, sources, self._loader)

            def show(text: str) -> None:
                display.display(f"[keep] {time.strftime('%H:%M:%S')} {adapt_commands(text)}")

            def pause(seconds: float) -> bool:
                deadline = time.monotonic() + seconds
                while time.monotonic() < deadline and not runner.interrupted:
                    time.sleep(0.2)
                return runner.interrupted

            show(f"watching run {args['run_id']}; Ctrl-C stops keep, but not the run")
            has_ended = Keeper(record, steps, Clock(time.time, pause, args["interval"]), show).run()
        if not has_ended:
            text = f"keep was stopped, but run {args['run_id']} continues; to restart keep: "
            command = f"ansible-playbook keep.yml -e run_id={args['run_id']}"
            raise UserError(text + adapt_commands(command), result={"changed": True})
        return {"changed": True}
