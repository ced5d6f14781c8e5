"""The source tree of the documentation site, without Sphinx: links, the reference, names of Ansible's manual."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

import pytest

from tests.make_site import CHECKOUT, as_reference, in_the_tree, inventory_of_ansible, make_tree, markdown_pages

pytestmark = pytest.mark.one_core
NOTE = """\
.. Collection note

.. note::
    This filter is part of the `muster.training collection <https://galaxy.ansible.com/x>`_ (version 0.1.0).

    To use it in a playbook, specify: :code:`muster.training.software_choice`.

.. contents::
   :local:
   :depth: 1

Synopsis
"""


@pytest.mark.parametrize(
    ("page", "target", "expected"),
    [
        ("docs/data.md", "benchmarks.md", "benchmarks.md"),
        ("docs/data.md", "#staging", "#staging"),
        ("docs/architecture.md", "../README.md", "../index.md"),
        ("docs/software.md", "../roles/pytorch/README.md", "../roles/pytorch/README.md"),
        ("roles/code/README.md", "defaults/main.yml", "../../reference/code_role.rst"),
        (
            "roles/code/README.md",
            "../../docs/running.md#the-code-that-runs",
            "../../docs/running.md#the-code-that-runs",
        ),
        ("README.md", "https://example.org/README.md", "https://example.org/README.md"),
    ],
)
def test_links_are_rewritten_for_the_site(page: str, target: str, expected: str) -> None:
    assert in_the_tree(page, target) == expected


def test_reference_omits_galaxy_and_contents() -> None:
    """The collection is not on Galaxy, and the theme shows the contents itself."""
    text = as_reference(NOTE)
    assert "galaxy" not in text and ".. contents::" not in text
    assert "In playbooks and templates: :code:`muster.training.software_choice`\n\nSynopsis\n" in text


def test_inventory_of_ansible_names_is_in_sphinx_format() -> None:
    data = inventory_of_ansible()
    head, packed = data.split(b"zlib.\n")
    assert head.startswith(b"# Sphinx inventory version 2\n") and head.count(b"\n") == 3
    for row in zlib.decompress(packed).decode().splitlines():
        assert re.fullmatch(r"\S+ std:(label|envvar) -1 \S+\.html\S* .+", row), row


def test_tree_has_all_pages_pictures_and_reference_lists(tmp_path: Path) -> None:
    (tmp_path / "reference").mkdir()
    for name in ("launch_role", "node_facts_module", "ranks_inventory", "index"):
        (tmp_path / "reference" / f"{name}.rst").write_text(NOTE)
    tree = tmp_path / "tree"
    make_tree(tmp_path / "reference", tree)
    for page in markdown_pages():
        assert (tree / ("index.md" if page == "README.md" else page)).is_file()
    pictures = re.findall(r"!\[[^\]]*\]\((\S+)\)", (CHECKOUT / "README.md").read_text(encoding="utf-8"))
    assert pictures and all((tree / picture).is_file() for picture in pictures)
    roles = (tree / "reference" / "roles.md").read_text()
    assert "launch <../roles/launch/README>\nlaunch: variables <launch_role>" in roles
    assert "node_facts: module <node_facts_module>" in (tree / "reference" / "modules.md").read_text()
