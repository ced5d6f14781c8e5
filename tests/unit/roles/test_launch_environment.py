"""Settings of roles for services, such as Hugging Face, become variables of the job's environment."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

from tests.unit.typed import CHECKOUT

HOME = {"HF_HOME": "~/.cache/huggingface"}
OFFLINE = {"HF_HUB_OFFLINE": "1"}


def environment(**variables: Any) -> dict[str, str]:
    loader = DataLoader()
    role_variables = loader.load_from_file(
        str(CHECKOUT / "roles" / "launch" / "vars" / "main.yml"), trusted_as_template=True
    )
    defaults: dict[str, Any] = {"launch_pass_environment": [], "launch_environment": {}}
    rendered: dict[str, str] = Templar(loader, variables={**defaults, **role_variables, **variables}).template(
        role_variables["__launch_environment"]
    )
    return rendered


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, {}),
        ({"hugging_face_home": "/data/hf"}, {}),
        ({"hugging_face_models": ["org/tiny"]}, HOME | OFFLINE),
        ({"hugging_face_datasets": [{"name": "org/rows"}], "hugging_face_home": "/d"}, {"HF_HOME": "/d"} | OFFLINE),
        ({"hugging_face_models": ["org/tiny"], "hugging_face_offline": False}, HOME),
        ({"hugging_face_models": ["a"], "launch_environment": {"HF_HUB_OFFLINE": "0"}}, HOME | {"HF_HUB_OFFLINE": "0"}),
        ({"wandb_entity": "us", "hugging_face_models": ["a"]}, {"WANDB_ENTITY": "us"} | HOME | OFFLINE),
    ],
)
def test_job_environment_contains_hugging_face_and_wandb_settings(
    variables: dict[str, Any], expected: dict[str, str]
) -> None:
    assert environment(**variables) == expected
