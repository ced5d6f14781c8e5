"""What make house measures."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import house

pytestmark = pytest.mark.one_core

CHECKOUT = Path(__file__).resolve().parents[2]


def test_a_circle_is_found_by_whatever_way() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set[str](), "e": {"a"}}
    assert house.circles(graph) == [["a", "b", "c"]]


def test_imports_of_packages_and_of_their_modules_are_followed(tmp_path: Path) -> None:
    folder = tmp_path / "plugins" / "module_utils"
    (folder / "_run").mkdir(parents=True)
    (folder / "_run" / "__init__.py").touch()
    (folder / "_run" / "plan.py").write_text(f"from {house.PACKAGE}plugins.module_utils import _job\n")
    (folder / "_job.py").write_text(f"import os\nfrom {house.PACKAGE}plugins.module_utils._run import plan\n")
    assert house.circles(house.imports(tmp_path)) == [["plugins.module_utils._job", "plugins.module_utils._run.plan"]]


def test_a_class_is_measured(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("class A:\n    def f(self):\n        self.x = self.y = 1\n        self.x = self.z\n")
    assert house.pieces(file, tmp_path) == ([house.Piece(4, "a.py: A", 2)], [house.Piece(3, "a.py: f")])


def test_a_program_in_a_role_is_seen_in_a_line_and_in_a_list() -> None:
    assert house.HIDDEN.search("argv: [python3, -c, \"{{ lookup('ansible.builtin.file', 'a.py') }}\"]")
    assert house.HIDDEN.search('argv:\n  - python3\n  - -c\n  - "{{ script }}"')
    assert not house.HIDDEN.search("argv: [python3, -c, import torch]")


def test_nothing_here_goes_in_circles_or_hides() -> None:
    assert house.circles(house.imports(CHECKOUT)) == []
    assert house.hidden_programs(CHECKOUT) == []
