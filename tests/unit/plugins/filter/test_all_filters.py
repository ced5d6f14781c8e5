# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All filters together, as Ansible loads them in each process that uses a filter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins import filter as filters

pytestmark = pytest.mark.one_core
COLLECTION = "ansible_collections.muster.training.plugins"
LARGE = [f"{COLLECTION}.plugin_utils._checks", f"{COLLECTION}.plugin_utils._software.choose", "ansible.playbook"]
LOAD = """
import importlib, sys
sys.path[:0] = {path!r}
for name in {names!r}:
    importlib.import_module(name)
print([name for name in {large!r} if name in sys.modules])
"""


def test_loading_the_filters_imports_no_large_modules() -> None:
    names = [f"{COLLECTION}.filter.{path.stem}" for path in sorted(Path(filters.__path__[0]).glob("[a-z]*.py"))]
    assert len(names) > 5
    program = LOAD.format(path=sys.path, names=names, large=LARGE)
    completed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=240
    )
    assert (completed.stdout, completed.stderr) == ("[]\n", "")
