# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`molecule test -s ROLE` runs tests of every role, and `make molecule` runs each test once."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.one_core
CHECKOUT = Path(__file__).resolve().parents[2]
MOLECULE = CHECKOUT / "extensions" / "molecule"
ROLES = sorted(path.name for path in (CHECKOUT / "roles").iterdir() if path.is_dir())


def scenario(name: str) -> dict[str, Any]:
    """Return the settings of a scenario."""
    text = (MOLECULE / name / "molecule.yml").read_text(encoding="utf-8")
    return yaml.safe_load(text) or {}


def array(name: str) -> set[str]:
    """Return the names in an array of tests/molecule."""
    script = (CHECKOUT / "tests" / "molecule").read_text(encoding="utf-8")
    match = re.search(rf"^{name}=\((.*?)\)", script, re.M | re.S)
    assert match
    return set(match[1].split())


@pytest.mark.parametrize("role", ROLES)
def test_each_role_has_a_scenario_with_tests(role: str) -> None:
    verifier = scenario(role).get("verifier", {})
    directory = MOLECULE / role / verifier.get("directory", "tests")
    files = [directory / name for name in verifier.get("additional_files_or_dirs", [])]
    assert all(file.is_file() for file in files)
    assert files or list(directory.glob("test_*.py"))
    playbook = scenario(role).get("ansible", {}).get("playbooks", {}).get("converge")
    assert playbook is None or (MOLECULE / role / playbook).is_file()


def test_aliases_are_the_scenarios_without_tests() -> None:
    names = {path.parent.name for path in MOLECULE.glob("*/molecule.yml")}
    assert array("aliases") == {name for name in names if not (MOLECULE / name / "tests").is_dir()}
    assert array("aliases") <= set(ROLES)


@pytest.mark.parametrize("rows", ["", "all"])
def test_make_molecule_runs_no_alias(rows: str) -> None:
    command = [str(CHECKOUT / "tests" / "molecule"), "--list"]
    listed = subprocess.run(command, env={**os.environ, "ROWS": rows}, check=True, capture_output=True, text=True)
    assert set(listed.stdout.split()) & array("aliases") == set()


def test_molecule_reads_the_shared_settings_by_default() -> None:
    assert (CHECKOUT / ".config" / "molecule" / "config.yml").resolve() == MOLECULE / "config.yml"


@pytest.mark.parametrize("role", ROLES)
def test_readme_names_the_tests_of_each_role(role: str) -> None:
    table = re.findall(r"^\| (`.*?) \|", (MOLECULE / "README.md").read_text(encoding="utf-8"), re.M)
    assert sum(f"`{role}`" in cell for cell in table) == 1
