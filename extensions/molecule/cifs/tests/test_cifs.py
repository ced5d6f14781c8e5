"""A real network drive on a real Samba server: mount check, passwords, faults and restarts.

All tests share one virtual machine; each test continues from the state of the previous one.
"""

from __future__ import annotations

import re
import shlex
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run.timeouts import MOUNT_CHECK_TIMEOUT
from ansible_collections.muster.training.plugins.module_utils._supervisor.watchers import MOUNT_CHECK
from tests.lab.virtual_machine import VirtualMachine, virtual_machine
from tests.support import drive
from tests.support.samba_server import SambaServer, samba_server

PATH = "/mnt/training-data"
UNIT = r"mnt-training\x2ddata.mount"
SECRET = "Xk7Qw9, \"a'b#c ä€\\%h$x` "
SHARES = {"training-data": "training", "other data": "other"}
USERS = {"trainer": SECRET}
NEEDLES = ("Xk7Qw9", "Jd4Vt2")
"""Parts of the passwords to search for: programs that print a password may escape other characters."""
LONGEST_WAIT = 30
"""Seconds until a fault must be reported. Plays get more: on a virtual machine, Python takes a second to start."""


@dataclass
class Bench:
    """A machine, a network drive, and its current password."""

    machine: VirtualMachine
    server: SambaServer
    password: str = SECRET

    def play(self, playbook: str, *options: str, **extra: Any) -> drive.Play:
        """Run a playbook; user and password come from this machine's environment."""
        environment = {"CIFS_USERNAME": "trainer", "CIFS_PASSWORD": self.password}
        return drive.run(playbook, self.machine.inventory, timeout=400, options=options, env=environment, **extra)

    def site(self, *options: str) -> drive.Play:
        """Run the role cifs_share of site.yml, with a share as shown in Paperspace's console."""
        address = self.machine.machine_address
        share = {
            "share": rf"\\{address}\training-data",
            "path": PATH,
            "port": self.server.port,
            "options": {"iocharset": "utf8"},
        }
        return self.play("site.yml", "--tags", "cifs_share", *options, cifs_share_mounts=[share])

    def share(self, name: str) -> str:
        """Return the source of a share, as used for mounting."""
        return f"//{self.machine.machine_address}/{name}"

    def module(self, share: str = "training-data", **extra: Any) -> drive.Play:
        """Run only the module, in a single task."""
        settings = {"smb_port": self.server.port, "drive_share": self.share(share)}
        return self.play(str(Path(__file__).with_name("mount.yml")), **settings, **extra)

    def mount(self, **extra: Any) -> drive.Play:
        """Mount with the module; it must succeed, and the mount must exist."""
        play = self.module(**extra)
        assert play.rc == 0, play.output
        assert self.mounted()
        return play

    def assert_refused(self, *expected_text: str, **extra: Any) -> None:
        """Mount with the module; it must fail with this message, mount nothing, and show no secret."""
        play = self.module(**extra)
        text = " ".join(play.output.split())
        assert play.rc == 2 and not [word for word in expected_text if word not in text], (
            f"{expected_text}:\n{play.output}"
        )
        assert "To do: " in text and "Traceback" not in text and not leaked_secrets(text)
        assert self.mounted() == ""

    def mounted(self) -> str:
        """Return the line of the mount in /proc/mounts, "" without one."""
        lines = self.machine.sh("cat /proc/mounts").splitlines(keepends=True)
        assert lines
        return "".join(line for line in lines if f" {PATH} " in line)

    def write_and_read(self, text: str) -> None:
        """Write as the user who runs jobs; the file must appear on the server."""
        self.machine.sh(f"sudo -u muster sh -c 'echo {text} > {PATH}/written && cat {PATH}/written'")
        share = next(path for name, path in self.server.shares.items() if name.startswith("training"))
        assert (share / "written").read_text() == f"{text}\n"


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    """Yield the machine for the whole scenario."""
    with virtual_machine("cifs") as machine, samba_server(machine.machine_address, SHARES, USERS) as server:
        (server.shares["other data"] / "hello").write_text("hello\n")
        yield Bench(machine, server)


def leaked_secrets(text: str) -> list[str]:
    """Return the passwords that a text contains."""
    return [needle for needle in NEEDLES if needle in text]


def changes(play: drive.Play) -> int:
    """Return the number of changed tasks."""
    return sum(int(number) for number in re.findall(r"changed=(\d+)", play.output))


@pytest.mark.thorough  # buckets are mounted by the same task files; in molecule/data they are tested in check mode
def test_check_mode_changes_nothing(bench: Bench) -> None:
    play = bench.site("--check", "--diff")
    assert play.rc == 0 and f"What={bench.share('training-data')}" in play.output, play.output
    assert bench.mounted() == ""
    listing = bench.machine.run(f"ls -d / /etc/muster /mnt/* '/etc/systemd/system/{UNIT}' /sbin/mount.cifs")
    assert (listing.returncode, listing.stdout) == (2, "/\n"), listing


def test_share_is_mounted_and_probed_and_second_run_changes_nothing(bench: Bench) -> None:
    (bench.server.shares["training-data"] / "first").write_text("1\n")
    play = bench.site("--diff", "-vvv")
    assert play.rc == 0, play.output
    assert "probe: true" in play.output and "count: 1" in play.output
    assert {"vers=3.1.1", "uid=1000", "gid=1000", "nosuid", "rw"} <= set(re.split("[ ,]", bench.mounted()))
    bench.write_and_read("by-the-user")
    assert not list(bench.server.shares["training-data"].glob(".muster*")), "probes are removed"
    assert not leaked_secrets(play.output)
    rerun = bench.site()
    assert rerun.rc == 0 and changes(rerun) == 0, rerun.output


def test_password_is_stored_only_in_a_root_owned_file(bench: Bench) -> None:
    result = bench.machine.sh(f"grep -rlsF {NEEDLES[0]} /etc /run /var /tmp /home /root /dev/shm | xargs -r ls -l")
    assert re.fullmatch(r"-rw------- 1 root root .* /etc/muster/mounts/mnt-training-data-\w+\.credentials\n", result)
    for command in ("journalctl --no-pager --all", "ps -eww", "cat /proc/mounts", "systemctl show '*.mount'", "dmesg"):
        assert not leaked_secrets(bench.machine.sh(command)), command


def test_changed_password_is_stored_and_share_remounted(bench: Bench) -> None:
    bench.password = "Jd4Vt2 = 'u'"  # this kernel can reconnect only with an ASCII password
    bench.server.set_password("trainer", bench.password)
    play = bench.mount()
    assert changes(play) == 1
    bench.write_and_read("with-the-new-password")
    assert changes(bench.mount()) == 0


@pytest.mark.thorough  # molecule/data: buckets are mounted by the same module
def test_mount_in_use_is_left_unchanged(bench: Bench) -> None:
    bench.machine.sh(f"cd {PATH}; sleep 300 >/dev/null 2>&1 & echo $! > /run/user-of-the-mount")
    play = bench.module(drive_options={"seal": True})
    assert play.rc == 2 and re.search(r"is in use by \d+ sleep", " ".join(play.output.split())), play.output
    assert "seal" not in bench.mounted()
    bench.machine.sh("kill $(cat /run/user-of-the-mount)")
    bench.mount(drive_options={"seal": True})
    assert ",seal," in bench.mounted()
    bench.write_and_read("encrypted")


def test_error_reports_wrong_password_or_read_only_share(bench: Bench) -> None:
    correct_password, bench.password = bench.password, "wrong, of course"
    bench.assert_refused(
        "it cannot be mounted", "does not accept this username and password", "correct the username and password"
    )
    bench.password = correct_password
    with bench.server.read_only("training-data"):
        bench.assert_refused("this user may read the share, but not write to it", "set read_only: true")
    bench.mount()


@pytest.mark.thorough  # tests/unit/plugins/module_utils/mounts/test_mounts.py checks all messages
def test_error_reports_wrong_share_port_or_option(bench: Bench) -> None:
    bench.assert_refused("has no share with this name", "correct the source", share="nosuch")
    bench.assert_refused("nothing is listening on its SMB port", "set the port option", drive_options={"port": 9})
    bench.assert_refused("does not recognize the option nonsense", "remove nonsense", drive_options={"nonsense": 1})
    bench.mount(share="other data")
    assert bench.machine.sh(f"cat {PATH}/hello") == "hello\n"
    bench.mount()


@pytest.mark.thorough
def test_renamed_share_is_refused_until_source_is_corrected(bench: Bench) -> None:
    bench.server.rename_share("training-data", "training-2")
    bench.assert_refused("has no share with this name", "correct the source")
    bench.mount(share="training-2")
    bench.write_and_read("under-its-new-name")
    bench.server.rename_share("training-2", "training-data")
    bench.mount()


@pytest.mark.thorough  # a server that stops responding affects more, and it also recovers
def test_mount_recovers_after_server_restart(bench: Bench) -> None:
    bench.server.stop()
    started = time.monotonic()
    completed = bench.machine.run(f"cat {PATH}/written")
    assert completed.returncode == 1 and time.monotonic() - started < LONGEST_WAIT, completed.stderr
    bench.server.start()
    command = f"cat {PATH}/written"
    drive.eventually("it is responding again", lambda: bench.machine.run(command).returncode == 0, LONGEST_WAIT)
    bench.write_and_read("and-comes-back-by-itself")
    assert changes(bench.mount()) == 0


def test_unresponsive_server_is_reported_and_readers_recover(bench: Bench) -> None:
    """Mounting fails with a message while readers wait in the kernel; meanwhile no process list shows a password."""
    processes: list[str] = []
    exit_codes: list[int] = []
    stop_event = threading.Event()

    def watch() -> None:
        while not stop_event.is_set():
            processes.append(bench.machine.run("ps -eww -o args; cat /proc/mounts").stdout)
            stop_event.wait(1)

    watcher = threading.Thread(target=watch)
    reader = threading.Thread(target=lambda: exit_codes.append(bench.machine.run(f"cat {PATH}/written").returncode))
    watcher.start()
    try:
        with bench.server.silent():
            reader.start()
            probe = f"timeout {MOUNT_CHECK_TIMEOUT} python3 -ISc {shlex.quote(MOUNT_CHECK)} {PATH}"
            assert bench.machine.run(probe).returncode == 124, "a run would not notice"
            bench.assert_refused("is not responding", "private network")
        reader.join(LONGEST_WAIT)
        assert exit_codes, "who reads still waits, although the server answers"
    finally:
        stop_event.set()
        watcher.join()
    assert any(f"mount.cifs {bench.share('training-data')}" in text for text in processes)
    assert not leaked_secrets("".join(processes))
    assert not leaked_secrets(bench.machine.sh("journalctl --no-pager --all; [ ! -e /etc/fstab ] || cat /etc/fstab"))
    bench.mount()


@pytest.mark.thorough
def test_machine_boots_without_its_share_and_next_run_mounts_it(bench: Bench) -> None:
    bench.server.stop()
    bench.machine.restart()
    assert bench.mounted() == ""
    assert bench.machine.sh("systemctl is-active ssh.service") == "active\n"
    bench.assert_refused("nothing is listening on its SMB port", "start the file server")
    bench.server.start()
    bench.mount()
    bench.write_and_read("after-a-start-without")


@pytest.mark.thorough  # molecule/data tests this for buckets, with the same unit
def test_share_is_mounted_again_after_reboot(bench: Bench) -> None:
    bench.machine.restart()
    drive.eventually("it is mounted", lambda: bench.mounted() != "", 120)
    bench.write_and_read("after-a-restart")
    assert changes(bench.mount()) == 0


def test_unmounted_keeps_configuration_and_absent_removes_it(bench: Bench) -> None:
    files = f"'/etc/systemd/system/{UNIT}' /etc/muster/mounts/*"
    for state, file_count in (("unmounted", 2), ("absent", 0)):
        for change in (1, 0):
            play = bench.module(drive_state=state)
            assert play.rc == 0 and changes(play) == change, play.output
        listing = bench.machine.run(f"ls -d / {files}")
        assert (listing.returncode, len(listing.stdout.split())) == (0 if file_count else 2, 1 + file_count), listing
        assert bench.mounted() == ""
        # 1: disabled, or missing in some versions; 4: missing
        assert bench.machine.run(f"systemctl is-enabled '{UNIT}'").returncode in (1, 4)
    assert (bench.server.shares["training-data"] / "first").exists()


@pytest.mark.thorough
def test_kernel_without_cifs_is_refused(bench: Bench) -> None:
    drive.eventually("CIFS is gone", lambda: bench.machine.run("modprobe --remove cifs").returncode == 0, 120)
    bench.machine.sh("echo 'install cifs /bin/false' > /etc/modprobe.d/no-cifs.conf")
    play = bench.module()
    text = " ".join(play.output.split())
    assert play.rc == 2 and "does not support cifs, and `modprobe cifs` failed" in text, play.output
    assert "linux-modules-extra" in text and "Traceback" not in text
    bench.machine.sh("rm /etc/modprobe.d/no-cifs.conf")
    bench.mount()
