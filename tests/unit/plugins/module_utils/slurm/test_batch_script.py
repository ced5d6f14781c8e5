"""The batch script starts the supervisor of each node with that node's directory and address."""

from __future__ import annotations

import functools
import signal
import subprocess
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.module_utils._slurm import batch_script as batch_script_module
from ansible_collections.muster.training.plugins.module_utils._slurm.batch_script import (
    EXPEDITED_REQUEUE,
    REQUEUE,
    NodeNotInClusterError,
    batch_script,
    gpu_count,
    match_nodes,
    parse_nodes,
    requeue_option,
    signal_argument,
    submit_arguments,
)
from tests.unit.supervised import eventually

SCONTROL_NODES = (
    "NodeName=node1 Arch=x86_64 NodeAddr=10.0.0.11 NodeHostName=node1 Gres=gpu:h100:8(S:0-1) Version=22\n"
    "NodeName=node2 Arch=x86_64 NodeAddr=c7.example NodeHostName=c7 Gres=gpu:4 Version=22\n"
)


def test_nodes_are_matched_by_address_or_by_name() -> None:
    cluster = parse_nodes(SCONTROL_NODES)
    nodes = [{"name": "C7", "address": "192.0.2.7"}, {"name": "any", "address": "10.0.0.11"}]
    assert [node["NodeName"] for node in match_nodes(nodes, cluster)] == ["node2", "node1"]
    with pytest.raises(NodeNotInClusterError, match=r"gpu9 at 10.0.0.9 is not in .* node1 at 10.0.0.11"):
        match_nodes([{"name": "gpu9", "address": "10.0.0.9"}], cluster)


@pytest.mark.parametrize(
    ("resources", "expected"), [("gpu:8", 8), ("gpu:h100:8(S:0-1)", 8), ("gpu:a:2,gpu:b:1", 3), ("(null)", 0), ("", 0)]
)
def test_gpus_are_counted(resources: str, expected: int) -> None:
    assert gpu_count(resources) == expected


def test_job_gets_whole_nodes_with_all_their_gpus() -> None:
    arguments = submit_arguments(
        "bert", "/home/a%b/log", parse_nodes(SCONTROL_NODES), {"partition": "gpu", "account": ""}
    )
    assert "--nodelist=node1,node2" in arguments and "--exclusive" in arguments and "--no-requeue" in arguments
    assert "--gres=gpu:4" in arguments, "as many as the node with the fewest has"
    assert "--partition=gpu" in arguments and not any(name.startswith("--account") for name in arguments)
    assert "--output=/home/a%%b/log" in arguments, "Slurm replaces %b"
    assert "--gres=none" in submit_arguments("bert", "/log", parse_nodes(SCONTROL_NODES), {"gres": "none"})


@pytest.mark.parametrize(
    ("time_limit", "notice", "expected"),
    [("", 135, ["--signal=B:USR1@135"]), ("60", 135, ["--signal=B:USR1@135"]), ("4", 135, []), ("", 0, [])],
)
def test_job_is_signaled_before_its_end_unless_it_is_short(time_limit: str, notice: int, expected: list[str]) -> None:
    assert signal_argument(time_limit, notice) == expected


@pytest.mark.parametrize(
    ("version", "parameters", "expected"),
    [
        ("25.11.0-0rc1", "enable_configless,enable_expedited_requeue", EXPEDITED_REQUEUE),
        ("26.05.3", "enable_expedited_requeue", EXPEDITED_REQUEUE),
        ("25.11.2", "enable_configless", REQUEUE),
        ("25.05.4", "enable_expedited_requeue", REQUEUE),
        ("22.05.8", "(null)", REQUEUE),
    ],
)
def test_requeue_is_expedited_where_the_cluster_allows_it(version: str, parameters: str, expected: str) -> None:
    config = (
        f"SlurmctldParameters     = {parameters}\nSLURM_CONF  = /etc/slurm/slurm.conf\nSLURM_VERSION  = {version}\n"
    )
    assert requeue_option(config) == expected


@pytest.mark.parametrize(
    ("programs", "status", "updates"),
    [
        ({}, 1, ["update JobId=12 Requeue=0"]),
        # slurmctld is not responding: better to complete than to be held forever
        ({"scontrol": "exit 1"}, 0, ["update JobId=12 Requeue=0"]),
        ({"srun": "exit 0"}, 0, []),
        ({"squeue": "echo PENDING"}, 1, []),  # the run has requeued its job
        ({"srun": "kill -TERM $PPID; exit 1"}, 0, []),  # Slurm has requeued it
    ],
)
def test_failed_run_is_not_held_in_the_queue_by_an_expedited_requeue(
    tmp_path: Path, programs: dict[str, str], status: int, updates: list[str]
) -> None:
    log = tmp_path / "updates"
    log.touch()
    for name, text in {"srun": "exit 1", "squeue": "echo RUNNING", "scontrol": "exit 0", **programs}.items():
        prologue = f'echo "$*" >> {log}; ' if name == "scontrol" else 'case "$*" in *requeue*) exit;; esac; '
        (tmp_path / name).write_text(f"#!/bin/sh\n{prologue}{text}\n")
        (tmp_path / name).chmod(0o755)
    script = batch_script("bert", [{"address": "10.0.0.1", "directory": "/"}], ["gpu1"], EXPEDITED_REQUEUE)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURMD_NODENAME": "gpu1", "SLURM_JOB_ID": "12"}
    assert subprocess.run(["/bin/sh"], input=script, env=environment, text=True, check=False).returncode == status
    assert log.read_text().splitlines() == updates


def test_signal_becomes_a_request_in_the_run_directory_of_the_batch_node(tmp_path: Path) -> None:
    """The script runs until the step has ended, with its exit code, and ignores the SIGTERM of a cancelled job."""
    for name, text in {
        "srun": f"trap '' TERM\ntouch {tmp_path}/started\nuntil [ -e {tmp_path}/go ]; do sleep 0.05; done\nexit 93",
        "squeue": "echo 2:30",
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    directory = tmp_path / "it's" / "node1"
    directory.mkdir(parents=True)
    nodes = [{"address": "10.0.0.1", "directory": "/"}, {"address": "10.0.0.2", "directory": str(directory)}]
    (tmp_path / "script").write_text(batch_script("bert", nodes, ["gpu1", "gpu2"]))
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURMD_NODENAME": "gpu2", "SLURM_JOB_ID": "12"}
    with subprocess.Popen(["/bin/sh", str(tmp_path / "script")], env=environment) as process:
        eventually(lambda: (tmp_path / "started").exists())
        process.send_signal(signal.SIGUSR1)
        eventually(lambda: (directory / "slurm-end").exists())
        process.send_signal(signal.SIGTERM)
        assert process.poll() is None
        (tmp_path / "go").touch()
        assert process.wait(30) == 93
    assert (directory / "slurm-end").read_text() == "2:30\n"


@pytest.mark.parametrize(("timeout", "end"), [(0, "false"), (3600, "[ -e {}/slept ]")], ids=["waits", "ends soon"])
@pytest.mark.parametrize("code", [0, 1])
def test_script_ends_after_a_run_that_has_lost_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timeout: int, end: str, code: int
) -> None:
    """srun may wait for the tasks of these nodes, or end while the script waits for it."""
    monkeypatch.setattr(batch_script_module, "LOST_NODE_JOB_TIMEOUT", timeout)
    programs = {
        "srun": f"touch {tmp_path}/started\nuntil {end.format(tmp_path)}; do /bin/sleep 0.1; done",
        "sleep": f'touch {tmp_path}/slept\nexec /bin/sleep "$@"',
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    nodes = [{"address": "10.0.0.1", "directory": str(tmp_path)}]
    (tmp_path / "script").write_text(batch_script("bert", nodes, ["gpu1"]))
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURMD_NODENAME": "gpu1", "SLURM_JOB_ID": "12"}
    number = signal.Signals[f"SIG{batch_script_module.END_SIGNALS[code]}"]
    # a shell cannot trap a signal that was ignored when it started, as SIGHUP is under nohup
    restore = functools.partial(signal.signal, number, signal.SIG_DFL)
    command = ["/bin/sh", str(tmp_path / "script")]
    with subprocess.Popen(command, env=environment, preexec_fn=restore, stderr=subprocess.PIPE, text=True) as process:
        eventually(lambda: (tmp_path / "started").exists())
        process.send_signal(number)
        assert process.wait(30) == code
        assert process.stderr is not None and process.stderr.read() in ("", "Killed\n")


@pytest.mark.parametrize("command", ["step=${step:-$!}", '  wait "$step"'])
def test_signal_that_arrives_shortly_before_a_wait_ends_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(batch_script_module, "LOST_NODE_JOB_TIMEOUT", 0)
    (tmp_path / "srun").write_text("#!/bin/sh\nexec /bin/sleep 600\n")
    (tmp_path / "srun").chmod(0o755)
    text = batch_script("bert", [{"address": "10.0.0.1", "directory": str(tmp_path)}], ["gpu1"])
    assert f"\n{command}\n" in text
    script = text.replace(f"\n{command}\n", f"\nkill -{batch_script_module.END_SIGNALS[1]} $$\n{command}\n", 1)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURMD_NODENAME": "gpu1", "SLURM_JOB_ID": "12"}
    for shell in ("/bin/sh", "/bin/bash"):
        completed = subprocess.run([shell, "-c", script], env=environment, timeout=30, check=False)
        assert completed.returncode == 1


FAKE_SRUN = """#!/bin/sh
while [ "$1" != /bin/sh ]; do shift; done
for name in $FAKE_NODES; do SLURMD_NODENAME=$name "$@" || echo "$name failed"; done
"""
SUPERVISOR = "import sys; print(*sys.argv)\n"


def test_script_starts_each_node_with_its_own_directory(tmp_path: Path) -> None:
    """Directories may contain spaces and quotes."""
    directories = [tmp_path / "it's" / "node0", tmp_path / "a b" / "node1"]
    for directory in directories:
        directory.mkdir(parents=True)
        (directory / "supervisor.py").write_text(SUPERVISOR)
    srun = tmp_path / "srun"
    srun.write_text(FAKE_SRUN)
    srun.chmod(0o755)
    nodes = [{"address": f"10.0.0.{number}", "directory": str(path)} for number, path in enumerate(directories)]
    script = batch_script("bert", nodes, ["gpu1", "gpu2"])
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "FAKE_NODES": "gpu2 gpu1 gpu3"}
    completed = subprocess.run(
        ["/bin/sh"], input=script, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert completed.stdout.splitlines() == [
        f"{directories[1]}/supervisor.py --guard {directories[1]} bert 10.0.0.1",
        f"{directories[0]}/supervisor.py --guard {directories[0]} bert 10.0.0.0",
        "gpu3 failed",
    ], completed.stderr
    assert "gpu3 is not a node of this run" in completed.stderr


def test_files_for_a_requeued_job_are_removed_only_at_its_end(tmp_path: Path) -> None:
    """The stand-in for srun sends SIGTERM to the script, as Slurm does when the job is requeued."""
    directory = tmp_path / "a b" / "node0"
    srun = tmp_path / "srun"
    srun.write_text('#!/bin/sh\nwhile [ "$1" != /bin/sh ]; do shift; done\nSLURMD_NODENAME=gpu1 exec "$@"\n')
    srun.chmod(0o755)
    nodes = [{"address": "10.0.0.1", "directory": str(directory)}]
    script = batch_script("bert", nodes, ["gpu1"], REQUEUE)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURMD_NODENAME": "gpu1", "SLURM_JOB_ID": "12"}
    for supervisor, remains in (("pass\n", False), ("import os\nos.kill(os.getppid(), 15)\n", True)):
        (directory / "requeue").mkdir(parents=True)
        (directory / "supervisor.py").write_text(supervisor)
        subprocess.run(["/bin/sh"], input=script, env=environment, text=True, timeout=60, check=True)
        assert (directory / "requeue").exists() is remains
