"""Remedies that install packages into the user's own Python instead of the environments of site.yml."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.registry import CATALOGUE
from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.registry import RULES as EVIDENCE
from ansible_collections.muster.training.plugins.plugin_utils._failures.frames.registry import RULES as FRAMES
from ansible_collections.muster.training.plugins.plugin_utils._software.user_python import (
    INSTALLS,
    install_with_pip,
    user_python,
)

SITE = "ansible-playbook site.yml --tags"
PIP = "`/opt/env/bin/python -m pip install"


@pytest.mark.parametrize(
    ("remedy", "rewritten"),
    [
        (f"add numpy<2 to the job's requirements and run {SITE} python_env", f"run {PIP} 'numpy<2'` on each node"),
        (
            f"add it to the job's requirements (requirements: [...]) and run {SITE} python_env; or leave it out",
            f"install it: run {PIP} PACKAGE` on each node; or leave it out",
        ),
        (
            f"install pillow<10: update the job's requirements (requirements: [...]), then run {SITE} python_env",
            f"run {PIP} 'pillow<10'` on each node",
        ),
        (
            f"pin both in the job's requirements (requirements: [...]), then run {SITE} python_env",
            f"pin both, then run {PIP} PACKAGE` on each node",
        ),
        (
            f"use another torch ({SITE} python_env,pytorch -e pytorch_version=2.6.0).",
            f"use another torch ({PIP} torch==2.6.0` on each node).",
        ),
        (
            f"{SITE} python_env,pytorch -e pytorch_cuda=12.4",
            f"{PIP} --force-reinstall torch --index-url https://download.pytorch.org/whl/cu124` on each node",
        ),
        (
            f"install a build for ROCm ({SITE} pytorch -e pytorch_version=auto -e pytorch_cuda=auto)",
            f"install a build for ROCm ({PIP} --force-reinstall torch --index-url "
            "https://download.pytorch.org/whl/rocmVERSION` on each node)",
        ),
        (f"run {SITE} pytorch,python_env", f"run {PIP} PACKAGE` on each node"),
        (f"run {SITE} nvidia_driver,pytorch", f"run {SITE} nvidia_driver and {PIP} --upgrade torch` on each node"),
        (
            f"use a newer Python: {SITE} python_env -e python_env_python=python3.10; or",
            "use a newer Python: set launch_python to an interpreter of Python 3.10; or",
        ),
        (
            f"{SITE} python_env -e python_env_python=python3.10 (an existing environment keeps its Python: first "
            "remove it with ansible-playbook env.yml -e remove=NAME); or",
            "set launch_python to an interpreter of Python 3.10; or",
        ),
        (f"run {SITE} deepspeed -e deepspeed_enabled=true", f"run {PIP} deepspeed` on each node"),
        (f"run {SITE} code", f"run {SITE} code"),
    ],
)
def test_command_of_site_is_replaced_by_pip(remedy: str, rewritten: str) -> None:
    assert install_with_pip(remedy, "/opt/env/bin/python") == rewritten
    assert install_with_pip(remedy, "") == remedy


@pytest.mark.parametrize(
    "rule", [rule for rules in (CATALOGUE, FRAMES, EVIDENCE) for rule in rules], ids=lambda r: r.id
)
def test_no_remedy_keeps_a_command_that_installs_nothing(rule: Any) -> None:
    text = install_with_pip(rule.remedy, "/opt/env/bin/python")
    assert INSTALLS.search(text) is None and "python_env" not in text.replace("python_env_requirements", "")
    assert ",:" not in text and ",," not in text and "  " not in text
    assert (text == rule.remedy) == (INSTALLS.search(rule.remedy) is None)


def test_path_of_the_interpreter_is_quoted() -> None:
    assert install_with_pip(f"run {SITE} pytorch", "/my env/$(x)/python") == (
        "run `'/my env/$(x)/python' -m pip install --upgrade torch` on each node"
    )


@pytest.mark.parametrize(
    ("python", "image", "expected"),
    [
        ("/opt/env/bin/python", "", "/opt/env/bin/python"),
        ("/opt/env/bin/python", None, "/opt/env/bin/python"),
        ("/opt/env/bin/python", "pytorch", ""),
        ("/opt/a/bin/python:/opt/b/bin/python:python3", "", ""),
        ("python3", "", ""),
        (None, "", ""),
    ],
)
def test_only_a_path_that_the_user_set_counts(python: Any, image: Any, expected: str) -> None:
    assert user_python(python, image) == expected
