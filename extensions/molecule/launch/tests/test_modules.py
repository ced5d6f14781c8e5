"""The modules of a launch in a user-written playbook."""

from __future__ import annotations

from pathlib import Path

from tests.lab import Lab
from tests.support import drive


def test_modules_work_in_a_users_own_playbook(lab: Lab, nodes: list[str]) -> None:
    playbook = str(Path(__file__).with_name("own_playbook.yml"))
    play = drive.run(playbook, lab.inventory, own_script=str(drive.JOBS / "ticks.py"))
    assert play.rc == 0, play.output
    for name in nodes[:2]:
        assert drive.traces(lab, name) == ""
