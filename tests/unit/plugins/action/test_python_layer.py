"""The steps of a layer in action plugin and module, the diff of an installation, and the error of a failed one."""

from __future__ import annotations

import ensurepip
import hashlib
import io
import re
import shutil
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.muster.training.plugins.action import flash_attention, python_layer
from ansible_collections.muster.training.plugins.module_utils._python_env.steps import STEPS
from ansible_collections.muster.training.plugins.module_utils._torch.flash_attention import STEPS as FLASH_STEPS
from ansible_collections.muster.training.plugins.plugin_utils._node_call.detached import run_code
from tests.unit.plugins.plugin_utils.node_call.test_detached import here

LAYER = Path(__file__).resolve().parents[4] / "roles" / "python_env" / "tasks" / "layer.yml"


def test_action_and_module_have_the_same_steps() -> None:
    assert set(python_layer.DESCRIPTIONS) == set(STEPS)
    assert set(python_layer.READ_ONLY_STEPS) | set(python_layer.RESUMABLE_STEPS) < set(STEPS)
    assert set(flash_attention.DESCRIPTIONS) == set(FLASH_STEPS)


def test_diff_lists_installed_and_removed_packages() -> None:
    result: dict[str, Any] = {"changed": True, "installed": ["numpy", "torch"], "removed": ["six"]}
    assert python_layer.package_diff(result) == {"before": "six\n", "after": "numpy\ntorch\n"}


def test_role_sets_each_shared_option_in_module_defaults() -> None:
    """Options of a single step are excluded; a missing option would change the lock on the node."""
    (block,) = (task for task in yaml.safe_load(LAYER.read_text()) if "module_defaults" in task)
    defaults = block["module_defaults"]["muster.training.python_layer"]
    assert {name: f"{{{{ __python_env_settings.{name} }}}}" for name in defaults} == defaults
    step_options = {"step", "lock", "from", "url", "address", "token"}
    assert set(defaults) == set(python_layer.ARGUMENT_SPEC) - step_options


@pytest.mark.parametrize(
    "name", ["index_url", "extra_index_urls", "find_links", "environment", "requirements", "token"]
)
def test_options_that_may_hold_a_secret_are_no_log(name: str) -> None:
    assert python_layer.ARGUMENT_SPEC[name]["no_log"] is True


# --- Programs that fail -----------------------------------------------------------------------------------------------

TALK = "seq 100 | sed 's/^/step /'\necho \"error: $0 broke off\"\nexit 3\n"
BUILD = """
import os, sys
def get_requires_for_build_wheel(settings=None): return []
def prepare_metadata_for_build_wheel(directory, settings=None):
    os.mkdir(f"{directory}/NAME.dist-info")
    with open(f"{directory}/NAME.dist-info/METADATA", "w") as file:
        file.write("Metadata-Version: 2.1\\nName: NAME\\nVersion: 1.0\\n")
    return "NAME.dist-info"
def build_wheel(directory, settings=None, metadata=None):
    print("\\n".join(f"step {number}" for number in range(1, 101)))
    print("error: the compiler broke off, asked for", os.environ["ASKED"], flush=True)
    sys.exit(3)
"""
"""A build script for a package whose compiler fails."""


def put_uv(request: dict[str, Any]) -> None:
    with zipfile.ZipFile(f"{request['directory']}/store/uv-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("uv-1.data/scripts/uv", f"#!/bin/sh\n{TALK}")
    request.update(manager="uv", uv_version="1")


def put_conda(request: dict[str, Any]) -> None:
    """Provide a conda installer that works, with a conda that fails."""
    installer = Path(request["directory"], "installer.sh")
    script = f'mkdir -p "$3/bin"\ncat > "$3/bin/conda" <<"END"\n#!/bin/sh\n{TALK}END\nchmod +x "$3/bin/conda"\n'
    installer.write_text(script)
    digest = hashlib.sha256(script.encode()).hexdigest()
    request.update(manager="conda", conda_installer_url=installer.as_uri(), conda_installer_sha256=digest)


def put_source(name: str) -> Callable[[dict[str, Any]], None]:
    """Return a function that provides only the source of a package, as for the role with that name."""

    def put(request: dict[str, Any]) -> None:
        source = Path(request["directory"], f"{name}-1.0.tar.gz")
        project = "[build-system]\nrequires = []\nbuild-backend = 'build'\nbackend-path = ['.']\n"
        with tarfile.open(source, "w:gz") as archive:
            for file, text in (("pyproject.toml", project), ("build.py", BUILD.replace("NAME", name))):
                member = tarfile.TarInfo(f"{name}-1.0/{file}")
                member.size = len(text.encode())
                archive.addfile(member, io.BytesIO(text.encode()))
        options = ["--no-build-isolation", "--no-cache-dir", "--no-index", "--disable-pip-version-check"]
        request.update(layer=name, requirements=[f"{name}==1.0"], find_links=[request["directory"]], options=options)
        request.update(environment={"ASKED": name})

    return put


@pytest.mark.one_core
@pytest.mark.parametrize(
    ("put", "command", "message"),
    [
        (put_uv, "tools/uv venv ", "tools/uv broke off"),
        (put_conda, "conda/bin/conda create ", "conda/bin/conda broke off"),
        (put_source("flash_attn"), "pip/pip wheel ", "the compiler broke off, asked for flash_attn"),
        (put_source("deepspeed"), "pip/pip wheel ", "the compiler broke off, asked for deepspeed"),
    ],
    ids=["uv", "conda", "flash_attention", "deepspeed"],
)
def test_failed_program_shows_its_last_output_and_path_of_full_log(
    put: Callable[[dict[str, Any]], None], command: str, message: str, tmp_path: Path
) -> None:
    bundled = sysconfig.get_config_var("WHEEL_PKG_DIR") or Path(ensurepip.__file__).parent / "_bundled"
    (pip,) = Path(bundled).glob("pip-*.whl")
    (tmp_path / "store").mkdir()
    shutil.copy(pip, tmp_path / "store")
    request = {name: option.get("default", "") for name, option in python_layer.ARGUMENT_SPEC.items()}
    request.update(step="solve", layer="base", directory=str(tmp_path), python=sys.executable)
    request.update(pip_version=pip.name.split("-")[1])
    put(request)
    names = {"inventory_hostname": "node0"}
    failed = run_code(here(), names, "choosing packages", sys.executable, "_python_env.steps", request)
    first, *lines, last = failed["msg"].split("\n")
    arguments = (
        rf"node0: choosing packages: `.*{command}.* \.\.\.` failed \(exit code \d\)\. The last lines of its output:"
    )
    assert re.fullmatch(arguments, first), failed["msg"]
    assert len(lines) == 40 and any(message in line for line in lines), failed["msg"]
    assert not any(re.search(r"\bstep 1$", line) for line in lines)
    log = Path(last.removeprefix("All of its output is on that node, in "))
    try:
        assert log.stat().st_mode & 0o77 == 0
        assert re.search(r"^ *step 1$", log.read_text(), re.M) and message in log.read_text()
    finally:
        log.unlink()
