"""Moving Docker's data: whatever step fails, what was before is there again. The engine is a stand-in here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "roles" / "docker_data_root" / "files" / "move_data.py"
# One program for docker, systemctl and cp. It keeps to the settings, counts its calls, and fails at those in `fail`.
ENGINE = """#!{python}
import json, os, sys
from pathlib import Path
home = Path({home!r})
name, words = Path(sys.argv[0]).name, sys.argv[1:]
with (home / "calls").open("a") as calls:
    print(name, *words, file=calls)
count = len((home / "calls").read_text().splitlines())
if str(count) in (home / "fail").read_text().split():
    sys.exit("told to fail")
up = home / "up"
settings = home / "daemon.json"
root = json.loads(settings.read_text()).get("data-root", str(home / "old")) if settings.exists() else str(home / "old")
if name == "systemctl":
    if words[0] == "stop":
        up.unlink(missing_ok=True)
    elif words[0] == "start":
        up.touch()
elif name == "docker":
    if not up.exists():
        sys.exit("Cannot connect to the Docker daemon")
    if words[0] == "info":
        print(root)
    elif words[0] == "ps":
        print((home / "running").read_text(), end="")
    else:
        print(*sorted(path.name for path in Path(root, "images").glob("*")), sep=chr(10))
elif name == "cp":
    os.execv("/bin/cp", ["cp", *words])
"""


class Machine:
    """A machine with an engine of two images."""

    def __init__(self, home: Path) -> None:
        self.home = home
        bin_directory = home / "bin"
        bin_directory.mkdir()
        for name in ("docker", "systemctl", "cp"):
            (bin_directory / name).write_text(ENGINE.format(python=sys.executable, home=str(home)))
            (bin_directory / name).chmod(0o755)
        (home / "old" / "images").mkdir(parents=True)
        for image in ("a", "b"):
            (home / "old" / "images" / image).write_text(image)
        os.link(home / "old/images/a", home / "old/hard-link")
        (home / "old" / "images" / "a").chmod(0o640)
        (home / "daemon.json").write_text('{"log-driver": "journald"}')
        for name in ("fail", "running", "calls", "up"):
            (home / name).write_text("")

    def move(self, *, fail: str = "", path: str = "", **request: Any) -> dict[str, Any]:
        (self.home / "fail").write_text(fail)
        (self.home / "calls").write_text("")
        asked = {"path": path or str(self.home / "disk/docker"), "spare_gib": 0, "delete_old": False, "check": False}
        done = subprocess.run(
            [sys.executable, str(SCRIPT), json.dumps({**asked, **request})],
            env={
                **os.environ,
                "PATH": f"{self.home}/bin:{os.environ['PATH']}",
                "MUSTER_DAEMON_JSON": str(self.home / "daemon.json"),
                "MUSTER_DATA_ROOT_RECORD": str(self.home / "record/moved.json"),
            },
            capture_output=True,
            text=True,
            check=True,
        )
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    @property
    def settings(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.home / "daemon.json").read_text())
        return found

    @property
    def calls(self) -> int:
        return len((self.home / "calls").read_text().splitlines())

    def assert_as_before(self) -> None:
        assert self.settings == {"log-driver": "journald"}
        assert sorted(path.name for path in (self.home / "old/images").iterdir()) == ["a", "b"]
        assert not (self.home / "disk/docker").exists()
        assert (self.home / "up").exists(), "the engine runs"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_data_move_with_all_attributes(machine: Machine) -> None:
    assert machine.move() == {"changed": True, "error": ""}
    new = machine.home / "disk/docker"
    assert machine.settings == {"log-driver": "journald", "data-root": str(new)}
    assert (new / "hard-link").stat().st_ino == (new / "images/a").stat().st_ino
    assert (new / "images/a").stat().st_mode & 0o777 == 0o640
    assert (machine.home / "old").exists(), "the former data are the way back"
    assert machine.move() == {"changed": False, "error": ""}


def test_the_former_data_go_only_when_told(machine: Machine) -> None:
    machine.move()
    assert machine.move(delete_old=True) == {"changed": True, "error": ""}
    assert not (machine.home / "old").exists()
    assert machine.move(delete_old=True) == {"changed": False, "error": ""}


def test_check_mode_changes_nothing(machine: Machine) -> None:
    assert machine.move(check=True) == {"changed": True, "error": ""}
    machine.assert_as_before()


def test_a_failure_at_any_step_leaves_what_was(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> None:
    machine.move()
    whole = machine.calls
    assert whole >= 9
    harmless = 0
    for step in range(1, whole + 1):
        other = Machine(tmp_path_factory.mktemp("machine"))
        answer = other.move(fail=str(step))
        if answer["error"]:
            assert "Docker's data were not moved" in answer["error"]
            other.assert_as_before()
        else:  # a call whose failure does not matter, or that is tried again
            harmless += 1
            assert other.settings["data-root"] == str(other.home / "disk/docker")
    assert harmless <= 2


def test_an_engine_that_does_not_come_back_is_said(machine: Machine) -> None:
    machine.move()
    start = next(
        number
        for number, line in enumerate((machine.home / "calls").read_text().splitlines(), 1)
        if line.startswith("systemctl start")
    )
    other = Machine(machine.home / "disk")
    answer = other.move(fail=" ".join(map(str, range(start, start + 40))))
    assert "but the engine does not start" in answer["error"]
    assert other.settings == {"log-driver": "journald"}
    assert (other.home / "disk/docker").exists(), "nothing is deleted while the engine is down"


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"path": "relative"}, "Needed: an absolute path"),
        ({"path": "/a/../b"}, "Needed: an absolute path"),
        ({"spare_gib": 10**6}, "GiB are free where"),
    ],
)
def test_a_target_that_will_not_do(machine: Machine, request_: dict[str, Any], words: str) -> None:
    assert words in machine.move(**request_)["error"]
    machine.assert_as_before()


def test_targets_that_are_in_the_way(machine: Machine) -> None:
    assert "lie in each other" in machine.move(path=str(machine.home / "old/new"))["error"]
    assert "lie in each other" in machine.move(path=str(machine.home))["error"]
    (machine.home / "full").mkdir()
    (machine.home / "full/file").touch()
    assert "is not empty" in machine.move(path=str(machine.home / "full"))["error"]
    machine.assert_as_before()


def test_running_containers_and_broken_settings_are_named(machine: Machine) -> None:
    (machine.home / "running").write_text("train\nserve\n")
    assert "these containers are running: train, serve" in machine.move()["error"]
    (machine.home / "running").write_text("")
    machine.assert_as_before()
    assert machine.move(check=True)["error"] == ""
