"""Real faults: a prompt message with cause and remedy, no partial mount, and a repair by the next call."""

from __future__ import annotations

import re
import shlex
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.support import drive
from tests.support.data_hosts import PATH, Data
from tests.support.recap import unchanged

LONGEST = 40
"""Seconds for an entire play whose mount may take 30."""


@pytest.fixture(scope="module", autouse=True)
def installed(data: Data) -> None:
    """Install s3fs on node1, and remove the mount."""
    script = (
        "command -v s3fs >/dev/null || { apt-get update -q=2; apt-get install -q=2 -y --no-install-recommends s3fs; }"
    )
    completed = data.lab.exec("node1", ["bash", "-c", f"export DEBIAN_FRONTEND=noninteractive; {script}"], timeout=200)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    play = data.mount(state="absent")
    assert play.rc == 0, play.output


GIVES_UP = 36
"""Seconds within which a reader gets an error if S3 is down: 30, plus a margin for a busy machine."""


def assert_refused(node: Data, *message: str, **options: Any) -> drive.Play:
    """Mount with these options; the call must fail in time with these messages, and must not leave a mount behind."""
    started = time.monotonic()
    play = node.mount(**options)
    elapsed = time.monotonic() - started
    output = node.words(play)
    assert play.rc == 2, output
    assert elapsed < LONGEST, f"{elapsed:.0f} s: {output}"
    for text in message:
        assert text in output, f"{text!r} is not in {output}"
    assert not any(secret in output for secret in node.keys.values())
    node.nothing_left()
    return play


def assert_repaired(node: Data) -> None:
    """Mount the bucket with correct arguments; it must be readable."""
    play = node.mount()
    assert play.rc == 0, play.output
    assert node.read("node1", f"{PATH}/1.csv")


def refusing(code: str) -> Callable[[Data], dict[str, Any]]:
    def make(node: Data) -> dict[str, Any]:
        node.s3.refuse = code
        return {}

    return make


def hanging(node: Data) -> dict[str, Any]:
    node.s3.hangs = True
    return {"timeout": 12}


def offline(node: Data) -> dict[str, Any]:
    node.s3.stop()
    return {}


def read_only(node: Data) -> dict[str, Any]:
    node.s3.read_only = True
    return {}


def without_device(node: Data) -> dict[str, Any]:
    node.fault("node1", "mv /dev/fuse /dev/fuse.away", "mv /dev/fuse.away /dev/fuse")
    return {}


def not_empty(node: Data) -> dict[str, Any]:
    node.fault("node1", f"touch {PATH}/mine", f"rm {PATH}/mine")
    return {}


def cache_full(node: Data) -> dict[str, Any]:
    node.fault(
        "node1",
        "mkdir -p /srv/small; mount -t tmpfs -o size=8m tmpfs /srv/small; head -c 7M /dev/zero > /srv/small/much",
        "umount /srv/small",
    )
    return {"options": {"use_cache": "/srv/small/cache", "ensure_diskfree": 4}}


# One fault with an error reply from S3 and one without a reply. test_mounts.py in tests/unit checks all messages; tests
# below cover an occupied mount point and a full cache disk.
FEW = ("access denied", "endpoint hangs")
FAULTS: dict[str, tuple[Callable[[Data], dict[str, Any]], tuple[str, ...]]] = {
    "clock skew": (refusing("RequestTimeTooSkewed"), ("this node's clock", "timedatectl set-ntp true")),
    "access denied": (
        refusing("AccessDenied"),
        ("S3 denies access to the bucket with these credentials", "s3:ListBucket"),
    ),
    "endpoint gone": (offline, ("the endpoint is not responding", "check the endpoint's URL")),
    "endpoint hangs": (hanging, ("no reply within", "did not respond in time", "curl -v URL")),
    "keys that may not write": (read_only, ("it is not writable", "s3:PutObject")),
    "no /dev/fuse": (without_device, ("/dev/fuse is missing", "modprobe fuse", "--device /dev/fuse")),
    "mount point not empty": (not_empty, ("is not empty (it contains 'mine')", "choose another path")),
    "cache disk full": (cache_full, ("the disk of the cache directory is full", "free up space on it")),
}


@pytest.mark.parametrize(
    "problem", [name if name in FEW else pytest.param(name, marks=pytest.mark.thorough) for name in FAULTS]
)
def test_failure_is_reported_and_next_call_repairs_the_mount(node: Data, problem: str) -> None:
    inject, messages = FAULTS[problem]
    assert_refused(node, *messages, **inject(node))
    node.heal()
    assert_repaired(node)
    assert node.mount(state="unmounted").rc == 0


def wrong(node: Data) -> dict[str, tuple[dict[str, Any], tuple[str, ...]]]:
    """Return invalid arguments by name: the change, and the resulting messages."""
    return {
        "wrong access key": (
            {"credentials": {**node.keys, "access_key": "AKIANOBODY"}},
            ("S3 does not recognize the access key", "AWS_ACCESS_KEY_ID"),
        ),
        "wrong secret key": (
            {"credentials": {**node.keys, "secret_key": "wrong"}},
            ("secret key does not belong to the access key", "vault"),
        ),
        "wrong bucket": (
            {"source": "date"},
            ("this bucket or prefix does not exist", "correct the name of the bucket"),
        ),
        "wrong region": (
            {"options": {"endpoint": "eu-west-1"}},
            ("the bucket is in region us-east-1", "set the region of the mount to us-east-1"),
        ),
        "name unknown": (
            {"options": {"url": "http://nosuch.invalid"}},
            ("the name of the endpoint cannot be resolved", "correct the endpoint's URL"),
        ),
        "option unknown": ({"options": {"nonsense": 1}}, ("does not recognize the option nonsense", "remove nonsense")),
        "no credentials": ({"credentials": {}}, ("role", "access_key, secret_key")),
    }


@pytest.mark.thorough  # the same repair follows a server's fault above
def test_wrong_argument_is_reported_and_next_call_repairs_mount(node: Data) -> None:
    """Check each invalid argument on a healthy mount, the remains of the mount, and the repairing call, in one play."""
    tasks: list[dict[str, Any]] = []
    faults = wrong(node)
    module = "muster.training.data_mount"
    for name, (change, _messages) in faults.items():
        probe = f"grep -c ' {PATH} ' /proc/mounts; pgrep --full --count '^s3fs [a-z]+ {PATH} '"
        tasks += [
            {"name": "first", module: node.arguments()},
            {"name": name, module: node.arguments(**change), "ignore_errors": True},
            {"name": f"after {name}", "ansible.builtin.shell": probe, "ignore_errors": True, "register": "left"},
            {"name": f"left by {name}", "ansible.builtin.debug": {"msg": "{{ left.stdout_lines }}"}},
        ]
    play = node.play(*tasks, {"name": "last", module: node.arguments()})
    assert play.rc == 0, play.output
    task_outputs = {task.partition("] ")[0]: task for task in node.words(play).split("TASK [")[1:]}
    for name, (_change, messages) in faults.items():
        for text in messages:
            assert text in task_outputs[name], f"{text!r} is not in {task_outputs[name]}"
        assert re.search(r"- '0' - '0'|\['0', '0'\]|\[ *\"0\", *\"0\" *\]", task_outputs[f"left by {name}"]), (
            task_outputs[f"left by {name}"]
        )
    assert not any(secret in play.output for secret in node.keys.values())
    assert node.read("node1", f"{PATH}/1.csv")


def test_mount_uses_rotated_secret_key(node: Data) -> None:
    assert_repaired(node)
    before = node.s3.keys[node.s3.access_key]
    node.undo.append(lambda: node.s3.keys.__setitem__(node.s3.access_key, before))
    node.s3.keys[node.s3.access_key] = "another, 'one'"
    play = node.mount()
    assert play.rc == 0 and "changed=1" in node.words(play), play.output
    rerun = node.mount()
    assert unchanged(rerun), rerun.output
    assert node.read("node1", f"{PATH}/2.csv")


def test_a_mount_in_use_is_not_changed(node: Data) -> None:
    assert_repaired(node)
    node.fault(
        "node1",
        f"systemd-run --quiet --unit=user --working-directory={PATH} --uid=muster sleep 600",
        "systemctl stop user",
    )
    play = node.mount(read_only=True)
    output = node.words(play)
    assert play.rc == 2 and f"{PATH} is in use by" in output and "sleep" in output and "stop.yml" in output, output
    assert "rw" in node.sh("node1", f"grep ' {PATH} ' /proc/mounts").split()[3].split(",")
    node.mend()
    assert node.mount(read_only=True).rc == 0
    assert "ro" in node.sh("node1", f"grep ' {PATH} ' /proc/mounts").split()[3].split(",")


def test_foreign_mount_is_kept_until_it_is_dead_and_then_replaced(node: Data) -> None:
    assert node.mount(state="absent").rc == 0
    options = f"passwd_file=/root/keys,url={node.s3.url},use_path_request_style,allow_other"
    node.s3.keys["AKIAPLAIN"] = "plain"
    node.fault(
        "node1",
        f"umask 077; echo AKIAPLAIN:plain > /root/keys; mkdir -p {PATH}; s3fs data {PATH} -o {options}; "
        f"timeout 9 ls {PATH}",
        f"rm /root/keys; umount -l {PATH} 2>/dev/null || true",
    )
    play = node.mount()
    output = node.words(play)
    assert play.rc == 2 and "s3fs (fuse.s3fs) is already mounted there" in output and f"umount {PATH}" in output, output
    dead = f"until timeout 5 ls {PATH} 2>&1 | grep --quiet 'Transport endpoint'; do sleep 0.1; done"
    node.sh("node1", f"pkill -KILL --full '^s3fs data {PATH} '; timeout 20 bash -c {shlex.quote(dead)}")
    assert_repaired(node)


def test_dead_endpoint_gives_read_errors_and_mount_recovers_by_itself(node: Data) -> None:
    assert_repaired(node)

    def load() -> None:
        script = f"while timeout 60 cat {PATH}/1.csv > /dev/null; do :; done"
        node.lab.exec("node1", ["runuser", "-u", "muster", "--", "bash", "-c", script], timeout=120)

    reader = threading.Thread(target=load)
    node.s3.requests.clear()
    reader.start()
    drive.eventually("the file is asked for", lambda: ("GET", "/data/1.csv") in node.s3.requests, 120)
    assert reader.is_alive()
    node.s3.stop()
    started = time.monotonic()
    reader.join(60)
    assert not reader.is_alive() and time.monotonic() - started < GIVES_UP, "who reads hangs"
    node.s3.start()
    assert node.read("node1", f"{PATH}/1.csv", seconds=30)
    assert_repaired(node)


def test_hanging_mount_is_removed_and_mounted_again(node: Data) -> None:
    assert_repaired(node)
    node.s3.hangs = True
    node.lab.exec("node1", ["bash", "-c", f"setsid -f cat {PATH}/large/20M > /dev/null 2>&1"])
    assert_refused(node, "no reply within", timeout=10)
    node.heal()
    assert_repaired(node)


def test_mount_still_reads_when_cache_disk_fills_up(node: Data) -> None:
    assert node.mount(state="unmounted").rc == 0
    node.fault("node1", "mkdir -p /srv/tiny; mount -t tmpfs -o size=200m tmpfs /srv/tiny", "umount -l /srv/tiny")
    play = node.mount(options={"use_cache": "/srv/tiny/cache", "ensure_diskfree": 50}, read_only=True)
    assert play.rc == 0, play.output
    # the cache has less space than the file needs
    node.sh("node1", "head -c 135M /dev/zero > /srv/tiny/much")
    assert node.sh("node1", f"timeout 30 wc -c < {PATH}/large/20M").strip() == str(20 * 2**20)
    assert node.mount(state="absent").rc == 0
