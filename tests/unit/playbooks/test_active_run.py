# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""stop.yml, logs.yml and status.yml without a run ID apply to the active run, even if it is not the latest."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.module_utils._run import stop as run_stop
from tests.unit.supervised import eventually, free_port
from tests.unit.two_nodes import state_of, two_nodes
from tests.unit.typed import give_collection, typed

LAUNCH = "ansible-playbook muster.training.launch -i machines.yml -e detach=true -e run_id="
ENDED = r"ended (succeeded) at "


@pytest.mark.one_core
def test_commands_without_a_name_apply_to_the_active_run(tmp_path: Path) -> None:
    two_nodes(tmp_path, 9, launch_launcher="env", launch_report=False, launch_script=f"{tmp_path}/wait.py")
    (tmp_path / "wait.py").write_text(
        "import os, pathlib, time\nwhile '/waits/' in os.environ['MUSTER_RUN_DIRECTORY']: time.sleep(0.1)\n"
    )

    def run(command: str) -> str:
        completed = typed(tmp_path, command.split())
        assert completed.returncode == 0, completed.stdout
        return completed.stdout

    try:
        run(f"{LAUNCH}waits")
        run(f"{LAUNCH}short -e launch_lifeline_port={free_port()} -e launch_master_port={free_port()}")
        eventually(lambda: state_of(tmp_path, "short") == "succeeded")  # no controller watched the run
        status_output = run("ansible-playbook muster.training.status -i machines.yml")
        assert "run waits is active; short, launched later, has ended" in status_output
        assert "run waits: " in status_output and "wait.py in " in status_output
        assert "run waits is active" in run("ansible-playbook muster.training.stop -i machines.yml")
        assert state_of(tmp_path, "waits") == "stopped"
        assert "run short succeeded" in run("ansible-playbook muster.training.stop -i machines.yml"), "as it turns out"
        stopped = run("ansible-playbook muster.training.stop -i machines.yml")
        assert f"nothing to stop: short {ENDED}" in stopped and "Stop the run" not in stopped
        assert f"no run is active; the last one, short, {ENDED}" in run(
            "ansible-playbook muster.training.logs -i machines.yml"
        )
    finally:
        for name in ("local0", "local1"):
            request = {"run_id": "waits", "runs_directory": f"{tmp_path}/nodes", "node": name, "check": False}
            run_stop.stop(request)


@pytest.mark.one_core
def test_nodes_of_several_open_runs_are_queried_over_ssh(tmp_path: Path) -> None:
    """The playbook searches for runs on this machine but queries nodes over ssh; a silent node may have the run."""
    give_collection(tmp_path)
    closed = "{ansible_host: 127.0.0.1, ansible_port: 1}"  # tcpmux: nothing listens on it
    (tmp_path / "machines.yml").write_text(f"training: {{hosts: {{a: {closed}, b: {closed}}}}}\n")
    for number, run_id in enumerate(("first", "second")):
        record = tmp_path / "runs" / run_id
        record.mkdir(parents=True)
        (record / "token").touch()
        nodes = [{"name": "ab"[number], "slots": 1, "first_rank": 0}]
        (record / "plan.json").write_text(json.dumps({"run_id": run_id, "world_size": 1, "nodes": nodes}))
        os.utime(record / "plan.json", (number, number))
    (tmp_path / "runs" / "latest").symlink_to("second")
    completed = typed(tmp_path, ["ansible-playbook", "muster.training.stop", "-i", "machines.yml"])
    output = " ".join(completed.stdout.split())
    assert completed.returncode == 2, completed.stdout
    assert output.count("connect to host 127.0.0.1 port 1") >= 2, completed.stdout
    assert "this is about second; also active: first on a" in output, completed.stdout
    assert "b is not responding, so stop.yml stopped nothing there" in output, completed.stdout
