"""Explanations contain the run's directory, and installation commands for a Python that site.yml does not manage."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._failures.catalogue import explain_failure
from ansible_collections.muster.training.plugins.plugin_utils._failures.run_advice import for_run

NINJA = "RuntimeError: Ninja is required to load C++ extensions"
MISSING = "ModuleNotFoundError: No module named 'einops'"
NO_CUDA = "AssertionError: Torch not compiled with CUDA enabled"
NO_ATTRIBUTE = "AttributeError: module 'torch' has no attribute 'foo'"
REMOVED_NAME = "AttributeError: module 'numpy' has no attribute 'bool'."
CONDA = {"launch_python": "/opt/conda/bin/python"}
OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 56.00 MiB."


def remedy(error: str, options: Any) -> str:
    explanation = for_run(explain_failure(error, []), {"options": options}, error)
    assert explanation is not None
    return explanation["remedy"]


def test_packages_are_installed_with_the_users_python() -> None:
    assert remedy(NINJA, CONDA) == "run `/opt/conda/bin/python -m pip install ninja` on each node"


@pytest.mark.parametrize("error", [NINJA, MISSING, NO_CUDA, NO_ATTRIBUTE, REMOVED_NAME])
def test_remedy_for_the_users_python_does_not_mention_what_installs_nothing_into_it(error: str) -> None:
    text = remedy(error, CONDA)
    assert "/opt/conda/bin/python -m pip install" in text
    assert "site.yml --tags py" not in text and "requirements" not in text and "Instead" not in text


def test_missing_package_is_named_by_its_own_name() -> None:
    assert "-m pip install scikit-image` on each node" in remedy(
        "ModuleNotFoundError: No module named 'skimage'", CONDA
    )
    assert "-m pip install PACKAGE` on each node" in remedy("ModuleNotFoundError: No module named 'peft.new'", CONDA)


def test_other_parts_of_the_remedy_remain() -> None:
    assert remedy(MISSING, CONDA) == (
        "install it: run `/opt/conda/bin/python -m pip install einops` on each node; for your own modules, run "
        "ansible-playbook site.yml --tags code"
    )


@pytest.mark.parametrize(
    "options",
    [
        None,
        {},
        {"launch_python": 7},
        {"launch_python": "/opt/muster/envs/a/env/bin/python:/opt/muster/env/bin/python:python3"},
        {"launch_python": "/opt/conda/bin/python", "launch_image": "pytorch"},
    ],
)
def test_environments_of_site_and_images_are_not_mentioned(options: Any) -> None:
    assert "-m pip install" not in remedy(NINJA, options)


def test_other_remedies_are_unchanged() -> None:
    assert "pip install" not in remedy(OUT_OF_MEMORY, CONDA)
    assert for_run(None, {}) is None


@pytest.mark.parametrize(
    ("directory", "start"), [("/home/me/project", "/home/me/project"), (7, "launch_working_directory")]
)
def test_relative_paths_start_in_the_run_directory(directory: Any, start: str) -> None:
    error = "FileNotFoundError: [Errno 2] No such file or directory: 'data/train.csv'"
    log = ["Traceback (most recent call last):", '  File "/job/train.py", line 7, in main', "    read_csv(path)", error]
    explanation = for_run(explain_failure(error, log), {"working_directory": directory})
    assert explanation is not None
    assert f"relative paths start at {start})" in explanation["cause"]
