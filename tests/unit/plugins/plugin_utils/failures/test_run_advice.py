"""Explanations contain the run's directory, and installation commands for a Python that site.yml does not manage."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._failures.catalogue import explain_failure
from ansible_collections.muster.training.plugins.plugin_utils._failures.run_advice import for_run

NINJA = "RuntimeError: Ninja is required to load C++ extensions"
OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 56.00 MiB."


def remedy(error: str, options: Any) -> str:
    explanation = for_run(explain_failure(error, []), {"options": options})
    assert explanation is not None
    return explanation["remedy"]


def test_packages_are_installed_with_the_users_python() -> None:
    text = remedy(NINJA, {"launch_python": "/opt/conda/bin/python"})
    assert "site.yml --tags python_env. This run used /opt/conda/bin/python (launch_python)" in text
    assert "`/opt/conda/bin/python -m pip install PACKAGE`" in text


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
    assert "pip install PACKAGE" not in remedy(NINJA, options)


def test_other_remedies_are_unchanged() -> None:
    assert "pip install" not in remedy(OUT_OF_MEMORY, {"launch_python": "/opt/conda/bin/python"})
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
