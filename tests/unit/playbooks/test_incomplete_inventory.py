# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Playbooks refuse an incomplete inventory, even without the ansible.cfg of a project."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.typed import give_collection, typed


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Create an empty home directory, the collection, and a valid, a failing and an empty inventory."""
    give_collection(tmp_path)
    (tmp_path / "good.yml").write_text(
        "training: {hosts: {a: {node_address: 127.0.4.1}}, vars: {ansible_connection: local}}\n"
    )
    (tmp_path / "other.yml").write_text("others: {hosts: {b: {}}}\n")
    (tmp_path / "paperspace.yml").write_text("plugin: muster.training.paperspace\n")
    return tmp_path


EMPTY = "the group 'training' has no hosts. Add your machines to it."
UNREAD = "the inventory is incomplete: {}/paperspace.yml could not be read"
LAUNCH = [
    ([], EMPTY),
    (["other.yml"], EMPTY),
    (["paperspace.yml"], UNREAD),
    (["good.yml", "paperspace.yml"], UNREAD),
    (["good.yml", "gone.yml"], "the inventory is incomplete: {}/gone.yml could not be read"),
    (["good.yml"], "nnodes is 2, but the group has 1 host: a; expected"),
]
ELSEWHERE = ("site", "docker", "ping", "status", "logs", "stop")
FEW = ("preflight", "site", "status")  # the other playbooks refuse it with the same plugin
OTHER_CASES = [(["other.yml"], EMPTY), (["good.yml", "paperspace.yml"], UNREAD)]


@pytest.mark.parametrize(
    ("playbook", "sources", "text"),
    [
        *(("launch", *case) for case in LAUNCH),
        *(
            pytest.param(playbook, *case, marks=[pytest.mark.one_core, *marks])
            for playbook, cases in (("preflight", LAUNCH), *((name, OTHER_CASES) for name in ELSEWHERE))
            for case in cases
            # the rows of `launch` contain the other inventories, which the same plugin reads
            for marks in (
                [] if case[0] == ["good.yml", "paperspace.yml"] and playbook in FEW else [pytest.mark.thorough],
            )
        ),
    ],
)
def test_playbooks_refuse_an_incomplete_inventory(
    directory: Path, playbook: str, sources: list[str], text: str
) -> None:
    inventory_options = [part for source in sources for part in ("-i", source)]
    expected = ["-e", "nnodes=2"] if playbook in ("launch", "preflight") else []
    completed = typed(directory, ["ansible-playbook", f"muster.training.{playbook}", *expected, *inventory_options])
    output = completed.stdout
    assert completed.returncode == 2, output
    assert text.format(directory) in output
    assert playbook == "ping" or "ok: [a]" not in output  # ping lists the machines that were read
    if "paperspace.yml" in sources:
        assert "muster.training.paperspace: no API key" in output
