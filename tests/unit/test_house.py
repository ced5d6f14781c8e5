"""What `make house` measures."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import house

pytestmark = pytest.mark.one_core

CHECKOUT = Path(__file__).resolve().parents[2]


def test_import_cycle_is_found_once() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set[str](), "e": {"a"}}
    assert house.circles(graph) == [["a", "b", "c"]]


def test_imports_of_packages_and_modules_are_followed(tmp_path: Path) -> None:
    folder = tmp_path / "plugins" / "module_utils"
    (folder / "_run").mkdir(parents=True)
    (folder / "_run" / "__init__.py").touch()
    (folder / "_run" / "plan.py").write_text(f"from {house.PACKAGE}plugins.module_utils import _job\n")
    (folder / "_job.py").write_text(f"import os\nfrom {house.PACKAGE}plugins.module_utils._run import plan\n")
    assert house.circles(house.imports(tmp_path)) == [["plugins.module_utils._job", "plugins.module_utils._run.plan"]]


def test_class_is_measured_in_lines_and_attributes(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("class A:\n    def f(self):\n        self.x = self.y = 1\n        self.x = self.z\n")
    assert house.pieces(file, tmp_path) == ([house.Piece(4, "a.py: A", 2)], [house.Piece(3, "a.py: f")])


def test_program_hidden_in_role_argv_is_found() -> None:
    assert house.HIDDEN.search("argv: [python3, -c, \"{{ lookup('ansible.builtin.file', 'a.py') }}\"]")
    assert house.HIDDEN.search('argv:\n  - python3\n  - -c\n  - "{{ script }}"')
    assert not house.HIDDEN.search("argv: [python3, -c, import torch]")


def test_checkout_has_no_import_cycles_or_hidden_programs() -> None:
    assert house.circles(house.imports(CHECKOUT)) == []
    assert house.hidden_programs(CHECKOUT) == []
