# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""site.yml: each role with its tag, its switch, its group, and its variables looked at before anything is changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

CHECKOUT = Path(__file__).resolve().parents[3]
PLAY: dict[str, Any] = yaml.safe_load((CHECKOUT / "playbooks" / "site.yml").read_text())[1]
ENTRIES = [(entry["role"].removeprefix("muster.training."), entry["tags"]) for entry in PLAY["roles"]]
ROLES = list(dict.fromkeys(role for role, _tags in ENTRIES))  # one may come twice, with a part of its work each time


def test_the_variables_of_all_roles_are_looked_at_whatever_tags_are_given() -> None:
    looked_at = PLAY["pre_tasks"][0]
    assert looked_at["loop"] == ROLES
    assert looked_at["tags"] == "always"


@pytest.mark.parametrize("role", ROLES)
def test_a_role_has_its_tag_its_switch_and_its_group(role: str) -> None:
    assert all(role in ([tags] if isinstance(tags, str) else tags) for one, tags in ENTRIES if one == role)
    defaults = yaml.safe_load((CHECKOUT / "roles" / role / "defaults" / "main.yml").read_text())
    assert f"{role}_enabled" in defaults
    group = f"{role}_group"
    assert (group in defaults) == (group in PLAY["vars"]), "all roles see the same group"
