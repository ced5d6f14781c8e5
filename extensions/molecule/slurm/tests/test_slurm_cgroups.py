"""Features that need cgroup v2, which test hosts lack: limits of jobs, detached processes, and logins.

The cluster is one virtual machine with its own kernel.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab import files
from tests.lab.virtual_machine import VirtualMachine, virtual_machine
from tests.support import drive
from tests.support.machine_packages import add_packages

pytestmark = pytest.mark.thorough
PACKAGES = ["slurmd", "slurmctld", "slurm-client", "munge", "dbus", "libpam-slurm-adopt"]
USER = "ada"
# No driver provides them: opening one fails with "No such device or address", or else "Operation not permitted".
GPUS = ["/dev/fakegpu0", "/dev/fakegpu1"]
SETTINGS = {"slurm_enabled": True, "slurm_gpu_files": "/dev/fakegpu[0-9]*", "slurm_start_timeout": 300}


def site(machine: VirtualMachine, *options: str, **extra: Any) -> drive.Play:
    """Run the role, which takes minutes on a virtual machine."""
    return drive.run(
        "site.yml", machine.inventory, options=("--tags", "slurm", *options), timeout=1800, **SETTINGS | extra
    )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualMachine]:
    """Yield a virtual machine as a cluster to which only users with a job may log in."""
    with virtual_machine("slurmvm") as machine:
        add_packages(machine, PACKAGES, tmp_path_factory.mktemp("packages"))
        for number, path in enumerate(GPUS):
            machine.sh(f"mknod {path} c 240 {number}; chmod 666 {path}")
        machine.sh(
            f"useradd -m -u 2001 -s /bin/bash {USER} && install -d -o {USER} -g {USER} -m 700 ~{USER}/.ssh"
            f" && install -o {USER} -g {USER} ~muster/.ssh/authorized_keys ~{USER}/.ssh/authorized_keys"
        )
        play = site(machine, slurm_adopt_logins=True)
        assert play.rc == 0, play.output
        yield machine


def as_user(machine: VirtualMachine, command: str, user: str = "muster") -> str:
    """Return the output of a user's shell command, regardless of its exit status."""
    completed = machine.run(f"cd / && runuser --user={user} -- bash -c {shlex.quote(command)} 2>&1", timeout=300)
    return completed.stdout.strip()


def login(machine: VirtualMachine, command: str, user: str = USER) -> subprocess.CompletedProcess[str]:
    """Run a command in a new SSH session."""
    options = ["-o", "ConnectTimeout=60", "-o", "BatchMode=yes", "-o", "ControlPath=none"]
    arguments = ["ssh", *files.ssh_options(machine.name), *options, f"{user}@{machine.address}", command]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=180, check=False)


def test_second_run_changes_nothing(cluster: VirtualMachine) -> None:
    config = cluster.sh("scontrol show config")
    for setting in ("proctrack/cgroup", "task/affinity,task/cgroup", "jobacct_gather/cgroup"):
        assert setting in config
    play = site(cluster, slurm_adopt_logins=True)
    assert play.rc == 0 and "changed=0" in play.output, play.output


def test_job_cannot_open_another_jobs_gpu(cluster: VirtualMachine) -> None:
    opened = "; ".join(f"head -c 1 {path}" for path in GPUS)
    output = as_user(cluster, f"srun --gres=gpu:1 sh -c '{opened}'")
    assert output.count("Operation not permitted") == 1 and output.count("No such device or address") == 1, output


def test_job_that_exceeds_its_memory_is_killed(cluster: VirtualMachine) -> None:
    allocate = "srun --mem=100 python3 -c 'print(len(bytearray(300 << 20)))'"
    output = as_user(cluster, allocate)
    assert "314572800" not in output and "oom" in output.lower(), output


def test_detached_child_ends_with_its_job(cluster: VirtualMachine) -> None:
    as_user(cluster, "srun sh -c 'setsid -f sleep 4322 < /dev/null > /dev/null 2>&1'")
    drive.eventually("the child has ended", lambda: cluster.run("pgrep -f 'sleep 4322'").returncode == 1, 60)


def test_run_ends_with_its_job(cluster: VirtualMachine) -> None:
    """The supervisor, its guard and the ranks are in the cgroup of the step."""
    settings: dict[str, Any] = {
        "nnodes": 1,
        "run_id": "limited",
        "launch_script": "/tmp/ticks.py",
        "launch_args": ["--detach"],
        "launch_launcher": "env",
        "launch_python": "/usr/bin/python3",
        "launch_import_test": False,
        "launch_scheduler": "slurm",
        "launch_start_timeout": 300,
    }
    cluster.sh(f"cat > /tmp/ticks.py <<'END'\n{(drive.JOBS / 'ticks.py').read_text()}\nEND")
    play = drive.start("launch.yml", cluster.inventory, **settings)
    play.wait_for("step 3 of rank 0", 600)
    pid = cluster.sh("pgrep -f '^/usr/bin/python3 .*ticks.py'").split()[0]
    assert "/job_" in cluster.sh(f"cat /proc/{pid}/cgroup")
    as_user(cluster, "scancel --name=limited")
    play.wait(600)
    assert drive.record_of(cluster.inventory, "limited")["state"] == "stopped", play.output
    drive.eventually("no process is left", lambda: cluster.run("pgrep -f 'sleep 432|ticks.py'").returncode == 1, 120)


def test_only_users_with_a_job_may_log_in(cluster: VirtualMachine) -> None:
    refused = login(cluster, "true")
    assert refused.returncode != 0 and "no active jobs on this node" in refused.stderr, refused.stderr
    assert login(cluster, "true", "muster").returncode == 0, "the account of Ansible is always admitted"
    job = as_user(cluster, "sbatch --parsable --output=/dev/null --wrap='sleep 900'", USER)
    drive.eventually(
        "the job is running", lambda: as_user(cluster, f"squeue --noheader --jobs={job} --format=%T") == "RUNNING", 120
    )
    admitted = login(cluster, "cat /proc/self/cgroup")
    assert admitted.returncode == 0 and f"/job_{job}" in admitted.stdout, admitted.stdout + admitted.stderr
    with subprocess.Popen(
        ["ssh", *files.ssh_options(cluster.name), f"{USER}@{cluster.address}", "sleep 4323"], stderr=subprocess.DEVNULL
    ) as session:
        drive.eventually("the session is open", lambda: cluster.run("pgrep -fx 'sleep 4323'").returncode == 0, 60)
        cluster.sh(f"scancel {job}")
        assert session.wait(180) != 0, "the login ends with the job"


def test_everyone_may_log_in_again(cluster: VirtualMachine) -> None:
    play = site(cluster)
    assert play.rc == 0, play.output
    assert login(cluster, "true").returncode == 0
