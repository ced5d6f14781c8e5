"""Root writes programs and data only below directories that other users cannot replace, for any configured path."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.muster.training.plugins.lookup.program_files import installation
from ansible_collections.muster.training.plugins.plugin_utils._node_call.program_files import UnknownProgramError

ROLES = Path(__file__).resolve().parents[3] / "roles"
PATH_NAME = re.compile(r"_(?:directory|path|home|destination)$")
# Directories that root writes to, and the checks that reject replaceable ones
ROOT_PATHS = {
    "s3_client_directory": "only_root",
    "container_image_directory": "only_root",  # if the engine is docker, which runs as root
    "docker_data_root_path": "muster.training.docker_data_root",
    "hugging_face_directory": "python_env",
    "python_env_directory": "python_env",  # if python_env_user is root
}
# Paths that are accessed with the permissions of the user who runs the jobs, or on this machine
USER_PATHS = {
    "benchmark_directory",
    "checkpoints_directory",
    "checkpoints_restore_directory",
    "checkpoints_runs_directory",
    "code_directory",
    "flash_attention_cuda_home",
    "hugging_face_home",
    "init_directory",
    "launch_node_directory",
    "launch_node_exporter_directory",
    "launch_runs_directory",
    "launch_working_directory",
    "preflight_node_directory",
    "preflight_working_directory",
    "stage_data_destination",
    "stage_data_path",
}


def options(role: Path) -> dict[str, Any]:
    specification = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text())
    return {
        name: option for entry in specification["argument_specs"].values() for name, option in entry["options"].items()
    }


def all_text(role: str) -> str:
    """Return the tasks and variables of a role."""
    return "\n".join(
        file.read_text() for folder in ("tasks", "vars") for file in sorted((ROLES / role / folder).glob("*.yml"))
    )


def test_each_role_path_is_accessed_as_its_user_or_checked_for_root() -> None:
    paths = {name for role in ROLES.iterdir() for name in options(role) if PATH_NAME.search(name)}
    assert paths - USER_PATHS == set(ROOT_PATHS), "say here which rights a new path is accessed with"
    assert paths >= USER_PATHS, "this has been renamed or removed"


@pytest.mark.parametrize("name", [name for name, check in ROOT_PATHS.items() if check == "only_root"])
def test_directory_owned_by_root_is_created_only_with_the_check(name: str) -> None:
    """No other module creates it or a parent directory."""
    role = next(role.name for role in ROLES.iterdir() if name in options(role))
    alias = {"container_image_directory": "__container_image_path"}.get(name, name)
    assert re.search(rf"\{{path: \"\{{\{{ {alias} \}}\}}\", mode: \"\d+\", only_root: true\}}", all_text(role))
    for user in ROLES.iterdir():
        text = all_text(user.name)
        for task in re.split(r"\n(?= *- name:)", text):
            if alias in task and re.search(r"state: directory|/files/", task):
                pytest.fail(f"{user.name}: {task}")


@pytest.mark.parametrize(
    "role", ["stage_data", "hugging_face", "checkpoints", "container_image", "firewall", "idle_watch"]
)
def test_programs_are_installed_with_their_checked_directories(role: str) -> None:
    """Programs for root are written only after user_files has checked the directories."""
    text = all_text(role)
    assert "muster.training.program_files" in text
    for task in re.split(r"\n(?= *- name:)", text):
        if re.search(r"__\w+_(?:programs?|installed)\.files", task) and "user_files:" in task:
            assert re.search(r"directories: .*__\w+_(?:programs?|installed)\.directories", task), task
            assert "user: root" in task, task


def test_all_directories_of_a_program_are_checked() -> None:
    program = installation(["_stage_data.stage", "_stage_data.free_space"], "/usr/local/lib/muster/s3", False)
    paths = {entry["path"] for entry in program["directories"]}
    assert {str(Path(file["path"]).parent) for file in program["files"]} <= paths
    assert paths >= {"/usr/local/lib/muster/s3", "/usr/local/lib/muster/s3/program"}
    assert all(entry["only_root"] and entry["mode"] == "0755" for entry in program["directories"])
    files = {file["path"]: file for file in program["files"]}
    assert len(files) == len(program["files"])
    assert files["/usr/local/lib/muster/s3/stage.py"]["content"].endswith('run("_stage_data.stage")\n')


def test_private_program_is_readable_only_by_its_owner() -> None:
    program = installation(["_benchmark_job.benchmark_job"], "~/.muster/benchmark", True)
    assert {entry["mode"] for entry in program["directories"]} == {"0700"}
    assert {file["mode"] for file in program["files"]} == {"0600"}
    assert program["directories"][0]["path"] == "~/.muster/benchmark"


def test_unknown_program_is_refused() -> None:
    with pytest.raises(UnknownProgramError, match="there is no module _stage_data.stag in plugins/module_utils"):
        installation(["_stage_data.stag"], "/opt", False)
