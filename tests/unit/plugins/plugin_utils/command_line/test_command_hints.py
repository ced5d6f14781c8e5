# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands in messages match the user's way of running muster."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ansible import constants

from ansible_collections.muster.training.plugins.plugin_utils._command_line.command_hints import adapt_commands
from ansible_collections.muster.training.plugins.plugin_utils._report.report import adapt_report

CHECKOUT = Path(__file__).resolve().parents[5]
STOP = "stop it (ansible-playbook stop.yml -e run_id=first), or wait"


@pytest.mark.parametrize(
    ("playbook", "inventory", "typed"),
    [
        ("playbooks/launch.yml", ["machines.yml"], "ansible-playbook playbooks/stop.yml -i machines.yml"),
        ("playbooks/launch.yml", ["my machines", "b,"], "ansible-playbook playbooks/stop.yml -i 'my machines' -i b,"),
        ("playbooks/launch.yml", ["/etc/machines"], "ansible-playbook playbooks/stop.yml -i /etc/machines"),
        ("playbooks/launch.yml", constants.DEFAULT_HOST_LIST, "ansible-playbook playbooks/stop.yml"),
        ("muster.training.launch", ["machines.yml"], "ansible-playbook muster.training.stop -i machines.yml"),
        ("mine/train.yml", ["machines.yml"], "ansible-playbook muster.training.stop -i machines.yml"),
        ("launch.yml", constants.DEFAULT_HOST_LIST, "ansible-playbook stop.yml"),
    ],
)
def test_suggested_command_keeps_playbook_directory_and_inventory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, playbook: str, inventory: list[str], typed: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "playbooks").mkdir()
    for name in ("playbooks/stop.yml", "stop.yml"):
        (tmp_path / name).touch()
    absolute = [item if item.startswith("/") or "," in item else str(tmp_path / item) for item in inventory]
    called = {"args": (playbook,), "inventory": absolute}
    assert adapt_commands(STOP, called) == f"stop it ({typed} -e run_id=first), or wait"


def test_text_stays_unchanged_without_a_command_or_known_playbook(tmp_path: Path) -> None:
    called = {"args": ("launch.yml",), "inventory": ("machines.yml",)}
    assert (
        adapt_commands("see stop.yml, or ansible-playbook of yours", called)
        == "see stop.yml, or ansible-playbook of yours"
    )
    assert adapt_commands(STOP, {}) == STOP


@pytest.mark.parametrize(
    ("typed", "more"),
    [
        ((), ""),
        (("nnodes=2",), ""),
        (("@job.yml", "nnodes=2"), " -e @job.yml"),
        (("code_source=~/project launch_script=train.py",), " -e code_source='~/project'"),
        (('{"code_source": "/me/my project"}',), " -e code_source='/me/my project'"),
        (("@job.yml", "python_env_name=all nnodes=2"), " -e @job.yml -e python_env_name=all"),
        (('{"python_env_directory": "/my env"}',), " -e python_env_directory='/my env'"),
    ],
)
def test_suggested_command_repeats_the_options_that_copy_code(
    typed: tuple[str, ...], more: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    called = {"args": ("muster.training.launch",), "inventory": constants.DEFAULT_HOST_LIST, "extra_vars": typed}
    assert adapt_commands("ansible-playbook site.yml --tags code", called) == (
        f"ansible-playbook muster.training.site{more} --tags code"
    )
    assert adapt_commands(STOP, called) == STOP.replace("stop.yml", "muster.training.stop")
    command = "ansible-playbook site.yml -e code_source=DIRECTORY"
    assert adapt_commands(command, called) == command.replace("site.yml", "muster.training.site")


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        (STOP, "stop it (./muster stop first), or wait"),
        ("ansible-playbook logs.yml -e run_id=first -e rank=0.", "./muster logs first --rank 0."),
        ("ansible-playbook logs.yml -e fetch=true and more", "./muster logs --fetch and more"),
        ("ansible-playbook status.yml", "./muster status"),
        (
            """fit.yml -e '{"launch_script": "train.py", "fit_args": ["--batch_size", "{batch_size}"]}'""",
            "./muster fit train.py --batch_size {batch_size}",
        ),
        ("(status.yml shows what is running)", "(./muster status shows what is running)"),
        ("ansible-playbook site.yml --tags code", "./muster site toy/job.yml --tags code"),
        (
            "ansible-playbook site.yml --tags x -e y_enabled=true",
            "./muster site toy/job.yml --tags x -e y_enabled=true",
        ),
        ("remove it: teardown.yml -e cluster=bert", "remove it: ./muster teardown bert"),
        ("ansible-playbook runs.yml -e keep=5 removes", "./muster runs --keep 5 removes"),
        ("ansible-playbook stage_data.yml, or", "./muster stage-data, or"),
        (
            """ansible-playbook launch.yml -e '{"nnodes": 2, "nproc_per_node": 1, "launch_launcher": "env", """
            """"launch_no_python": true, "launch_script": "train.py", "launch_args": ["--lr", "1e-3", "a b"]}'""",
            "./muster launch -n 2 --nproc-per-node 1 --launcher env -e launch_no_python=True train.py --lr 1e-3 'a b'",
        ),
        (
            """ansible-playbook launch.yml -e @/srv/my/job.yml -e '{"nnodes": 2, "launch_script": "a.py"}'""",
            "./muster launch /srv/my/job.yml -n 2 a.py",
        ),
        ("ansible-playbook site.yml -e '@/srv/my job.yml' --check", "./muster site '/srv/my job.yml' --check"),
        ("ansible-playbook status.yml -e @/srv/secrets.json.", "./muster status -e @/srv/secrets.json."),
        ("name them: ansible-playbook diff.yml -e run_id=A -e other_run=B.", "name them: ./muster diff A B."),
        ("ansible-playbook diff.yml -e run_id=A -e other_run=B -e lines=true", "./muster diff A B --lines"),
        (
            "ansible-playbook launch.yml -e like=A -e allow_differences=true",
            "./muster launch --like A --allow-differences",
        ),
        ("ansible-playbook launch.yml -e debug_rank=3", "./muster launch --debug-rank 3"),
        ("/home/me/launch.yml: no such file, and @fit.yml", "/home/me/launch.yml: no such file, and @fit.yml"),
        ("No such file or directory: 'sweep.yml'", "No such file or directory: 'sweep.yml'"),
        ("ansible-playbook launch.yml -e '{x}'", "ansible-playbook launch.yml -e '{x}'"),
        (
            """ansible-playbook launch.yml -e '{"launch_module": "pkg.train", "launch_args": ["--epochs", "3"]}'""",
            """./muster launch -e launch_module=pkg.train -e '{"launch_args": ["--epochs", "3"]}'""",
        ),
    ],
)
def test_users_of_muster_are_shown_its_commands(
    text: str, typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_COMMAND", "./muster")
    monkeypatch.setenv("MUSTER_DIRECTORY", str(tmp_path))
    called = {"args": ("launch.yml",), "extra_vars": (f"@{tmp_path}/toy/job.yml", "nnodes=2")}
    assert adapt_commands(text, called) == typed


def test_users_of_muster_change_the_environment_that_they_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_COMMAND", "./muster")
    called = {"args": ("launch.yml",), "extra_vars": ("@nano/job.yml", "python_env_name=all")}
    assert adapt_commands("ansible-playbook site.yml --tags pytorch -e pytorch_cuda=auto", called) == (
        "./muster site nano/job.yml -e python_env_name=all --tags pytorch -e pytorch_cuda=auto"
    )
    assert adapt_commands(STOP, called) == "stop it (./muster stop first), or wait"


def test_no_message_tells_users_to_run_a_role() -> None:
    """Users run `ansible-playbook site.yml --tags ROLE`, which becomes `./muster site --tags ROLE`."""
    instruction = re.compile(r"\brun (?:the |this )?roles? [a-z]", re.IGNORECASE)
    files = [
        *CHECKOUT.glob("plugins/**/*.py"),
        *(
            file
            for folder in ("tasks", "handlers", "vars", "defaults")
            for file in CHECKOUT.glob(f"roles/*/{folder}/*.yml")
        ),
        *CHECKOUT.glob("playbooks/**/*.yml"),
        *CHECKOUT.glob("roles/*/files/*.py"),
    ]
    assert [
        (str(file), line) for file in files for line in file.read_text().splitlines() if instruction.search(line)
    ] == []


def test_report_uses_the_commands_that_its_reader_types(monkeypatch: pytest.MonkeyPatch) -> None:
    report: Any = {
        "repeat": """ansible-playbook launch.yml -e '{"nnodes": 2, "launch_script": "train.py", "launch_args": []}'""",
        "repeat_exactly": "ansible-playbook launch.yml -e like=first",
        "notes": ["fetch them with ansible-playbook logs.yml -e run_id=first -e fetch=true and rerun the report"],
        "findings": [{"remedy": "ansible-playbook site.yml --tags nvidia_driver"}],
        "failure": {"cause": {"remedy": "ansible-playbook logs.yml -e rank=0"}},
    }
    monkeypatch.setenv("MUSTER_COMMAND", "./muster")
    report = adapt_report(report, adapt_commands)
    assert report["repeat"] == "./muster launch -n 2 train.py"
    assert report["repeat_exactly"] == "./muster launch --like first"
    assert report["notes"] == ["fetch them with ./muster logs first --fetch and rerun the report"]
    assert report["failure"]["cause"]["remedy"] == "./muster logs --rank 0"
    assert report["findings"] == [{"remedy": "./muster site --tags nvidia_driver"}]
