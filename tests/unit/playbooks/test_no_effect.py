# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every playbook refuses variables and tags without effect before it contacts a node."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.typed import CHECKOUT, give_collection, typed

# without site, which test_site.py covers
OTHER_PLAYBOOKS = sorted(path.stem for path in (CHECKOUT / "playbooks").glob("*.yml") if path.stem != "site")
READ = {  # read by the playbook, by a role, by a playbook that it starts, or by the template of an option
    "launch": "nnodes=1 launch_environment={} code_source=. preflight_skip=a ansible_user=me OF_INVENTORY=1 "
    'node_slots=1 python_env_name=x packer_build=1 seed=1 run_id=x{{seed}} {"launch_args":[!unsafe~"{a}"]}',
    "fit": 'launch_script=a.py fit_max=8 {"fit_args":["{batch_size}"]}',
    "sweep": "launch_script=a.py fit_max=8 sweep_fit=true",
    "rehearse": "launch_script=a.py nnodes=2",
    "benchmark": "nnodes=1 baseline=a benchmark_seconds=60",
    "stage_data": "stage_data_here=. s3_client_version=1",
    "provision": "nnodes=2 max_usd_per_hour=4 idle_watch_minutes=30 team=a",
    "runs": "keep=20 jmespath=a",
    "keep": "max_usd_per_hour=4 machine_types=a provision_market=spot keep_interval=5",
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Create the collection and an unreachable node, where commands that are not refused end without changes."""
    give_collection(tmp_path)
    (tmp_path / "machines.yml").write_text(
        "training: {hosts: {a: {ansible_host: 127.0.0.1, ansible_port: 1}}, vars: {x: '{{ OF_INVENTORY }}'}}\n"
    )
    (tmp_path / "settings.yml").write_text("warmup_steps: 4\ncluster: '{{ team }}-bert'\n")
    (tmp_path / "tagged.yml").write_text("- {import_playbook: muster.training.status, tags: own}\n")
    (tmp_path / "mine.yml").write_text(
        "- ansible.builtin.import_playbook: muster.training.status\n"
        "- {hosts: training, gather_facts: false, tags: own, tasks: [{ansible.builtin.debug: {msg: '{{ own }}'}}]}\n"
    )
    (tmp_path / "launch.yml").write_text("- ansible.builtin.import_playbook: muster.training.launch\n")
    return tmp_path


def run_playbook(directory: Path, playbook: str, *arguments: str, **environment: str) -> str:
    """Return the output without line breaks; assert that no node was contacted after a refusal."""
    completed = typed(directory, ["ansible-playbook", playbook, "-i", "machines.yml", *arguments], **environment)
    assert completed.returncode != 0, completed.stdout
    if "Nothing was started or changed." in completed.stdout:
        assert "unreachable=1" not in completed.stdout and "refused" not in completed.stdout.lower(), completed.stdout
    return " ".join(completed.stdout.replace("\\n", " ").split())


def playbook_params(playbooks: Iterable[str]) -> list[Any]:
    """Return test parameters; only those of launch run with every ansible-core version."""
    return [item if item == "launch" else pytest.param(item, marks=pytest.mark.one_core) for item in playbooks]


# A playbook for each module that rejects unused options.
FEW = ("cost", "docker", "launch", "page", "stop")


def first_task(playbook: str) -> dict[str, Any]:
    """Return the first task with a module of the collection, and with the tags of its play."""
    play = yaml.safe_load((CHECKOUT / "playbooks" / f"{playbook}.yml").read_text())[0]
    tasks: list[dict[str, Any]] = play.get("pre_tasks") or play["tasks"]
    role = tasks[0].get("ansible.builtin.import_role")
    if role is not None:
        directory = CHECKOUT / "roles" / role["name"].split(".")[-1] / "tasks"
        tasks = yaml.safe_load((directory / f"{role['tasks_from']}.yml").read_text())
    first = next(task for task in tasks if any(name.startswith("muster.training.") for name in task))
    return {"tags": play.get("tags"), **first}


def module_of(task: dict[str, Any]) -> str:
    """Return the short name of a task's module."""
    return next(name.split(".")[-1] for name in task if name.startswith("muster.training."))


@pytest.mark.one_core
@pytest.mark.parametrize("playbook", [*(item for item in OTHER_PLAYBOOKS if item != "page"), "site"])  # page: see FEW
def test_first_task_of_each_playbook_rejects_unused_options(playbook: str) -> None:
    task = first_task(playbook)
    action = (CHECKOUT / "plugins" / "action" / f"{module_of(task)}.py").read_text()
    assert "reject_unused_options(task_vars)" in action and task["tags"] == "always"
    assert module_of(task) in {module_of(first_task(name)) for name in FEW}, "a row below runs the module"


@pytest.mark.parametrize(
    "playbook",
    [
        item if item == "launch" else pytest.param(item, marks=[pytest.mark.one_core, *marks])
        for item in OTHER_PLAYBOOKS
        for marks in ([] if item in FEW else [pytest.mark.thorough],)
    ],
)
def test_tags_and_variables_without_effect_are_refused(directory: Path, playbook: str) -> None:
    arguments = ["-e", "warmup_steps=3 mount_s3_mounts=b _own=1", "--tags", "nothing,all", "--skip-tags", "much"]
    printed = run_playbook(directory, f"muster.training.{playbook}", *arguments)
    assert "--tags nothing: this playbook has no tags; remove the option" in printed, printed
    assert "--skip-tags much: this playbook has no tags" in printed
    assert "warmup_steps is set (with -e), but nothing reads it; correct the name, or remove it" in printed
    assert "mount_s3_mounts is set (with -e), but only the role mount_s3, which this playbook" in printed
    assert "_own is set" not in printed


def test_misspelt_variable_gets_a_suggestion(directory: Path) -> None:
    printed = run_playbook(directory, "launch.yml", "-e", "nnodse=3", "--tags", "nothing", ANSIBLE_SKIP_TAGS="slow")
    assert "nnodse is set (with -e), but nothing reads it; did you mean nnodes?" in printed
    assert "--tags nothing: this playbook has no tags" in printed, "it is the collection's, by the project's own file"
    assert "--skip-tags" not in printed, "which stands in no option that was typed"


@pytest.mark.parametrize(
    "playbook",
    [
        *playbook_params(["launch", "provision"]),
        *(
            pytest.param(item, marks=[pytest.mark.one_core, pytest.mark.thorough])
            for item in READ
            if item not in ("launch", "provision")
        ),
    ],
)
def test_variables_the_playbook_reads_are_accepted(directory: Path, playbook: str) -> None:
    arguments = [word for pair in READ[playbook].split() for word in ("-e", pair.replace("~", " "))]
    printed = run_playbook(
        directory, f"muster.training.{playbook}", *arguments, "-e", "@settings.yml", "-e", "warmupsteps=1"
    )
    assert "warmupsteps is set (with -e), but nothing reads it" in printed, printed
    assert set(re.findall(r"(\w+) is set \(with -e\)", printed)) == {"warmupsteps"}, printed


@pytest.mark.parametrize(
    ("playbook", "extra_variables", "hints"),
    [
        ("launch", "script=a.py image=b", ["script", "launch_script", "image", "launch_image"]),
        pytest.param("stop", "run=first", ["run", "run_id"], marks=pytest.mark.thorough),
    ],
)
def test_near_miss_gets_the_intended_variable_as_suggestion(
    directory: Path, playbook: str, extra_variables: str, hints: list[str]
) -> None:
    printed = run_playbook(directory, f"muster.training.{playbook}", "-e", extra_variables)
    for name, intended in zip(hints[::2], hints[1::2], strict=True):
        assert f"{name} is set (with -e), but nothing reads it; did you mean {intended}?" in printed, printed


@pytest.mark.parametrize("playbook", ["launch", *playbook_params(["check", "preflight", "site"])])
def test_settings_in_a_file_without_job_are_refused(directory: Path, playbook: str) -> None:
    (directory / "jobs.yml").write_text("jobs:\n  nnodes: 1\n  script: a.py\n")
    (directory / "flat.yml").write_text("nnodes: 1\nscript: a.py\n")
    (directory / "read.yml").write_text("image: a\nlaunch_image: '{{ image }}:1'\nOF_INVENTORY: 1\n")
    files = [word for name in ("jobs", "flat", "read") for word in ("-e", f"@{name}.yml")]
    printed = run_playbook(directory, f"muster.training.{playbook}", *files)
    assert "jobs.yml has jobs, but nothing reads it; did you mean job? flat.yml has nnodes, script at the" in printed
    assert "Write `job:` and indent the lines below it Nothing was started or changed." in printed, printed


@pytest.mark.parametrize("playbook", ["mine.yml", pytest.param("tagged.yml", marks=pytest.mark.thorough)])
def test_tags_and_variables_of_users_own_playbooks_are_accepted(directory: Path, playbook: str) -> None:
    printed = run_playbook(directory, playbook, "-e", "own=1 warmup_steps=3", "--tags", "own")
    assert "this playbook has no tags" not in printed and "nothing reads it" not in printed


@pytest.mark.parametrize(
    ("playbook", "variable"), [("launch", "code_source"), ("stage_data", "stage_data_here"), ("stop", "")]
)
def test_missing_ansible_posix_is_reported_only_when_files_are_copied(
    directory: Path, playbook: str, variable: str
) -> None:
    """An empty package of the same name hides the installed ansible.posix."""
    hidden = directory / "collections" / "ansible_collections" / "ansible"
    hidden.mkdir()
    arguments = ["-e", f"{variable}=."] if variable else ["-e", "code_source=."]
    environment = {"PYTHONPATH": str(directory / "hide")}
    (directory / "hide").mkdir()
    (directory / "hide" / "sitecustomize.py").write_text(
        "import importlib.util as util\n"
        "real = util.find_spec\n"
        "util.find_spec = lambda name, *more: None if name.endswith('.ansible.posix') else real(name, *more)\n"
    )
    completed = typed(
        directory, ["ansible-playbook", f"muster.training.{playbook}", "-i", "machines.yml", *arguments], **environment
    )
    printed = " ".join(completed.stdout.split())
    expected = f"the collection ansible.posix is not installed, and {variable}"
    assert (expected in printed) == bool(variable), printed
