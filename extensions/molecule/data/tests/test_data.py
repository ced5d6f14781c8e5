"""Buckets on all nodes: mounts, write checks, equal contents, secret files, reboots, and runs that read them."""

from __future__ import annotations

import re
import time
from functools import partial
from typing import Any

import pytest

from tests.support import drive
from tests.support.data_hosts import PATH, SECRET, Data
from tests.support.mount_s3_package import Repository

NODES = ["node1", "node2"]
AMAZON = "/mnt/amazon"
LARGE = "/srv/large files/ü"


def settings(data: Data, package: Repository) -> dict[str, Any]:
    """Return the mounts: a writable bucket and a cached directory of it with s3fs, and the bucket with mount-s3."""
    url = data.s3.url
    large = {"bucket": "data:/large", "path": LARGE, "cache": "/var/cache/large", "cache_keep_free_mib": 10}
    return {
        "s3fs_mounts": [
            {"bucket": "data", "path": PATH, "endpoint": url},
            {**large, "endpoint": url, "read_only": True},
        ],
        "mount_s3_mounts": [{"bucket": "data", "path": AMAZON, "endpoint": url, "path_style": True}],
        **package.variables,
    }


@pytest.fixture(scope="module")
def mounted(data: Data, package: Repository) -> drive.Play:
    """Return the run of site.yml that mounted everything, with verbose output."""
    play = data.site("-vvv", "--diff", **settings(data, package))
    assert play.rc == 0, play.output[-6000:]
    return play


@pytest.mark.thorough
def test_check_mode_shows_mounts_and_changes_nothing(data: Data, package: Repository) -> None:
    play = data.site("--check", "--diff", **settings(data, package))
    assert play.rc == 0, play.output[-4000:]
    assert f"+Where={PATH}" in play.output and "+Type=mount-s3" in play.output
    for name in NODES:
        assert data.sh(name, "ls -d /etc/muster /mnt/data /usr/bin/s3fs /etc/systemd/system/mnt-* 2>&1 || true").count(
            "No such file"
        ) == len(("muster", "data", "s3fs", "mnt-"))


def test_package_signed_by_unknown_key_is_refused(data: Data, package: Repository) -> None:
    play = data.site(
        "--limit", "node1", **{**settings(data, package), "s3fs_mounts": [], "mount_s3_fingerprints": ["0" * 40]}
    )
    assert play.rc == 2, play.output
    assert f"signed by {package.fingerprint}, an untrusted key" in data.words(play)
    assert data.lab.exec("node1", ["test", "-e", "/usr/bin/mount-s3"]).returncode != 0


def test_site_mounts_buckets_on_all_nodes(data: Data, mounted: drive.Play) -> None:
    content = data.s3.client().get_object(Bucket="data", Key="1.csv")["Body"].read().decode()
    assert content.startswith("0.1,0.2\n")
    for name in NODES:
        for path in (PATH, AMAZON):
            assert data.read(name, f"{path}/1.csv") == content
            assert data.sh(name, f"stat -c %U {path}/1.csv").strip() == "muster"
        assert data.read(name, f"'{LARGE}/two'") == "2"
        assert data.lab.exec(name, ["touch", f"{LARGE}/x"]).returncode != 0, "read only"
        data.sh(name, f"runuser -u muster -- sh -c 'echo {name} > {PATH}/of-{name}'")
    keys = {entry["Key"] for entry in data.s3.client().list_objects_v2(Bucket="data")["Contents"]}
    assert {"of-node1", "of-node2"} <= keys and not any("probe" in key for key in keys)
    assert any(method == "PUT" and "probe" in path for method, path in data.s3.requests), "a proof was written"
    for name in NODES:
        data.sh(name, f"rm {PATH}/of-{name}")


def test_a_second_run_changes_nothing(data: Data, mounted: drive.Play, package: Repository) -> None:
    play = data.site(**settings(data, package))
    assert play.rc == 0 and play.output.count("changed=0") == 3, play.output[-3000:]


@pytest.mark.parametrize("secret", ["secret key", "access key"])
def test_secrets_are_only_in_root_owned_files(data: Data, mounted: drive.Play, secret: str) -> None:
    value = SECRET if secret == "secret key" else data.s3.access_key
    # verbatim, and in the forms in which files and programs quote it
    forms = {value, value.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$"), repr(value)[1:-1]}
    assert not any(form in mounted.output for form in forms)
    directories = "/etc /run /var /tmp /home /root /usr/lib/systemd/system"
    for name in NODES:
        assert not any(form in item.command for item in data.lab.processes(name) for form in forms)
        logs = data.sh(name, "journalctl --no-pager --output=cat; cat /etc/fstab; systemctl show '*.mount'; mount")
        assert not any(form in logs for form in forms)
        patterns = "".join(f"{form}\n" for form in forms)
        search = f"grep -rlF -f - --exclude-dir=tests {directories} 2>/dev/null <<'END' || true\n{patterns}END\n"
        result = data.sh(name, search).split()
        credentials = "/etc/muster/mounts/"
        assert result and all(path.startswith(credentials) for path in result), result
        assert set(data.sh(name, f"stat -c '%U %a' {credentials}*").splitlines()) == {"root 600"}
        assert data.sh(name, f"stat -c '%U %a' {credentials}").strip() == "root 700"


def test_preflight_reports_mount_faults(data: Data, mounted: drive.Play) -> None:
    """Report in one run a mount that does not support renaming, and a killed mount program."""
    data.fault("node2", "pkill -KILL --full '^s3fs data /mnt/data '", "true")
    arguments = ["--output_dir", f"{AMAZON}/out", "--data", f"{AMAZON}"]
    extra: dict[str, Any] = {"preflight_args": arguments, "preflight_names": False}
    play = drive.run("preflight.yml", data.lab.inventory, **extra)
    output = data.words(play)
    assert play.rc == 2, play.output
    assert f"--output_dir is {AMAZON}/out, on {AMAZON}, a mount-s3 mount" in output
    assert "launch_working_directory is" not in output
    assert re.search(r"ERROR mount-stale node2 found: /mnt/data \(fuse.s3fs of data\) is not responding", output), (
        output
    )
    assert "mount-differs" not in output
    data.undo.clear()


def test_next_run_remounts_after_mount_program_is_killed(data: Data, mounted: drive.Play, package: Repository) -> None:
    play = data.site(**settings(data, package))
    assert play.rc == 0, play.output[-3000:]
    changed = dict(re.findall(r"(node\d) +: ok=\d+ +changed=(\d+)", data.words(play)))
    assert changed == {"node1": "0", "node2": "1"}
    assert data.read("node2", f"{PATH}/1.csv")


def test_run_trains_from_mounted_data(data: Data, mounted: drive.Play) -> None:
    for run_id, path in (("s3fs", PATH), ("mount-s3", AMAZON)):
        play = drive.launch(data.lab, "read_data.py", path, run_id=run_id, nproc_per_node=1).wait()
        assert play.rc == 0, play.output
        assert drive.record(data.lab, run_id)["state"] == "succeeded"
    assert "rank 0 on node1 epoch 2: 60 points, slope 2.000" in play.output


def test_unresponsive_server_is_reported_while_the_job_reads_nothing(data: Data, mounted: drive.Play) -> None:
    # after a while, readers get an error, which ends the run
    play = drive.launch(data.lab, "ticks.py", launch_launcher="env", run_id="silent")
    play.wait_for("step 2 of rank 0")
    data.s3.hangs = True
    try:
        play.wait_for(rf"the mount {PATH} on node\d has died: no (answer|reply) within 1\d s")
    finally:
        data.heal()
    assert drive.run("stop.yml", data.lab.inventory, run_id="silent").rc == 0
    play.wait()
    drive.nothing_left(data.lab, NODES, within=30)


def test_mount_that_dies_during_a_run_is_in_the_verdict(data: Data, mounted: drive.Play) -> None:
    play = drive.launch(data.lab, "read_data.py", PATH, "--epochs", "1000", run_id="dies", nproc_per_node=1)
    play.wait_for("epoch 2: 60 points")
    data.sh("node2", "pkill -KILL --full '^s3fs data /mnt/data '")
    play.wait()
    assert play.rc == 2, play.output
    assert "node2" in play.last_lines() and PATH in play.last_lines(), play.last_lines()
    assert "The program behind the mount (s3fs, mount-s3) exited during the job" in play.last_lines(), play.last_lines()
    drive.nothing_left(data.lab, NODES, within=30)


def test_mounts_return_after_reboot_and_dead_server_does_not_block_login(
    data: Data, mounted: drive.Play, package: Repository
) -> None:
    lab = data.lab
    data.s3.stop()
    lab.power_off("node1")
    started = time.monotonic()
    lab.power_on("node1")
    assert time.monotonic() - started < 30, "ssh waited for a mount"
    state = "systemctl list-units --type=mount --state=failed,activating --no-legend --plain 'mnt-*' | wc -l"
    drive.eventually(
        "the boot has ended", lambda: "starting" not in lab.exec("node1", ["systemctl", "is-system-running"]).stdout, 60
    )
    drive.eventually("nothing is mounted", lambda: not data.is_mounted("node1"), 60, lambda: data.sh("node1", state))
    data.s3.start()
    lab.power_off("node2")
    lab.power_on("node2")
    for path in (PATH, AMAZON, LARGE):
        escaped = path.replace(" ", "\\040")
        drive.eventually(f"{path} is mounted", partial(data.is_mounted, "node2", escaped), 120)
    assert data.read("node2", f"{PATH}/1.csv") == data.read("node2", f"{AMAZON}/1.csv")
    play = data.site(**settings(data, package))
    assert play.rc == 0, play.output[-3000:]
    assert data.read("node1", f"{PATH}/1.csv") and data.read("node1", f"{AMAZON}/1.csv")


@pytest.mark.thorough  # tests/unit/roles/test_data_mounts.py; preflight above names mounts that differ
def test_nodes_that_see_different_contents_are_named(data: Data, mounted: drive.Play, package: Repository) -> None:
    bucket = "data{{ ':/large' if inventory_hostname == 'node2' else '' }}"
    mount = {"bucket": bucket, "path": "/mnt/differs", "endpoint": data.s3.url, "read_only": True}
    play = data.site("--tags", "s3fs", s3fs_mounts=[mount])
    assert play.rc == 2, play.output
    assert "/mnt/differs: 4 names on node1, 2 names on node2" in data.words(play)
    play = data.site("--tags", "s3fs", s3fs_mounts=[{**mount, "state": "absent"}])
    assert play.rc == 0 and not any(data.is_mounted(name, "/mnt/differs") for name in NODES)


def test_absent_removes_all_mounts_and_keeps_the_data(data: Data, mounted: drive.Play, package: Repository) -> None:
    variables = settings(data, package)
    absent = {
        name: [{**mount, "state": "absent"} for mount in variables[name]] for name in ("s3fs_mounts", "mount_s3_mounts")
    }
    before = data.s3.client().list_objects_v2(Bucket="data")["KeyCount"]
    play = data.site(**{**variables, **absent})
    assert play.rc == 0, play.output[-3000:]
    for name in NODES:
        for path in (PATH, AMAZON, LARGE.replace(" ", "\\040")):
            assert not data.is_mounted(name, path)
        leftovers = data.sh(
            name, "ls /etc/muster/mounts; ls /etc/systemd/system/remote-fs.target.wants 2>/dev/null || true"
        )
        assert leftovers.split() == []
    assert data.s3.client().list_objects_v2(Bucket="data")["KeyCount"] == before
