# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The user in a node's certificate comes from the inventory; a node cannot request root on its own."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

VARIABLES = Path(__file__).resolve().parents[3] / "roles" / "ssh_mesh" / "vars" / "main.yml"


@pytest.mark.parametrize(
    ("inventory", "node_user", "user", "error"),
    [
        ({"ansible_user": "ubuntu"}, "ubuntu", "ubuntu", ""),
        ({"ansible_user": "ubuntu"}, "root", "ubuntu", "but the inventory says ubuntu"),
        ({"ansible_user": "root"}, "root", "root", ""),
        ({"ansible_ssh_user": "root"}, "root", "root", ""),
        ({"ssh_mesh_user": "root"}, "root", "root", ""),
        ({}, "ann", "ann", ""),
        ({}, "root", "root", "the inventory names no user"),
        ({"ansible_connection": "local", "ansible_user": "ubuntu"}, "root", "root", ""),
        ({"ansible_connection": "ansible.builtin.local", "ansible_user": "ubuntu"}, "root", "root", ""),
    ],
)  # fmt: skip
def test_node_alone_never_decides_that_its_certificate_is_valid_for_root(
    inventory: dict[str, str], node_user: str, user: str, error: str
) -> None:
    texts = yaml.safe_load(VARIABLES.read_text())
    variables = {name: trust_as_template(text) if isinstance(text, str) else text for name, text in texts.items()}
    state = {"user": node_user, "errors": [], "has_key": False, "unusable": ""}
    variables |= {"ssh_mesh_user": "", **inventory, "muster_node_state": {"ssh_mesh": state}}
    templar = Templar(DataLoader(), variables=variables)
    assert templar.template(trust_as_template("{{ __ssh_mesh_login_user }}")) == user
    errors = templar.template(trust_as_template("{{ __ssh_mesh_errors }}"))
    assert len(errors) == bool(error) and error in "".join(errors), errors
