"""A run as a user other than the login user."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab import Lab
from tests.support import drive

USER = "trainer"


@pytest.fixture
def user(lab: Lab, nodes: list[str]) -> Iterator[str]:
    """Yield a second user on the first two nodes, without root permissions."""
    try:
        for name in nodes[:2]:
            created = lab.exec(name, ["useradd", "--create-home", USER])
            assert created.returncode == 0, created.stderr
        yield USER
    finally:
        for name in nodes[:2]:
            lab.exec(name, ["systemctl", "stop", "muster-*"])
            lab.exec(name, ["userdel", "--force", "--remove", USER])


def of_user(lab: Lab, node: str) -> list[str]:
    return [item.command for item in lab.processes(node) if item.user == USER]


def test_run_belongs_to_launch_user(lab: Lab, nodes: list[str], user: str) -> None:
    settings: dict[str, Any] = {"run_id": "theirs", "launch_user": user}
    play = drive.launch(lab, "ticks.py", launch_launcher="env", nnodes=2, **settings)
    play.wait_for(r"step 3 of rank 0")
    assert f"I am rank 0 of 2 on node1, {user} at home in /home/{user}" in play.output, play.output
    for number, name in enumerate(nodes[:2]):
        assert sorted(
            word for item in of_user(lab, name) for word in ("supervisor.py", "ticks.py") if word in item
        ) == [
            "supervisor.py",
            "ticks.py",
        ]
        assert not any("ticks.py" in item.command for item in lab.processes(name) if item.user != user)
        runs = f"/home/{user}/.muster/runs"
        result = lab.exec(name, ["find", f"{runs}/theirs", "-printf", "%y %m %u %g %P\n"]).stdout.splitlines()
        as_kept = (["d", "700", user, user], ["f", "600", user, user])
        links = [line for line in result if line.startswith("l")]
        assert all(line.split()[:4] in as_kept for line in result if line not in links), result
        assert {line.split()[4] for line in links} == {f"node{number}/token", f"node{number}/environment.json"}
        uid = drive.output_of(lab, name, "id", "-u", user).strip()
        command = ["find", "/run/muster", "-path", f"*/{uid}*", "-printf", "%m %u %F %P\n"]
        mount, directory, *files = sorted(
            lab.exec(name, command).stdout.splitlines(), key=lambda line: len(line.split()[3])
        )
        assert mount == f"700 {user} tmpfs {uid}" and directory.startswith(f"700 {user} tmpfs {uid}/run-"), directory
        location = directory.split()[3]
        assert files == [f"600 {user} tmpfs {location}/{file}" for file in ("token", "environment.json")]
        assert drive.output_of(lab, name, "stat", "-c", "%a %U", "/run/muster") == "755 root\n"
        assert {f"node{number}/{file}" for file in ("token", "environment.json", "plan.json", "launcher.log")} <= {
            line.split()[4] for line in result[1:]
        }
        owners = lab.exec(name, ["stat", "-c", "%U", f"/home/{user}/.muster", runs]).stdout.split()
        assert owners == [user, user]
    status = drive.run("status.yml", lab.inventory, **settings)
    assert status.rc == 0 and status.output.count(" running  ") == 2, status.output
    refused = drive.run("stop.yml", lab.inventory, run_id="theirs")  # run as the login user, who has no such run
    assert refused.rc == 2 and f"-e launch_user={user}" in refused.output, refused.output
    stop = drive.run("stop.yml", lab.inventory, **settings)
    assert stop.rc == 0, stop.output
    for name in nodes[:2]:
        assert of_user(lab, name) == []
        assert drive.traces(lab, name) == ""
        assert lab.exec(name, ["find", "/run/muster", "-mindepth", "2"]).stdout == ""
    play.wait()
    assert play.rc == 2 and drive.record(lab, "theirs")["state"] == "stopped", play.output
    logs = drive.run("logs.yml", lab.inventory, fetch=True, **settings)
    assert logs.rc == 0, logs.output
    for number in range(2):
        text = (lab.inventory.parent / f"runs/theirs/logs/node{number}/launcher.log").read_text()
        assert f"step 3 of rank {number}" in text
