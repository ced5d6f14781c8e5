# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of a job that are not below `job:` are refused; variables of other playbooks are not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from ansible import context

from ansible_collections.muster.training.plugins.plugin_utils._command_line.declared_variables import (
    PLAYBOOKS,
    read_variables,
)
from ansible_collections.muster.training.plugins.plugin_utils._command_line.misplaced_job_keys import (
    find_misplaced_job_keys,
    read_variable_files,
)
from ansible_collections.muster.training.plugins.plugin_utils._command_line.unused_options import (
    describe_misplaced_job_keys,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.job_file import read_job_keys

CHECKOUT = Path(__file__).resolve().parents[5]
KEYS = read_job_keys(CHECKOUT / "roles")
READ = read_variables([Path("launch.yml")])
SETTINGS = {"nnodes": 1, "script": "a.py"}


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        *(
            ({name: SETTINGS}, f"a.yml has {name}, but nothing reads it; did you mean job?")
            for name in ("jobs", "Job", "jbo", "my_job")
        ),
        ({"jobs": [SETTINGS]}, "a.yml has jobs, but nothing reads it; did you mean job?"),
        ({"jobs": None, **SETTINGS}, "a.yml has jobs, but nothing reads it; did you mean job?"),
        (
            {"code_source": ".", **SETTINGS},
            "a.yml has nnodes, script at the top level, but a job consists of what is below `job:`. Write `job:` and "
            "indent the lines below it",
        ),
        (
            {"job": {"nnodes": 1}, "nnodes": 2, "script": "a.py"},
            "a.yml has script at the top level, but a job consists of what is below `job:`. Indent it below `job:`",
        ),
        (
            {"job": None, **SETTINGS},
            "a.yml has nnodes, script at the top level, but a job consists of what is below `job:`. Indent it below "
            "`job:`",
        ),
    ],
)
def test_settings_outside_of_a_job_are_refused(variables: dict[str, Any], message: str) -> None:
    assert find_misplaced_job_keys({"a.yml": variables}, KEYS, READ, "job" in variables) == [message]


@pytest.mark.parametrize(
    "variables",
    [
        {"job": SETTINGS},
        {"job": SETTINGS, "job_of_yesterday": SETTINGS},
        {"nnodes": 2, "code_source": ".", "launch_script": "a.py", "seed": 1},
        {"jobs": 4, "job_count": "3"},  # of another tool
        {"sweep_variants": [{"name": "a", **SETTINGS}], "stages": SETTINGS},
        {},
    ],
)
def test_variables_and_jobs_are_accepted(variables: dict[str, Any]) -> None:
    assert find_misplaced_job_keys({"a.yml": variables}, KEYS, READ, "job" in variables) == []


def test_variables_that_templates_read_are_accepted() -> None:
    files = {"a.yml": {"script": "a.py", "jobs": SETTINGS}}
    assert find_misplaced_job_keys(files, KEYS, {*READ, "script", "jobs"}, False) == []


def test_misspelled_job_is_refused_only_if_there_is_no_other_job() -> None:
    assert find_misplaced_job_keys({"a.yml": {"jobs": SETTINGS}, "b.yml": {"job": SETTINGS}}, KEYS, READ, True) == []


def test_every_playbook_accepts_its_own_variables() -> None:
    for playbook in PLAYBOOKS:
        names = read_variables([Path(f"{playbook}.yml")])
        assert find_misplaced_job_keys({"a.yml": dict.fromkeys(names, "1")}, KEYS, {*READ, *names}, False) == []


def test_settings_of_another_playbook_are_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file may serve several playbooks: image.yml reads `image`, which is a key of a job, too."""
    (tmp_path / "settings.yml").write_text("{cluster: bert, image: absent, template: golden}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(context, "CLIARGS", {"extra_vars": ("@settings.yml",)})
    assert describe_misplaced_job_keys({}, [Path("status.yml")], {"hostvars": {}}) == []


def test_files_that_ansible_reads_in_another_way_are_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {
        "a.yml": "jobs: !unsafe '{{ x }}'\n1: 2",
        "b.json": '{\n\t"a": 1}',
        "c.yml": "a: [",
        "d.yml": "$ANSIBLE_VAULT",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe.yml")
    arguments = [*(f"@{name}" for name in texts), "@pipe.yml", "@missing.yml", "a=b", '{"c": 1}']
    assert read_variable_files(arguments) == {"a.yml": {"jobs": "{{ x }}", "1": 2}, "b.json": {"a": 1}}
