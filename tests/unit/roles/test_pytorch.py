# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values that the role pytorch derives from the facts of nodes."""

from __future__ import annotations

from pathlib import Path

import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROLE = Path(__file__).resolve().parents[3] / "roles" / "pytorch"


def test_environment_of_another_project_is_not_that_of_the_image() -> None:
    """Otherwise, users would be advised not to install an environment for this project."""
    name = "__pytorch_image_environments"
    template = trust_as_template(yaml.safe_load((ROLE / "vars" / "main.yml").read_text())[name])
    project = {"interpreter": "/opt/muster/envs/toy/env/bin/python", "torch": "2.13.0", "cuda": None, "project": "toy"}
    image = {"interpreter": "/opt/pytorch/bin/python", "torch": "2.7.0", "cuda": "12.8", "project": ""}
    for environments, expected in ([[project], []], [[project, image], [image]], [[], []]):
        facts = {"facts": {"environments": environments}}
        assert Templar(DataLoader(), variables={"__python_env_facts": facts}).template(template) == expected
    assert f"{name} | length > 0" in (ROLE / "tasks" / "choose.yml").read_text()
