# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tags, switches and variables without an effect on the roles of a play are reported."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.block import Block
from ansible.playbook.task import Task

from ansible_collections.muster.training.plugins.plugin_utils._command_line.extra_vars import typed_variables
from ansible_collections.muster.training.plugins.plugin_utils._command_line.unused_site_options import (
    PlayRole,
    describe_unknown_tags,
    describe_unread_variables,
    describe_unused_switches,
    describe_unused_tags,
    is_selected,
    names_in_strings,
    required_collections,
)


def role(name: str, tags: str = "", options: str = "", switch: str = "", path: Path = Path("/nowhere")) -> PlayRole:
    return PlayRole(name, path, frozenset([name, *tags.split()]), frozenset(options.split()), switch)


CODE = role("code", options="code_source code_repository", switch="{{ code_source or code_repository }}")
MPI = role("open_mpi", options="open_mpi_compiler", switch="False")
SHARE = role("cifs_share", "data", "cifs_share_mounts", "{{ cifs_share_mounts | length > 0 }}")
BUCKET = role("s3fs", "data", "s3fs_mounts", "{{ s3fs_mounts | length > 0 }}")
ROLES = [SHARE, BUCKET, MPI, CODE]


@pytest.mark.parametrize(
    ("only", "skip"),
    list(
        itertools.product(
            [["all"], ["data"], ["code"], ["code", "data"], ["tagged"], ["untagged"], ["never"], ["all", "x"]],
            [[], ["data"], ["all"], ["tagged"], ["untagged"], ["always"], ["code", "x"]],
        )
    ),
)
def test_tags_select_what_ansible_selects(only: list[str], skip: list[str]) -> None:
    for item in (CODE, SHARE):
        task = Task(block=Block(play=SimpleNamespace(_tags=[], tags=[])))
        task._loader = DataLoader()
        task._tags = sorted(item.tags)
        assert is_selected(item, only, skip) == task.evaluate_tags(only, skip, {}), (item.name, only, skip)


def test_unknown_tag_error_suggests_the_closest_tag_or_lists_all() -> None:
    assert describe_unknown_tags("--tags", ["opn_mpi", "data", "all", "never"], ROLES) == [
        "--tags opn_mpi: no role has this tag; did you mean open_mpi?"
    ]
    assert describe_unknown_tags("--skip-tags", ["xyz"], ROLES) == [
        "--skip-tags xyz: no role has this tag; Tags: cifs_share, code, data, open_mpi, s3fs"
    ]


@pytest.mark.parametrize(
    ("only", "skip", "on", "messages"),
    [
        (["all"], [], [], []),  # nothing was chosen
        (["data"], [], ["s3fs"], []),
        (["code"], [], ["code"], []),
        (
            ["open_mpi"],
            [],
            ["code"],
            [
                "--tags open_mpi selects nothing: the role open_mpi is disabled on all nodes (to enable it, add -e "
                "open_mpi_enabled=true)"
            ],
        ),
        (
            ["data", "code"],
            [],
            ["code"],
            [
                "--tags data selects nothing: "
                "the role cifs_share is disabled on all nodes (to enable it, set cifs_share_mounts); "
                "the role s3fs is disabled on all nodes (to enable it, set s3fs_mounts)"
            ],
        ),
        (
            ["code"],
            [],
            [],
            [
                "--tags code selects nothing: the role code is disabled on all nodes (to enable it, set one of "
                "code_source, code_repository)"
            ],
        ),
        (
            ["code"],
            ["code"],
            ["code"],
            ["--tags code selects nothing, because --skip-tags code excludes it; remove one of them"],
        ),
        (
            ["untagged"],
            [],
            ["code"],
            ["--tags untagged: no roles are left to run; choose roles with --tags, or remove these options"],
        ),
    ],
)
def test_tag_that_selects_nothing_is_reported(
    only: list[str], skip: list[str], on: list[str], messages: list[str]
) -> None:
    assert describe_unused_tags(only, skip, ROLES, lambda item: item.name in on) == messages


def test_tag_of_a_disabled_role_has_no_effect_even_if_another_role_has_it() -> None:
    roles = [role("pytorch", "open_mpi"), MPI]
    assert describe_unused_tags(["open_mpi"], [], roles, lambda item: item.name == "pytorch")
    assert not describe_unused_tags(["open_mpi"], [], roles, lambda item: item.name == "open_mpi")


def test_switch_for_a_role_excluded_by_tags_is_reported() -> None:
    assert describe_unused_switches(["open_mpi_enabled"], ["all"], [], ROLES) == []
    assert describe_unused_switches(["open_mpi_enabled"], ["open_mpi"], [], ROLES) == []
    prefix = "open_mpi_enabled is set (with -e), but "
    assert describe_unused_switches(["open_mpi_enabled"], ["code"], [], ROLES) == [
        prefix + "the tags exclude the role open_mpi; add open_mpi to --tags, or remove the variable"
    ]
    assert describe_unused_switches(["open_mpi_enabled"], ["all"], ["code", "open_mpi"], ROLES) == [
        prefix + "--skip-tags code,open_mpi excludes the role open_mpi; remove the variable or --skip-tags"
    ]


@pytest.mark.parametrize(
    ("typed", "messages"),
    [
        ("code_source open_mpi_enabled ansible_user", []),
        ("region", []),  # an option of the inventory
        ("other_port", []),  # code reads what belongs to a different role
        ("open_mpi_compiler open_mpi_enabled", []),  # regardless of the switch
        (
            "open_mpi_compiler",
            [
                "open_mpi_compiler is set (with -e), but the role open_mpi is disabled on all nodes (to enable it, add "
                "-e open_mpi_enabled=true)"
            ],
        ),
        (
            "checkpoints_bucket",
            [
                "checkpoints_bucket is set (with -e), but only the role checkpoints, "
                "which this playbook does not run, reads it; remove it"
            ],
        ),
        ("nnodes", ["nnodes is set (with -e), but nothing reads it; correct the name, or remove it"]),
    ],
)
def test_a_variable_that_nothing_reads_is_named(typed: str, messages: list[str]) -> None:
    roles = [CODE._replace(others=frozenset({"other_port"})), MPI]
    role_by_variable = {"checkpoints_bucket": "checkpoints"}
    assert (
        describe_unread_variables(
            typed.split(), roles, lambda item: item.name == "code", role_by_variable, lambda: {"region"}
        )
        == messages
    )


def test_names_in_nested_values_are_detected() -> None:
    assert names_in_strings({"a": ["{{ region }}-x", {"b": ("my_zone", 3)}]}) == {"region", "x", "my_zone"}


def test_needed_collections_are_read_from_the_tasks_of_roles(tmp_path: Path) -> None:
    (tmp_path / "code" / "tasks").mkdir(parents=True)
    (tmp_path / "code" / "tasks" / "main.yml").write_text(
        "- name: A\n  ansible.builtin.command: x\n- name: B\n  block:\n    - name: C\n      ansible.posix.sysctl:\n"
        "        name: a\n    - muster.training.node_facts:\n"
    )
    assert required_collections([CODE._replace(path=tmp_path / "code")]) == {"ansible.posix": ["code"]}


def test_variables_from_files_are_not_treated_as_command_line_variables() -> None:
    arguments = ("@job.yml", "a=1 b='x y'", '{"c": [1, !unsafe "{x}"], "d": !vault "$ANSIBLE", "e": !own {"f": 2}}')
    assert typed_variables(arguments) == {"a": "1", "b": "x y", "c": [1, "{x}"], "d": "$ANSIBLE", "e": {"f": 2}}
