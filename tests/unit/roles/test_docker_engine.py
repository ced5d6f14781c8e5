"""New settings of the engine wait until nothing runs in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROLE = Path(__file__).resolve().parents[3] / "roles" / "docker_engine"


@pytest.mark.parametrize(
    ("wanted", "running", "unheard", "said"),
    [
        ({"a": 1}, [], "", ""),
        ({}, ["train"], "docker.service is active", ""),
        ({"a": 1}, ["train"], "", "these containers are running: train. Stop them"),
        ({"a": 1}, [], "docker.service is active", "cannot be listed: docker.service is active. Make `docker ps` work"),
    ],
)
def test_new_settings_are_refused_while_containers_run(
    wanted: dict[str, int], running: list[str], unheard: str, said: str
) -> None:
    variables = {
        "inventory_hostname": "node1",
        "__docker_engine_desired": wanted,
        "__docker_engine_state": {"settings": {}, "running": running, "unheard": unheard},
    }
    templar = Templar(loader=DataLoader(), variables=variables)
    tasks = DataLoader().load_from_file(str(ROLE / "tasks" / "configure.yml"), trusted_as_template=True)
    checks = [task["ansible.builtin.assert"] for task in tasks if "ansible.builtin.assert" in task]
    failed = [one for one in checks if not templar.template(trust_as_template("{{ " + one["that"] + " }}"))]
    messages = [" ".join(templar.template(one["fail_msg"]).split()) for one in failed]
    assert len(messages) == (1 if said else 0)
    assert all(
        text.startswith("node1: the engine must restart to apply its new settings") and said in text
        for text in messages
    )
