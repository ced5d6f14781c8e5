"""Values that the role python_env derives from its settings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROLES = Path(__file__).resolve().parents[3] / "roles"


def trust_all(value: Any) -> Any:
    """Return a value with all its strings trusted as templates."""
    if isinstance(value, dict):
        return {key: trust_all(item) for key, item in value.items()}
    return trust_as_template(value) if isinstance(value, str) else value


def render(name: str, **variables: Any) -> str:
    """Return a variable of the role, with its defaults."""
    role = ROLES / "python_env"
    defaults, role_variables = (yaml.safe_load((role / part / "main.yml").read_text()) for part in ("defaults", "vars"))
    all_variables = {**trust_all(defaults), **variables, **trust_all(role_variables)}
    return str(Templar(DataLoader(), variables=all_variables).template(trust_as_template("{{ " + name + " }}")))


@pytest.mark.parametrize(
    ("python", "expected"),
    [
        ("auto", "/opt/muster/env/bin/python:python3"),
        ("3.12", "/opt/muster/env/bin/python:3.12:python3.12"),
        ("/usr/bin/python3.9", "/opt/muster/env/bin/python:/usr/bin/python3.9:python/usr/bin/python3.9"),
    ],
)
def test_interpreter_of_existing_environment_comes_first(python: str, expected: str) -> None:
    assert render("__python_env_interpreters", python_env_python=python) == expected


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "python3"),
        ({"python_env_manager": "conda"}, "3.12"),
        ({"__pytorch_choice": {"directory": "/opt/muster", "python": "3.12"}}, "3.12"),
        ({"__pytorch_choice": {"directory": "/opt/another", "python": "3.12"}}, "python3"),
        ({"__pytorch_choice": {"directory": "/opt/muster", "python": "3.12"}, "python_env_python": "3.9"}, "3.9"),
    ],
)
def test_environment_is_created_with_the_chosen_python(variables: dict[str, Any], expected: str) -> None:
    assert render("__python_env_python", **variables).strip() == expected


def test_default_conda_installer_has_hash_and_fixed_version() -> None:
    defaults = yaml.safe_load((ROLES / "python_env" / "defaults" / "main.yml").read_text())
    assert re.fullmatch("[0-9a-f]{64}", defaults["python_env_conda_installer_sha256"])
    assert "latest" not in defaults["python_env_conda_installer_url"]


# --- Requirements -----------------------------------------------------------------------------------------------------


def test_no_role_passes_programs_or_requests_as_arguments() -> None:
    """All users of a node can read arguments, whose size is limited to 128 KiB."""
    texts = {path: path.read_text() for path in ROLES.glob("*/*/*.yml")}
    assert len(texts) > 100
    programs = re.compile(
        r"python3?[\"']?, *[\"']?-c[\"']?, *.*lookup\(|lookup\('ansible.builtin.file', '\w+\.py'\)[^\n]*argv"
    )
    assert [str(path) for path, text in texts.items() if programs.search(text)] == []
    requests = re.compile(r"argv:[^\n]*to_json|argv:\n(\s+- .*\n)*\s+- .*to_json")
    assert [str(path) for path, text in texts.items() if requests.search(text)] == []


@pytest.mark.parametrize(
    ("variables", "required"),
    [
        ({}, True),
        ({"python_env_requirements": []}, False),
        ({"python_env_requirements": ["six"]}, True),
        ({"python_env_requirements": "six"}, True),
        ({"job": {"requirements": []}}, False),
        ({"code_source": ""}, False),
    ],
)
def test_auto_setting_reads_requirements_from_the_code_source(
    variables: dict[str, Any], required: bool, tmp_path: Path
) -> None:
    (tmp_path / "requirements.txt").write_text("six\n")
    all_variables = {"code_source": str(tmp_path), **variables}
    assert render("__python_env_required", **all_variables).strip() == str(required)
    assert render("__python_env_project | length", **all_variables).strip() == ("0" if variables else "4")


def test_editable_tree_keeps_requirements_txt(tmp_path: Path) -> None:
    """Guide 000: pip install -r requirements.txt, and pip install -e ".[train]"."""
    (tmp_path / "requirements.txt").write_text("six\n")
    (tmp_path / "pyproject.toml").write_text(
        "[project]\nname = 'llava'\ndependencies = []\n[project.optional-dependencies]\n"
        "standalone = ['einops', 'torch==2.1.2']\ntrain = ['llava[standalone]', 'wandb']\n"
    )
    tree = f"~/{tmp_path.name}[train]"
    variables = {"code_source": str(tmp_path), "python_env_editable": [tree]}
    assert render("__python_env_project.texts", **variables) == str({"requirements.txt": "six\n"})
    assert render("__python_env_requirements_layer.editable", **variables) == str([tree])
    assert render("__python_env_declared", **variables) == str(
        {"requirements.txt": ["six"], f"pyproject.toml ({tree})": ["wandb", "einops", "torch==2.1.2"]}
    )


@pytest.mark.parametrize(
    ("variables", "home"),
    [
        ({}, "/opt/muster"),
        ({"code_source": "~/My Project"}, "/opt/muster/envs/My-Project"),
        ({"job": {"code": "/src/toy"}}, "/opt/muster/envs/toy"),
        ({"code_source": "/src/toy", "code_directory": "~/work/other/"}, "/opt/muster/envs/other"),
        ({"code_repository": "git@host:me/nano.git"}, "/opt/muster/envs/nano"),
        ({"code_source": "/src/toy", "python_env_name": "shared"}, "/opt/muster/envs/shared"),
        ({"code_source": "/src/toy", "python_env_name": "env"}, "/opt/muster"),
        ({"code_source": "/src/toy", "python_env_directory": "/data/m"}, "/data/m/envs/toy"),
    ],
)
def test_environment_is_that_of_the_project(variables: dict[str, Any], home: str) -> None:
    assert render("__python_env_home", **variables) == home
    assert render("__python_env_interpreters", **variables).startswith(f"{home}/env/bin/python:")
