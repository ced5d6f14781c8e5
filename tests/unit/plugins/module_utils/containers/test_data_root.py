"""Moves of Docker's data with a fake engine: the previous state is restored after a failure at any step."""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._containers import data_root
from ansible_collections.muster.training.plugins.module_utils._files import root_path

# A single fake for docker, systemctl and cp. It follows the settings, counts its calls, and fails on those listed in
# `fail`.
ENGINE = """#!{python}
import json, os, shutil, subprocess, sys
from pathlib import Path
home = Path({home!r})
name, words = Path(sys.argv[0]).name, sys.argv[1:]
with (home / "calls").open("a") as calls:
    print(name, *words, file=calls)
count = len((home / "calls").read_text().splitlines())
if str(count) in (home / "fail").read_text().split():
    sys.exit("told to fail")
up = home / "up"  # holds where the running engine has its data
settings = home / "daemon.json"
root = json.loads(settings.read_text()).get("data-root", str(home / "old")) if settings.exists() else str(home / "old")
if name == "systemctl":
    if words[0] == "stop":
        up.unlink(missing_ok=True)
    elif words[0] == "start":
        up.exists() or up.write_text(root)
elif name == "docker":
    if not up.exists():
        sys.exit("Cannot connect to the Docker daemon")
    kinds = {{"image": "images", "ps": "containers", "volume": "volumes"}}
    if words[0] == "info":
        print((home / "driver").read_text() if "DriverStatus" in words[-1] else up.read_text())
    elif words[0] == "ps" and "--all" not in words:
        print((home / "running").read_text(), end="")
    else:
        print(*sorted(path.name for path in Path(up.read_text(), kinds[words[0]]).glob("*")), sep=chr(10))
elif name == "cp":
    copied = subprocess.run(["/bin/cp", *words], check=True)
    for line in (home / "lost").read_text().split():
        path = Path(words[-1], line)
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for line in (home / "cut").read_text().split():
        Path(words[-1], line).write_text("")
"""


class Machine:
    """A machine with an engine of two images, a stopped container and a volume. `lost` and `cut` spoil a copy."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.is_path_checked = False
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
        for kind in ("containers/c1", "volumes/data"):
            (home / "old" / kind).mkdir(parents=True)
            (home / "old" / kind / "file").write_text(kind)
        for name in ("fail", "running", "calls", "lost", "cut"):
            (home / name).write_text("")
        (home / "driver").write_text('[["Backing Filesystem","extfs"]]')
        (home / "up").write_text(str(home / "old"))

    def move(
        self, *, fail: str = "", path: str = "", spare_gib: int = 0, delete_old: bool = False, check: bool = False
    ) -> dict[str, Any]:
        (self.home / "fail").write_text(fail)
        (self.home / "calls").write_text("")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", f"{self.home}/bin:{os.environ['PATH']}")
            patch.setattr(data_root, "SETTINGS", str(self.home / "daemon.json"))
            patch.setattr(data_root, "RECORD", str(self.home / "record/moved.json"))
            if not self.is_path_checked:  # a test's directories belong to the user who runs it
                patch.setattr(root_path, "root_only_error", lambda _path: "")
            target = path or str(self.home / "disk/docker")
            try:
                return {"changed": data_root.ensure(target, spare_gib, delete_old, check)[0], "error": ""}
            except (data_root.DataRootError, data_root.OldDataError, OSError) as problem:
                return {"changed": False, "error": str(problem)}

    @property
    def settings(self) -> dict[str, Any]:
        result: dict[str, Any] = json.loads((self.home / "daemon.json").read_text())
        return result

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


def test_move_preserves_file_attributes_and_keeps_old_data(machine: Machine) -> None:
    assert machine.move() == {"changed": True, "error": ""}
    new = machine.home / "disk/docker"
    assert machine.settings == {"log-driver": "journald", "data-root": str(new)}
    assert (new / "hard-link").stat().st_ino == (new / "images/a").stat().st_ino
    assert (new / "images/a").stat().st_mode & 0o777 == 0o640
    assert (machine.home / "old").exists(), "the former data are the way back"
    assert machine.move() == {"changed": False, "error": ""}


def test_old_data_are_deleted_only_on_request(machine: Machine) -> None:
    machine.move()
    assert machine.move(delete_old=True) == {"changed": True, "error": ""}
    assert not (machine.home / "old").exists()
    assert machine.move(delete_old=True) == {"changed": False, "error": ""}


def test_old_data_that_cannot_be_deleted_are_not_called_a_failed_move(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.move()

    def fail(_path: str) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    monkeypatch.setattr("shutil.rmtree", fail)
    old = machine.home / "old"
    assert machine.move(delete_old=True)["error"] == (
        f"Docker's data is in {machine.home}/disk/docker, but the old data in {old} could not be deleted: Device or "
        f"resource busy. Delete it: sudo rm -r {old}"
    )


def test_check_mode_changes_nothing(machine: Machine) -> None:
    assert machine.move(check=True) == {"changed": True, "error": ""}
    machine.assert_as_before()


def test_failure_at_any_step_restores_the_previous_state(
    machine: Machine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    machine.move()
    total_steps = machine.calls
    assert total_steps >= 9
    harmless = 0
    for step in range(1, total_steps + 1):
        failing_machine = Machine(tmp_path_factory.mktemp("machine"))
        reply = failing_machine.move(fail=str(step))
        if reply["error"]:
            failing_machine.assert_as_before()
        else:  # a call whose failure does not matter, or that is retried
            harmless += 1
            assert failing_machine.settings["data-root"] == str(failing_machine.home / "disk/docker")
    assert harmless <= 2


def test_engine_that_does_not_restart_is_reported(machine: Machine) -> None:
    machine.move()
    start = next(
        number
        for number, line in enumerate((machine.home / "calls").read_text().splitlines(), 1)
        if line.startswith("systemctl start")
    )
    failing_machine = Machine(machine.home / "disk")
    reply = failing_machine.move(fail=" ".join(map(str, range(start, start + 40))))
    assert "but the engine does not start" in reply["error"]
    assert failing_machine.settings == {"log-driver": "journald"}
    assert (failing_machine.home / "disk/docker").exists(), "nothing is deleted while the engine is down"


def test_copy_in_use_by_the_engine_is_not_deleted(machine: Machine) -> None:
    machine.move()
    calls = (machine.home / "calls").read_text().splitlines()
    last = max(number for number, line in enumerate(calls, 1) if line.startswith("docker image"))
    failing_machine = Machine(machine.home / "disk")
    reply = failing_machine.move(
        fail=f"{last} {last + 1}"
    )  # the verification of the copy, and the stop that follows it
    copy = failing_machine.home / "disk/docker"
    assert (failing_machine.home / "up").read_text() == str(copy), "what this test is about"
    assert sorted(path.name for path in (copy / "images").iterdir()) == ["a", "b"]
    assert f"the engine uses the data in {copy} (systemctl stop" in reply["error"]
    assert "the copy was removed" not in reply["error"]


def test_failed_move_keeps_the_record_of_an_earlier_one(machine: Machine) -> None:
    machine.move()
    calls = (machine.home / "calls").read_text().splitlines()
    copying = next(number for number, line in enumerate(calls, 1) if line.startswith("cp "))
    assert "cp --archive" in machine.move(path=str(machine.home / "third"), fail=str(copying))["error"]
    assert not (machine.home / "third").exists()
    assert machine.move(delete_old=True) == {"changed": True, "error": ""}
    assert not (machine.home / "old").exists()


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the program on a machine whose engine always has its data in `old`."""
    module = data_root
    monkeypatch.setattr(module, "SETTINGS", str(tmp_path / "daemon.json"))
    monkeypatch.setattr(module, "run", lambda *arguments: str(tmp_path / "old") if arguments[0] == "docker" else "")
    (tmp_path / "daemon.json").write_text("new")
    (tmp_path / "copy").mkdir()
    return module


@pytest.mark.parametrize("existed", [False, True])
def test_copy_that_cannot_be_removed_is_reported(
    program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, existed: bool
) -> None:
    def busy(path: str, **_more: Any) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), path)

    monkeypatch.setattr(os, "rmdir", busy)
    monkeypatch.setattr(os, "unlink", busy)

    def undo() -> str:
        return str(program.undo("old", str(tmp_path / "old"), str(tmp_path / "copy"), existed))

    # a directory that already existed and can be emptied but not removed is a mount point
    assert ("and the copy was removed" in undo()) == existed
    (tmp_path / "copy/file").touch()
    output = undo()
    assert f"but the copy in {tmp_path}/copy cannot be removed" in output and "busy" in output
    assert (tmp_path / "daemon.json").read_text() == "old"


@pytest.mark.parametrize(("former", "needed"), [("old", "daemon.json.before-data-root to "), (None, "Remove ")])
def test_settings_that_cannot_be_restored_are_reported(
    program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, former: str | None, needed: str
) -> None:
    def full(*_arguments: Any, **_more: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "daemon.json")

    monkeypatch.setattr(program, "write_text", full)
    monkeypatch.setattr(os, "unlink", full)
    monkeypatch.setattr(program, "start_engine", lambda: pytest.fail("with whatever settings"))
    output = program.undo(former, str(tmp_path / "old"), str(tmp_path / "copy"), False)
    assert "The previous settings cannot be restored ([Errno 28] No space left on device" in output
    assert needed in output and "have been restored" not in output
    assert (tmp_path / "copy").exists()


def test_undo_does_not_rewrite_unchanged_settings(
    program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "write_text", lambda *_arguments: pytest.fail("on a disk that is perhaps full"))
    output = program.undo("new", str(tmp_path / "old"), str(tmp_path / "copy"), False)
    assert "The engine is running with its previous data again, and the copy was removed" in output
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize(
    ("request_", "expected_text"),
    [
        ({"path": "relative"}, "Use an absolute path"),
        ({"path": "/a/../b"}, "Use an absolute path"),
        ({"spare_gib": 10**6}, "GiB free, but the data in"),
    ],
)
def test_invalid_path_or_too_little_space_is_refused(
    machine: Machine, request_: dict[str, Any], expected_text: str
) -> None:
    assert expected_text in machine.move(**request_)["error"]
    machine.assert_as_before()


def test_target_that_overlaps_or_is_not_empty_is_refused(machine: Machine) -> None:
    assert "overlaps the current data" in machine.move(path=str(machine.home / "old/new"))["error"]
    assert "overlaps the current data" in machine.move(path=str(machine.home))["error"]
    (machine.home / "full").mkdir()
    (machine.home / "full/file").touch()
    assert "is not empty" in machine.move(path=str(machine.home / "full"))["error"]
    machine.assert_as_before()


def test_directory_that_another_user_can_replace_is_refused(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.is_path_checked = True
    monkeypatch.setattr(root_path, "ROOT", os.stat(machine.home).st_uid + 1)
    error = machine.move()["error"]
    assert "does not belong to root, and the engine, which runs as root, would trust" in error
    machine.assert_as_before()


def test_move_is_refused_while_containers_are_running(machine: Machine) -> None:
    (machine.home / "running").write_text("train\nserve\n")
    assert "these containers are running: train, serve" in machine.move()["error"]
    (machine.home / "running").write_text("")
    machine.assert_as_before()
    assert machine.move(check=True)["error"] == ""


@pytest.mark.parametrize("lost", ["volumes/data", "containers/c1", "images/b", "volumes/data/file", "hard-link"])
def test_incomplete_copy_is_not_used(machine: Machine, lost: str) -> None:
    (machine.home / "lost").write_text(lost)
    assert f"{machine.home}/old/{lost} is missing or differs in the copy" in machine.move(delete_old=True)["error"]
    machine.assert_as_before()


def test_truncated_file_in_the_copy_is_detected(machine: Machine) -> None:
    (machine.home / "cut").write_text("volumes/data/file")
    assert "volumes/data/file is missing or differs" in machine.move(delete_old=True)["error"]
    machine.assert_as_before()


def test_images_containers_and_volumes_missing_after_the_move_are_named(program: Any) -> None:
    before = {"images": ["a", "b"], "containers": ["c1 train"], "volumes": ["local data", "local x"]}
    assert program.describe_missing(before, {**before, "images": ["a", "b", "new"]}) == ""
    assert program.describe_missing(before, {**before, "containers": []}) == "1 of 1 containers (such as c1 train)"
    after = {"images": ["b"], "containers": ["c1 train"], "volumes": ["local x"]}
    assert (
        program.describe_missing(before, after) == "1 of 2 images (such as a) and 1 of 2 volumes (such as local data)"
    )


def test_move_is_refused_if_images_are_in_containerds_store(machine: Machine) -> None:
    (machine.home / "driver").write_text('[["driver-type","io.containerd.snapshotter.v1"]]')
    assert "containerd's store, which does not move with data-root" in machine.move(check=True)["error"]
    assert "containerd's store, which does not move with data-root" in machine.move(delete_old=True)["error"]
    machine.assert_as_before()
