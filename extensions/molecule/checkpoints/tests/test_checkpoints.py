"""Checkpoints are copied to S3 during and after a run, and restored; data is downloaded from S3 once for all nodes."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.lab import Lab
from tests.support import drive
from tests.support.s3_server import S3Server

NODES = ["node1", "node2", "node3"]
RUNS = "/home/muster/.muster/runs"
RESTORED = "/home/muster/.muster/restored"
CREDENTIALS = "/usr/local/lib/muster/s3/credentials"
MIB = 2**20
SETTINGS = {
    "checkpoints_bucket": "saved",
    "checkpoints_patterns": ["step-*", "last.pt"],
    "checkpoints_patterns_at_end": ["best*", "big*"],
    "checkpoints_stable_for": 1,
    "checkpoints_interval": 1,
    "checkpoints_bandwidth": 25,
    "checkpoints_free_gib": 10**6,  # no disk has this much space, so every run gets a warning
    "stage_data_reserve_gib": 0.01,
}


def play(lab: Lab, s3: S3Server, playbook: str, *, options: tuple[str, ...] = (), **extra: Any) -> drive.Play:
    """Run a playbook with the credentials in its environment."""
    env = {"AWS_ACCESS_KEY_ID": s3.access_key, "AWS_SECRET_ACCESS_KEY": s3.secret_key}
    arguments = {**SETTINGS, "s3_client_endpoint_url": s3.url, "s3_client_region": s3.region, **extra}
    return drive.run(playbook, lab.inventory, env=env, options=options, timeout=300, **arguments)


def shell(lab: Lab, node: str, command: str) -> str:
    completed = lab.exec(node, ["sh", "-c", command])
    assert completed.returncode == 0, f"{node}: {command}: {completed.stdout}{completed.stderr}"
    return completed.stdout


def manifest(s3: S3Server, run_id: str, node: int = 0) -> dict[str, Any]:
    """Return the entries of latest.json by checkpoint name; empty if it does not exist."""
    client = s3.client()
    try:
        body = client.get_object(Bucket="saved", Key=f"checkpoints/{run_id}/node{node}/latest.json")["Body"].read()
    except client.exceptions.NoSuchKey:
        return {}
    result: dict[str, Any] = {}
    for entry in json.loads(body)["checkpoints"]:
        result.setdefault(entry["name"], entry)
    return result


def is_intact(s3: S3Server, entry: dict[str, Any]) -> bool:
    """Return whether the files of an entry are in S3 with their recorded hashes."""
    bodies = [(file, s3.client().get_object(Bucket="saved", Key=file["key"])["Body"].read()) for file in entry["files"]]
    return all(hashlib.sha256(body).hexdigest() == file["sha256"] for file, body in bodies)


def files(lab: Lab, node: str, directory: str) -> dict[str, str]:
    """Return SHA-256 by path of all files below a directory on a node, except the program's own files."""
    command = (
        f"cd {shlex.quote(directory)} && find . -type f -not -path './.muster-stage/*' -print0 | xargs -0 -r sha256sum"
    )
    return {line[66:]: line[:64] for line in shell(lab, node, command).splitlines()}


def status(lab: Lab, run_id: str) -> dict[str, Any]:
    completed = lab.exec("node1", ["cat", f"{RUNS}/{run_id}/node0/checkpoints.json"])
    result: dict[str, Any] = json.loads(completed.stdout) if completed.returncode == 0 else {}
    return result


def puts(s3: S3Server, word: str) -> int:
    return sum(method == "PUT" and word in path for method, path in s3.requests)


def launch(lab: Lab, run_id: str, *args: str, **extra: Any) -> drive.Play:
    return drive.launch(lab, "saves.py", *args, run_id=run_id, launch_launcher="env", nproc_per_node=1, **extra)


PLANTED = """
set -e
rm -rf /opt/planted /opt/adopted /run/planted
for place in /opt/planted/s3 /opt/adopted; do
  mkdir -p $place/env/bin $place/store
  printf '#!/bin/sh\\nid >>/run/planted\\n' >$place/env/bin/python
  chmod 755 $place/env/bin/python
  cp $place/env/bin/python $place/store/pip-25.0.1-py3-none-any.whl
  printf venv >$place/env/.muster
done
chown -R daemon:daemon /opt/planted /opt/adopted
"""


STAGE_LOCAL = {"stage_data_here": str(Path(__file__).parent), "stage_data_destination": "/srv/planted"}


@pytest.mark.parametrize(
    ("playbook", "directory", "extra"),
    [
        ("checkpoints.yml", "/opt/planted/s3", {}),
        ("checkpoints.yml", "/opt/adopted", {}),
        # without a bucket, nothing needs boto3
        ("stage_data.yml", "/opt/planted/new", {**STAGE_LOCAL, "stage_data_bucket": ""}),
    ],
)
def test_root_writes_and_runs_no_program_below_a_users_directory(
    lab: Lab, s3: S3Server, playbook: str, directory: str, extra: dict[str, Any]
) -> None:
    shell(lab, "node1", PLANTED)
    completed = play(lab, s3, playbook, options=("--limit", "node1"), s3_client_directory=directory, **extra)
    output = " ".join(completed.output.split())
    assert completed.rc == 2, completed.output[-3000:]
    user_directory = "/".join(directory.split("/")[:3])
    assert f"{user_directory} does not belong to root, and root would trust the contents of {directory}" in output, (
        output[-3000:]
    )
    shell(lab, "node1", 'test ! -e /run/planted && test -z "$(find /opt/planted /opt/adopted -user root)"')
    shell(lab, "node1", "rm -rf /opt/planted /opt/adopted")


@pytest.fixture(scope="module")
def service(lab: Lab, s3: S3Server) -> Lab:
    """Return the hosts with the service, after check mode, installation, and a second run without changes."""
    for options in (("--check",), ("-vvv", "--diff"), ()):
        completed = play(lab, s3, "checkpoints.yml", options=options)
        assert completed.rc == 0, completed.output[-5000:]
        assert s3.secret_key not in completed.output
    assert completed.output.count("changed=0") == 3, completed.output[-3000:]
    return lab


@pytest.fixture(scope="module")
def lab_after_run(service: Lab, s3: S3Server) -> Lab:
    """Return the hosts after a run that saved checkpoints and ended; check the copies made during the run."""
    lab = service
    run = launch(lab, "first", "--until", "/tmp/end-it")
    drive.eventually(
        "the last step is copied", lambda: "step-3" in manifest(s3, "first"), 60, lambda: run.output[-2000:]
    )
    drive.eventually("the file written again is copied", lambda: "last.pt" in manifest(s3, "first"), 120)
    run.wait_for(r"\[muster\] node1: checkpoint step-3 \(\S+ kB\) was copied to S3")
    run.wait_for(r"\[muster\] node1: WARNING: \S+/checkpoints has .* free, less than 1e\+06 GiB")
    assert "best.pt" not in manifest(s3, "first"), "that waits for the end"
    for name in NODES:
        shell(lab, name, "touch /tmp/end-it")
    assert run.wait().rc == 0, run.output[-3000:]
    return lab


def test_checkpoints_of_a_run_are_copied_to_s3(lab_after_run: Lab, s3: S3Server) -> None:
    completed = play(lab_after_run, s3, "checkpoints.yml", checkpoints_state="copied", run_id="first")
    assert completed.rc == 0, completed.output[-3000:]
    result = manifest(s3, "first")
    assert sorted(result) == ["best.pt", "last.pt", "step-1", "step-2", "step-3"]
    assert all(is_intact(s3, entry) for entry in result.values())
    assert "best.pt" in completed.output
    assert manifest(s3, "first", 1) == {}, "the other nodes copy nothing"


def test_upload_resumes_after_service_is_killed_and_s3_goes_down(lab_after_run: Lab, s3: S3Server) -> None:
    folder = f"{RUNS}/first/node0/checkpoints"
    shell(lab_after_run, "node1", f"head -c {150 * MIB} /dev/urandom > {folder}/big.pt; chown muster {folder}/big.pt")
    s3.requests.clear()
    drive.eventually(
        "two parts are there", lambda: puts(s3, "big.pt") >= 3, 30, lambda: str(status(lab_after_run, "first"))
    )
    shell(lab_after_run, "node1", "kill -9 $(systemctl show --value --property=MainPID muster_checkpoints)")
    uploaded_parts = puts(s3, "big.pt")
    drive.eventually("it continues", lambda: puts(s3, "big.pt") > uploaded_parts + 1, 120)
    s3.stop()
    drive.eventually(
        "the problem is told", lambda: "connect" in status(lab_after_run, "first").get("problem", "").lower(), 120
    )
    s3.start()
    drive.eventually("it is copied", lambda: "big.pt" in manifest(s3, "first"), 60, lambda: str(s3.requests[-20:]))
    assert is_intact(s3, manifest(s3, "first")["big.pt"])
    assert puts(s3, "big.pt") <= 10 + 10, "10 parts, and those that were under way"
    assert s3.client().list_multipart_uploads(Bucket="saved").get("Uploads", []) == []
    journal = "journalctl --unit=muster_checkpoints"
    drive.eventually("that is told", lambda: "copied to S3 again" in shell(lab_after_run, "node1", journal), 120)


def test_overwritten_checkpoint_keeps_two_versions(lab_after_run: Lab, s3: S3Server) -> None:
    path = f"{RUNS}/first/node0/checkpoints/last.pt"
    for text in ("once more", "and again"):
        shell(lab_after_run, "node1", f"echo {text} > {path}")
        expected = hashlib.sha256(f"{text}\n".encode()).hexdigest()
        copied: Callable[[], bool] = lambda: manifest(s3, "first")["last.pt"]["files"][0]["sha256"] == expected  # noqa: B023, E731
        drive.eventually(f"{text!r} is copied", copied, 120)
    arguments = {"Bucket": "saved", "Prefix": "checkpoints/first/node0/data/last.pt@"}
    drive.eventually("the oldest is removed", lambda: s3.client().list_objects_v2(**arguments)["KeyCount"] == 2, 120)


def test_checkpoint_is_restored_to_all_nodes(lab_after_run: Lab, s3: S3Server) -> None:
    arguments: dict[str, Any] = {"checkpoints_state": "restored", "run_id": "first", "checkpoints_name": "big.pt"}
    s3.requests.clear()
    completed = play(lab_after_run, s3, "checkpoints.yml", **arguments)
    assert completed.rc == 0, completed.output[-3000:]
    expected = {"./big.pt": manifest(s3, "first")["big.pt"]["files"][0]["sha256"]}
    for name in NODES:
        assert files(lab_after_run, name, f"{RESTORED}/first") == expected
    gets = [path for method, path in s3.requests if method == "GET" and "/data/big.pt" in path]
    assert len(gets) == 3, "three pieces, each once"


def test_corrupt_checkpoint_is_not_restored(lab_after_run: Lab, s3: S3Server) -> None:
    file = manifest(s3, "first")["step-2"]["files"][0]
    body = s3.client().get_object(Bucket="saved", Key=file["key"])["Body"].read()
    s3.client().put_object(Bucket="saved", Key=file["key"], Body=body[:-1] + b"?")
    completed = play(
        lab_after_run, s3, "checkpoints.yml", checkpoints_state="restored", run_id="first", checkpoints_name="step-2"
    )
    assert completed.rc == 2
    assert re.search(r"object \S+shard-0.bin in bucket saved is corrupt", unwrap(completed.output)), completed.output[
        -3000:
    ]
    assert not any("step-2" in path for name in NODES for path in files(lab_after_run, name, f"{RESTORED}/first"))


@pytest.fixture(scope="module")
def data(s3: S3Server) -> dict[str, str]:
    """Upload objects for staging, and return their SHA-256 by path."""
    client, result = s3.client(), {}
    for number in range(60):
        body = f"picture {number} ".encode() * (1000 + 37 * number)
        client.put_object(Bucket="data", Key=f"train/class {number % 3}/{number:03}.jpg", Body=body)
        result[f"./class {number % 3}/{number:03}.jpg"] = hashlib.sha256(body).hexdigest()
    large = bytes(range(251)) * (200 * MIB // 251)
    client.put_object(Bucket="data", Key="train/shard.tar", Body=large)
    result["./shard.tar"] = hashlib.sha256(large).hexdigest()
    client.put_object(Bucket="data", Key="other/not-wanted", Body=b"1")
    return result


def megabytes_received(output: str, node: str) -> tuple[float, float]:
    """Return the megabytes that a node received from S3 and from the other nodes."""
    pattern = rf"ok: \[{node}\] => msg: [^=]*? of them new, ([\d.]+) MB from S3, ([\d.]+) MB from the other"
    result = re.search(pattern, unwrap(output))
    assert result, output[-3000:]
    return float(result[1]), float(result[2])


def unwrap(output: str) -> str:
    """Return an output without the line breaks that Ansible adds."""
    return " ".join(output.split())


def test_data_is_downloaded_from_s3_once_for_all_nodes(service: Lab, s3: S3Server, data: dict[str, str]) -> None:
    arguments: dict[str, Any] = {
        "stage_data_bucket": "data",
        "stage_data_prefix": "train/",
        "stage_data_destination": "/srv/data",
    }
    s3.requests.clear()
    completed = play(service, s3, "stage_data.yml", options=("-vvv", "--diff"), **arguments)
    assert completed.rc == 0, completed.output[-3000:]
    assert s3.secret_key not in completed.output
    gets = [path for method, path in s3.requests if method == "GET" and path.startswith("/data/train/")]
    assert len(gets) == 60 + 4, "each object once, the large one in four pieces"
    total = 0.0
    for name in NODES:
        assert files(service, name, "/srv/data") == data
        from_s3, from_peers = megabytes_received(completed.output, name)
        assert 40 < from_s3 < 140, completed.output[-3000:]
        assert from_peers > 60
        total += from_s3
    assert 211 < total < 216, total


def test_staging_is_refused_without_enough_disk_space(service: Lab, s3: S3Server, data: dict[str, str]) -> None:
    shell(service, "node3", "mkdir -p /srv/small && mount -t tmpfs -o size=50m none /srv/small")
    arguments: dict[str, Any] = {
        "stage_data_bucket": "data",
        "stage_data_prefix": "train/",
        "stage_data_destination": "/srv/small",
    }
    completed = play(service, s3, "stage_data.yml", **arguments)
    shell(service, "node3", "umount /srv/small")
    assert completed.rc == 2
    assert re.search(
        r"node3: s3://data/train/ to /srv/small: /srv/small has 52.4 MB free, but needs 21\d.\d MB",
        unwrap(completed.output),
    )


def test_rejected_credentials_are_reported_and_can_be_rotated(lab_after_run: Lab, s3: S3Server) -> None:
    keys, s3.keys = s3.keys, {"AKIAROTATED": "rotated/secret"}
    folder = f"{RUNS}/first/node0/checkpoints"
    shell(lab_after_run, "node1", f"echo new > {folder}/best-2.pt; chown muster {folder}/best-2.pt")
    drive.eventually(
        "it is told",
        lambda: "S3 does not recognize the access key" in status(lab_after_run, "first").get("problem", ""),
        120,
    )
    access, s3.access_key = s3.access_key, "AKIAROTATED"
    s3.secret_key = "rotated/secret"
    try:
        completed = play(lab_after_run, s3, "checkpoints.yml")
        assert completed.rc == 0, completed.output[-3000:]
        drive.eventually("it is copied", lambda: "best-2.pt" in manifest(s3, "first"), 120)
    finally:
        s3.keys.update(keys)
        s3.access_key, s3.secret_key = access, keys[access]


def test_secret_key_is_only_in_the_credentials_file(lab_after_run: Lab, s3: S3Server) -> None:
    """The file contains only the current key."""
    current_key = s3.keys.get("AKIAROTATED", s3.secret_key)
    # -xdev: skip this machine's file systems, which the hosts can see
    directories = "/etc /opt /srv /tmp /usr/local /var /home /run"
    find = f"find {directories} -ignore_readdir_race -xdev -type f -newer /var/lib/lab/seeded"
    text = shlex.join(f"--regexp={secret}" for secret in s3.keys.values())
    grep = shlex.quote(f'grep -aosHF {text} -- "$@" || true')  # grep exits with 1 if there are no matches
    for name in NODES:
        result = shell(lab_after_run, name, f"{find} -exec sh -c {grep} sh {{}} +")
        assert set(result.splitlines()) == {f"{CREDENTIALS}:{current_key}"}
        journal = shell(lab_after_run, name, "journalctl --no-pager")
        for secret in s3.keys.values():
            assert not any(secret in item.command for item in lab_after_run.processes(name))
            assert secret not in journal
        assert shell(lab_after_run, name, f"stat -c '%a %U' {CREDENTIALS}").strip() == "600 muster"


def test_absent_stops_service_and_removes_credentials(lab_after_run: Lab, s3: S3Server) -> None:
    completed = play(lab_after_run, s3, "checkpoints.yml", checkpoints_state="absent")
    assert completed.rc == 0, completed.output[-2000:]
    for name in NODES:
        assert lab_after_run.exec(name, ["systemctl", "is-active", "muster_checkpoints"]).returncode != 0
        assert lab_after_run.exec(name, ["test", "-e", CREDENTIALS]).returncode == 1
