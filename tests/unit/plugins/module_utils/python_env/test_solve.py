"""Layers of an environment, solved and installed by a real pip from indexes in directories."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import ProgramError, StepError
from ansible_collections.muster.training.plugins.module_utils._python_env import sharing, solve, steps
from tests.unit.wheel_index import add_wheel, store_pip

REQUEST: dict[str, Any] = {
    **dict.fromkeys(("requirements", "files", "editable", "find_links", "extra_index_urls", "options"), []),
    **dict.fromkeys(("conda_packages", "conda_channels"), []),
    **dict.fromkeys(("url", "from", "conda_installer_url", "project_name"), ""),
    "manager": "venv",
    "python": sys.executable,
    "requested_python": "auto",
    "space": 0,
    "uv_version": "",
    "environment": {},
    "project": {},
}
PYPI = "pypi"
TORCH = "torch"
BACKEND = """
import zipfile
def _wheel(directory):
    name = "llava-1.0-py3-none-any.whl"
    meta = "Metadata-Version: 2.1\\nName: llava\\nVersion: 1.0\\nProvides-Extra: train\\n"
    meta += "Requires-Dist: wandb; extra == 'train'\\n"
    with zipfile.ZipFile(directory + "/" + name, "w") as wheel:
        wheel.writestr("llava-1.0.dist-info/METADATA", meta)
        wheel.writestr("llava-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("llava-1.0.dist-info/RECORD", "")
    return name
def build_editable(directory, settings=None, metadata=None): return _wheel(directory)
def build_wheel(directory, settings=None, metadata=None): return _wheel(directory)
"""


@pytest.fixture(scope="module")
def pip_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store_pip(tmp_path_factory.mktemp("pip"))


@pytest.fixture
def request_of(tmp_path: Path, pip_wheel: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that returns a request; PyPI has a torchvision for a different build from torch's own index."""
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("PIP_DISABLE_PIP_VERSION_CHECK", "1")
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    pypi, torch = tmp_path / PYPI, tmp_path / TORCH
    for version, vision in (("2.0.1", "0.15.2"), ("2.13.0", "0.28.0")):
        for index, build in ((pypi, ""), (torch, "+cpu")):
            add_wheel(index, "torch", version + build)
            add_wheel(index, "torchvision", vision + build, [f"torch=={version}", "pillow"])
    add_wheel(pypi, "timm", "1.0", ["torch", "torchvision"])
    for name in ("pillow", "six", "wandb", "setuptools", "wheel"):
        add_wheel(pypi, name, "99.0")

    def make(layer: str, order: int, name: str = "project", **more: Any) -> dict[str, Any]:
        home = tmp_path / "muster" / "envs" / name
        version = pip_wheel.name.split("-")[1]
        (home / "store").mkdir(parents=True, exist_ok=True)
        shutil.copy2(pip_wheel, home / "store")
        urls = {"index_url": (pypi if order != 10 else torch).as_uri(), "torch_index_url": torch.as_uri()}
        return {
            **REQUEST,
            **urls,
            "directory": str(home),
            "pip_version": version,
            "layer": layer,
            "order": order,
            **more,
        }

    return make


def run_layer(request: dict[str, Any]) -> dict[str, str]:
    """Solve and install a layer; return the versions of all packages in the environment."""
    lock = steps.run_step({**request, "step": "read_lock"})["lock"]
    lock = lock or steps.run_step({**request, "step": "solve"})["lock"]
    steps.run_step({**request, "step": "install", "lock": lock})
    assert steps.run_step({**request, "step": "read_lock"})["lock"] == lock, "a second run changes nothing"
    python = Path(request["directory"], "env", "bin", "python")
    code = "from importlib.metadata import distributions as d; [print(x.metadata['Name'], x.version) for x in d()]"
    lines = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    return dict(line.split() for line in lines)


def project(text: str) -> dict[str, Any]:
    """Return a project with one requirements file."""
    return {"file": "requirements.txt", "main": "requirements.txt", "texts": {"requirements.txt": text}, "digest": text}


@pytest.mark.parametrize(
    ("requirements", "torch", "vision"),
    [
        ({"project": project("timm\n")}, "2.13.0", "0.28.0"),  # required only by a dependency
        ({"project": project("torch==2.0.1\ntorchvision==0.15.2\n")}, "2.0.1", "0.15.2"),  # guide 001
    ],
)
def test_packages_built_against_torch_come_from_its_index(
    requirements: dict[str, Any], torch: str, vision: str, request_of: Any
) -> None:
    run_layer(request_of("pytorch", 10, requirements=[f"torch=={torch}"]))
    versions = run_layer(request_of("requirements", 20, **requirements))
    assert (versions["torch"], versions["torchvision"], versions["pillow"]) == (f"{torch}+cpu", f"{vision}+cpu", "99.0")


@pytest.mark.parametrize(
    "name", ["xformers", *(pytest.param(name, marks=pytest.mark.thorough) for name in ("torchao", "torchtext"))]
)
def test_build_in_the_torch_index_is_used(name: str, request_of: Any, tmp_path: Path) -> None:
    """It has the same version as PyPI's, which is for another CUDA."""
    for index, build in ((PYPI, "of PyPI"), (TORCH, "for this torch")):
        add_wheel(tmp_path / index, name, "0.1.post1", ["torch==2.13.0"], {f"{name}.py": f"BUILD = {build!r}\n"})
    add_wheel(tmp_path / PYPI, "diffusers", "1.0", [name])
    run_layer(request_of("pytorch", 10, requirements=["torch==2.13.0"]))
    request = request_of("requirements", 20, requirements=["diffusers"])
    assert run_layer(request)[name] == "0.1.post1"
    assert "for this torch" in next(Path(request["directory"], "env").rglob(f"{name}.py")).read_text()


def test_release_missing_in_the_torch_index_is_taken_from_the_other_index(request_of: Any, tmp_path: Path) -> None:
    add_wheel(tmp_path / PYPI, "xformers", "0.2", ["torch==2.13.0"])
    add_wheel(tmp_path / TORCH, "xformers", "0.1", ["torch==2.0.1"])
    run_layer(request_of("pytorch", 10, requirements=["torch==2.13.0"]))
    versions = run_layer(request_of("requirements", 20, requirements=["xformers", "timm"]))
    assert (versions["xformers"], versions["torchvision"]) == ("0.2", "0.28.0+cpu")


def test_companion_missing_in_the_torch_index_is_named(request_of: Any, tmp_path: Path) -> None:
    add_wheel(tmp_path / PYPI, "torchaudio", "2.13.0", ["torch==2.13.0"])
    run_layer(request_of("pytorch", 10, requirements=["torch==2.13.0"]))
    with pytest.raises(ProgramError, match=r"torchaudio==2\.13\.0 must come from file:.*, torch's index"):
        run_layer(request_of("requirements", 20, requirements=["torchaudio"]))


def test_requirements_and_editable_tree_with_extras_are_both_installed(request_of: Any, tmp_path: Path) -> None:
    """Guide 000: pip install -r requirements.txt, and pip install -e ".[train]"."""
    tree = tmp_path / "llava"
    tree.mkdir()
    (tree / "backend.py").write_text(BACKEND)
    build = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    (tree / "pyproject.toml").write_text(build)
    versions = run_layer(request_of("requirements", 20, project=project("six\n"), editable=[f"{tree}[train]"]))
    assert {"six": "99.0", "wandb": "99.0", "llava": "1.0"}.items() <= versions.items()


# --- Several environments ---------------------------------------------------------------------------------------------


def test_second_project_keeps_the_packages_of_the_first_and_shares_files(request_of: Any, tmp_path: Path) -> None:
    large = {"torch/lib.py": "x = 1\n" * 20000, "torch/__init__.py": ""}
    add_wheel(tmp_path / TORCH, "torch", "2.13.0+cpu", files=large)
    for name, packages in (("first", ["six"]), ("second", ["wandb"])):
        run_layer(request_of("pytorch", 10, name, requirements=["torch==2.13.0"]))
        versions = run_layer(request_of("requirements", 20, name, requirements=packages))
        assert set(versions) & {"six", "wandb"} == set(packages)
    (first_file,), (second_file,) = (
        list((tmp_path / "muster" / "envs" / name / "env").glob("lib/python3*/site-packages/torch/lib.py"))
        for name in ("first", "second")
    )
    assert first_file.stat().st_ino == second_file.stat().st_ino
    assert first_file.with_name("__init__.py").stat().st_ino != second_file.with_name("__init__.py").stat().st_ino

    run_layer(request_of("requirements", 20, "second", requirements=[]))
    versions = run_layer(request_of("requirements", 20, "first", requirements=["six"]))
    assert {"six", "torch"} <= set(versions)


@pytest.mark.parametrize(
    "line",
    ["torch==2.5", "torch==2.5.*", 'torch==2.0.1; sys_platform == "darwin"', "torch==2.5.1", "torch==2.5.1 #x"],
)
def test_requirement_that_the_installed_torch_may_satisfy_is_left_to_pip(line: str) -> None:
    request = {"project": {"texts": {"requirements.txt": line}}, "files": []}
    solve.check_torch(request, {"torch": {"version": "2.5.1+cu121"}})


def test_requirement_for_a_different_torch_names_the_setting() -> None:
    request = {"project": {"texts": {"requirements.txt": "numpy\ntorch==2.0.1\n"}}, "files": []}
    with pytest.raises(StepError, match="torch 2.5.1.cu121 was installed before it. Set pytorch_version to 2.0.1"):
        solve.check_torch(request, {"torch": {"version": "2.5.1+cu121"}})


@pytest.mark.parametrize("text", ["", "{", "[]", '{"files": [{"file": 1, "sha256": "a"}, {}]}'])
def test_damaged_lock_of_another_environment_is_ignored(tmp_path: Path, text: str) -> None:
    (tmp_path / "lock.json").write_text(text)
    assert sharing.locked_files(str(tmp_path / "lock.json")) == []
