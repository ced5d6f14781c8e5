"""New settings of the engine are not applied while containers run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROLE = Path(__file__).resolve().parents[3] / "roles" / "docker_engine"


@pytest.mark.parametrize(
    ("desired", "running", "list_error", "message"),
    [
        ({"a": 1}, [], "", ""),
        ({}, ["train"], "docker.service is active", ""),
        ({"a": 1}, ["train"], "", "these containers are running: train. Stop them"),
        ({"a": 1}, [], "docker.service is active", "cannot be listed: docker.service is active. Make `docker ps` work"),
    ],
)
def test_new_settings_are_refused_while_containers_run(
    desired: dict[str, int], running: list[str], list_error: str, message: str
) -> None:
    variables = {
        "inventory_hostname": "node1",
        "__docker_engine_desired": desired,
        "__docker_engine_state": {"settings": {}, "running": running, "containers_error": list_error},
    }
    templar = Templar(loader=DataLoader(), variables=variables)
    tasks = DataLoader().load_from_file(str(ROLE / "tasks" / "configure.yml"), trusted_as_template=True)
    checks = [task["ansible.builtin.assert"] for task in tasks if "ansible.builtin.assert" in task]
    failed = [check for check in checks if not templar.template(trust_as_template("{{ " + check["that"] + " }}"))]
    messages = [" ".join(templar.template(check["fail_msg"]).split()) for check in failed]
    assert len(messages) == (1 if message else 0)
    assert all(
        text.startswith("node1: the engine must restart to apply its new settings") and message in text
        for text in messages
    )


def test_check_mode_expects_the_engine_of_the_previous_role() -> None:
    """The role docker_data_root reads a variable that docker_engine must set."""
    (move,) = DataLoader().load_from_file(str(ROLE.parent / "docker_data_root" / "tasks" / "move.yml"))
    expression = move["muster.training.docker_data_root"]["engine_expected"]
    (name,) = re.findall(r"__docker_engine_\w+", expression)
    tasks = DataLoader().load_from_file(str(ROLE / "tasks" / "preflight.yml"))
    assert name in [task.get("register") for task in tasks], "of the tasks that a dry run executes as well"
