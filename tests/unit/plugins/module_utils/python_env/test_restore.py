"""Restoring an environment from an earlier run's lock, by a real pip from an index with newer packages."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import StepError
from ansible_collections.muster.training.plugins.module_utils._python_env import steps
from ansible_collections.muster.training.plugins.module_utils._python_env.paths import sha256_of
from ansible_collections.muster.training.plugins.module_utils._python_env.restore import requirement_of
from tests.unit.plugins.module_utils.python_env.test_solve import PYPI, pip_wheel, request_of, run_layer
from tests.unit.wheel_index import add_wheel

__all__ = ["pip_wheel", "request_of"]  # fixtures


def test_rebuilt_environment_gets_the_same_files_as_the_removed_one(request_of: Any, tmp_path: Path) -> None:
    request = request_of("requirements", 20, requirements=["six"])
    assert run_layer(request)["six"] == "99.0"
    lock = steps.run_step({**request, "step": "read_lock"})["lock"]
    home = Path(request["directory"])
    shutil.rmtree(home)
    add_wheel(tmp_path / PYPI, "six", "100.0")
    request = request_of("requirements", 20, requirements=[])  # the store has pip again, as if it came from an index
    restored = steps.run_step({**request, "step": "restore", "lock": lock})["lock"]
    assert restored == lock
    steps.run_step({**request, "step": "install", "lock": restored})
    assert steps.run_step({**request_of("requirements", 20, requirements=["six"]), "step": "read_lock"})["lock"] == lock
    wheel = next(entry for entry in lock["files"] if entry["file"].startswith("six-"))
    assert sha256_of(str(home / "store" / wheel["file"])) == wheel["sha256"]

    # the index has different content under the same name: the file is named, and no lock is written
    shutil.rmtree(home)
    add_wheel(tmp_path / PYPI, "six", "99.0", files={"six.py": "VERSION = 'changed'\n"})
    request = request_of("requirements", 20, requirements=[])
    with pytest.raises(StepError, match=r"no package index has these files .*six-99\.0-py3-none-any\.whl"):
        steps.run_step({**request, "step": "restore", "lock": lock})
    assert not (home / "locks").exists()


@pytest.mark.parametrize(
    "file",
    [
        "numpy-1%0A%2D%2Dindex%2Durl%20https%3A%2F%2Fx.example%2Fsimple%0Ax-py3-none-any.whl",
        "numpy-1.0\n--pre-py3-none-any.whl",
        "numpy",
        "numpy-1.0.whl",
    ],
)
def test_file_name_is_not_treated_as_a_pip_option(file: str) -> None:
    with pytest.raises(StepError, match="the lock of the run to repeat is damaged: .* is not the name of a wheel"):
        requirement_of({"file": file, "sha256": "b" * 64})


def test_requirement_refers_to_one_file() -> None:
    entry = {"file": "Torch_X-2.5.1%2Bcu121-cp311-cp311-linux_x86_64.whl", "sha256": "b" * 64}
    assert requirement_of(entry) == f"torch-x==2.5.1+cu121 --hash=sha256:{'b' * 64}"
