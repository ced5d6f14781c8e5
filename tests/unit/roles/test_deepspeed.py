# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The environment in which DeepSpeed is built."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROLE = Path(__file__).resolve().parents[3] / "roles" / "deepspeed"


@pytest.mark.parametrize(
    ("variables", "environment"),
    [
        ({"deepspeed_max_jobs": 4}, {}),
        ({"deepspeed_build": {"DS_BUILD_CPU_ADAM": True}}, {"DS_BUILD_CPU_ADAM": "1"}),
        (
            {"deepspeed_build": {"DS_BUILD_CPU_ADAM": 1}, "deepspeed_max_jobs": "4"},
            {"DS_BUILD_CPU_ADAM": "1", "MAX_JOBS": "4"},
        ),
        (
            {
                "deepspeed_build": {"DS_BUILD_OPS": 0},
                "deepspeed_max_jobs": 4,
                "deepspeed_build_environment": {"MAX_JOBS": "1", "CUDA_HOME": "/usr/local/cuda"},
            },
            {"DS_BUILD_OPS": "0", "MAX_JOBS": "1", "CUDA_HOME": "/usr/local/cuda"},
        ),
    ],
    ids=["no build", "as many jobs as processors", "jobs", "the user's own variables win"],
)
def test_build_environment_is_created_from_role_variables(
    variables: dict[str, object], environment: dict[str, str], tmp_path: Path
) -> None:
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars_files": [str(ROLE / "defaults/main.yml"), str(ROLE / "vars/main.yml")],
        "tasks": [
            {
                "ansible.builtin.copy": {
                    "content": "{{ __deepspeed_layer.environment | to_json }}",
                    "dest": str(tmp_path / "environment.json"),
                }
            }
        ],
    }
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    completed = subprocess.run(
        [Path(sys.executable).with_name("ansible-playbook"), "play.yml", "-e", json.dumps(variables)],
        cwd=tmp_path,
        env={**os.environ, "ANSIBLE_PYTHON_INTERPRETER": sys.executable},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert json.loads((tmp_path / "environment.json").read_text()) == environment


@pytest.mark.parametrize(
    ("build", "gpus", "compiles"),
    [
        ({}, 0, True),
        ({}, 2, False),
        ({"DS_BUILD_SHM_COMM": 1}, 0, False),
        ({"DS_BUILD_OPS": True}, 0, False),
        ({"DS_BUILD_CPU_ADAM": 1}, 0, True),
    ],
)
def test_compilers_are_installed_where_jobs_compile_an_op(build: dict[str, object], gpus: int, compiles: bool) -> None:
    text = yaml.safe_load((ROLE / "vars" / "main.yml").read_text())
    variables = {name: trust_as_template(value) if isinstance(value, str) else value for name, value in text.items()}
    variables |= {"deepspeed_build": build, "__python_env_facts": {"facts": {"gpus": {"pci": gpus}}}}
    expression = trust_as_template("{{ __deepspeed_compiles_in_jobs | bool }}")
    assert Templar(DataLoader(), variables=variables).template(expression) is compiles
