# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The output of `--check` for a run."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader

from ansible_collections.muster.training.plugins.action import launch_plan
from ansible_collections.muster.training.plugins.action.training_run import planned_files
from ansible_collections.muster.training.plugins.module_utils._run import start as run_start
from ansible_collections.muster.training.plugins.plugin_utils._node_call.run_programs import supervisor_files
from tests.unit.healthy import arguments, cluster

PROGRAMS = Path(__file__).resolve().parents[4] / "plugins" / "module_utils" / "_supervisor" / "programs"
LAUNCHERS: list[dict[str, Any]] = [
    {"launcher": "torchrun", "rdzv_backend": "static"},
    {"launcher": "torchrun", "rdzv_backend": "c10d"},
    {"launcher": "env"},
    {"launcher": "deepspeed"},
    {"launcher": "deepspeed", "deepspeed_launcher": "pdsh"},
    {"launcher": "deepspeed", "deepspeed_launcher": "openmpi"},
    {"launcher": "mpirun"},
    {"launcher": "accelerate", "accelerate_config": {"mixed_precision": "no"}},
]


def plan_nodes(**overrides: Any) -> dict[str, dict[str, Any]]:
    """Return the result of launch_plan for each of two nodes."""
    request = arguments(cluster(2), skip=["program-missing", "package-missing"], **overrides)
    task_args = {name: value for name, value in request.items() if value is not None and name != "facts_from"}
    action = launch_plan.ActionModule.__new__(launch_plan.ActionModule)
    action._task = SimpleNamespace(args=task_args, async_val=0, check_mode=True, action="launch_plan")
    action._loader = DataLoader()
    action._connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir="unused"))
    result = action.run(task_vars={"groups": {}, "hostvars": {}, "playbook_dir": "/playbooks"})
    assert "failed" not in result, result["msg"]
    nodes: dict[str, dict[str, Any]] = result["nodes"]
    return nodes


def diff_texts(plan: dict[str, Any], environment: dict[str, str]) -> dict[str, str]:
    """Return the texts of the diffs by header."""
    return {diff["after_header"]: diff["after"] for diff in planned_files(plan, environment)}


each_launcher = pytest.mark.parametrize(
    "launcher", LAUNCHERS, ids=lambda settings: "-".join(map(str, settings.values()))
)


@each_launcher
def test_check_mode_shows_each_planned_file(launcher: dict[str, Any]) -> None:
    for node in plan_nodes(**launcher).values():
        assert sorted(header.split()[0] for header in diff_texts(node["plan"], {})) == node["files"]


@each_launcher
def test_check_mode_shows_each_file_a_start_writes(
    launcher: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_start, "spawn_detached", lambda *_arguments: None)
    for name, node in plan_nodes(**launcher).items():
        plan = {**node["plan"], "supervision": "process"}
        request = {"plan": plan, "runs_directory": str(tmp_path), "replace": False, "environment": {}, "token": "t"}
        sources = {"supervisor": {"supervisor.py": ""}, "programs": dict.fromkeys(plan["programs"], "")}
        directory = Path(run_start.start({**request, **sources, "node": name})["directory"])
        written = [path for path in directory.rglob("*") if path.is_file()]
        actual = {f"{path.relative_to(directory)} (0{path.stat().st_mode & 0o777:o})" for path in written}
        assert set(diff_texts(plan, {})) == actual


def test_diff_hides_secrets_and_the_text_of_programs() -> None:
    plan = plan_nodes(launcher="mpirun")["node1"]["plan"]
    texts = diff_texts(plan, {"API_KEY": "s3cr3t", "A": "1"})
    assert json.loads(texts["plan.json (0600)"]) == {**plan, "files": ["hostfile", "rank.json"]}
    assert texts["hostfile (0600)"] == plan["files"]["hostfile"]
    assert texts["rank.json (0600)"] == plan["files"]["rank.json"]
    assert texts["environment.json (0600)"] == "A=(hidden)\nAPI_KEY=(hidden)\n"
    assert texts["token (0600)"] == "(hidden)\n"
    for header, sources in {
        "supervisor.py (0600)": list(supervisor_files().values()),
        "bin/muster-rank (0700)": [(PROGRAMS / "muster_rank.py").read_text()],
        "bin/ssh (0700)": [(PROGRAMS / "ssh_shim.py").read_text()],
    }.items():
        lines = sum(len(source.splitlines()) for source in sources)
        of_files = f" in {len(sources)} files" if header.startswith("supervisor") else ""
        assert texts[header] == f"(muster's own program, {lines} lines{of_files})\n"
