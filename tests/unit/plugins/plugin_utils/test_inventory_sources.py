# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Unreadable inventory sources are detected, with Ansible's inventory manager and without the project's settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible.errors import AnsibleActionFail
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager

from ansible_collections.muster.training.plugins.plugin_utils._inventory_sources import reject_unread_sources


@pytest.fixture(autouse=True)
def settings_of_ansible(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the settings of a user without the project's ansible.cfg."""
    monkeypatch.setattr("ansible.constants.INVENTORY_ANY_UNPARSED_IS_FAILED", False)


def refuse(*sources: str) -> None:
    loader = DataLoader()
    inventory = InventoryManager(loader=loader, sources=list(sources))
    reject_unread_sources(HostVars(inventory, VariableManager(loader, inventory), loader))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "good.yml").write_text("training: {hosts: {a: {}}}\n")
    (tmp_path / "bad.yml").write_text("training: [\n")
    mixed = tmp_path / "mixed"
    (mixed / "group_vars").mkdir(parents=True)
    (mixed / "group_vars" / "training.yml").write_text("x: 1\n")
    (mixed / "notes.ini.bak").write_text("not an [ inventory")
    (mixed / "good.yml").write_text("training: {hosts: {b: {}}}\n")
    return tmp_path


def test_readable_sources_pass(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(directory)
    refuse(str(directory / "good.yml"), "mixed", "c,d", "./mixed/../good.yml")
    refuse("/etc/ansible/hosts")
    refuse()


@pytest.mark.parametrize("name", ["bad.yml", "none.yml", "mixed/bad.yml"])
def test_unreadable_source_is_named(directory: Path, name: str) -> None:
    (directory / "mixed" / "bad.yml").write_text("training: [\n")
    source = name.partition("/")[0]
    with pytest.raises(AnsibleActionFail, match=f"the inventory is incomplete: {directory / name} could not be read"):
        refuse(str(directory / "good.yml"), str(directory / source))
