"""A cluster set up by somebody else, used from its login host by a user without root, and without a shared home.

It is configured manually, without the role. node3 is the login host, and runs no jobs.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab import Lab, files
from tests.support import drive
from tests.support.drive import root_shell
from tests.support.slurm_hosts import as_user, end_run, pid_of

pytestmark = pytest.mark.thorough
USER = "ada"
LOGIN = "node3"
DAEMONS = {"node1": "slurmctld slurmd", "node2": "slurmd", LOGIN: ""}
APT = "DEBIAN_FRONTEND=noninteractive apt-get -qq -y install --no-install-recommends munge slurm-client"
CONFIGURATION = """\
ClusterName=campus
SlurmctldHost=c1({controller})
SlurmUser=slurm
AuthType=auth/munge
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
ReturnToService=2
KillOnBadExit=1
{nodes}
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
PartitionName=gpu Nodes=ALL Default=YES State=UP MaxTime=60 PriorityTier=1 GraceTime=60
PartitionName=urgent Nodes=ALL State=UP MaxTime=60 PriorityTier=9 PreemptMode=OFF
"""


@dataclass
class Campus:
    """The cluster from its user's point of view."""

    lab: Lab
    inventory: Path
    env: dict[str, str]

    @property
    def runs(self) -> Path:
        """Return the directory of the records."""
        return self.inventory.parent / "runs"

    def play(self, playbook: str, **extra: Any) -> drive.Play:
        """Start a playbook with the user's inventory and connections."""
        ranks = str(self.inventory.with_name("ranks.yml"))
        return drive.start(playbook, self.inventory, options=("-i", ranks), env=self.env, **extra)

    def launch(self, run_id: str, *args: str, **extra: Any) -> drive.Play:
        """Launch ticks.py on two nodes that Slurm chooses."""
        settings: dict[str, Any] = {
            "launch_script": str(drive.JOBS / "ticks.py"),
            "launch_args": list(args),
            "launch_launcher": "env",
            "launch_python": "/usr/bin/python3",
            "launch_import_test": False,
            "launch_scheduler": "slurm",
            "launch_slurm_choose": True,
        }
        return self.play("launch.yml", nnodes=2, run_id=run_id, **settings, **extra)


def set_up(lab: Lab) -> None:
    """Install and configure Slurm as an administrator would, with names that differ from those of the machines."""
    names = {"node1": "c1", "node2": "c2"}
    commands = [f"apt-get -qq update && {APT} {daemons} > /dev/null" for daemons in DAEMONS.values()]
    with ThreadPoolExecutor() as pool:
        list(pool.map(partial(root_shell, lab), DAEMONS, commands))
    shape = root_shell(lab, "node1", "slurmd -C").splitlines()[0]
    shape = re.sub(r"NodeName=\S+ ", "", re.sub(r"RealMemory=\d+", "RealMemory=500", shape))
    lines = [f"NodeName={names[node]} NodeAddr={lab.node(node).address} {shape}" for node in names]
    text = CONFIGURATION.format(controller=lab.node("node1").address, nodes="\n".join(lines))
    key = root_shell(lab, "node1", "base64 --wrap=0 /etc/munge/munge.key")
    public = root_shell(lab, "node1", "cat /home/muster/.ssh/authorized_keys")
    for node, daemons in DAEMONS.items():
        root_shell(lab, node, "systemctl stop slurmd slurmctld munge; true")
        root_shell(lab, node, f"mkdir -p /etc/slurm; cat > /etc/slurm/slurm.conf <<'END'\n{text}END")
        root_shell(lab, node, "echo 'CgroupPlugin=cgroup/v1' > /etc/slurm/cgroup.conf")
        root_shell(lab, node, f"echo {key} | base64 -d > /etc/munge/munge.key && systemctl start munge")
        root_shell(
            lab, node, "rm -rf /var/lib/slurm/slurmctld/*; getent passwd ada || useradd -m -u 2001 -s /bin/bash ada"
        )
        root_shell(lab, node, f"install -d -o ada -g ada -m 700 ~ada/.ssh; echo '{public}' > ~ada/.ssh/authorized_keys")
        if daemons:
            root_shell(lab, node, f"echo 'SLURMD_OPTIONS=\"-N {names[node]}\"' > /etc/default/slurmd")
            # the controller starts only on the host that it is configured for
            root_shell(lab, node, f"hostname {names[node]}; systemctl start {daemons}")
    drive.eventually(
        "the nodes are idle",
        lambda: as_user(lab, LOGIN, "sinfo --noheader --format='%D %T'", USER) == "2 idle",
        120,
        lambda: root_shell(lab, "node1", "sinfo; tail -n 20 /var/log/syslog; journalctl -n 40 -u slurmd -u slurmctld"),
    )


def remove(lab: Lab) -> None:
    for node, daemons in DAEMONS.items():
        root_shell(
            lab,
            node,
            f"systemctl stop {daemons} munge; hostname {node}; rm -rf /etc/slurm/*.conf /etc/default/slurmd"
            " /var/lib/slurm/slurmctld/*",  # slurmctld refuses to start for another cluster's name
        )


@pytest.fixture(scope="module")
def campus(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campus]:
    """Yield the cluster, with the inventory that `init -e source=slurm` writes."""
    set_up(lab)
    directory = tmp_path_factory.mktemp("campus")
    folder = files.directory(lab.name)
    (directory / "config").write_text(
        f"Host *\n  IdentityFile {folder}/id_ed25519\n  UserKnownHostsFile {folder}/known_hosts\n"
        "  IdentitiesOnly yes\n  StrictHostKeyChecking yes\n"
    )
    for program in ("ssh", "scp", "sftp"):  # installed as if it were the user's own configuration
        path = directory / program
        path.write_text(f'#!/bin/sh\nexec /usr/bin/{program} -F {directory}/config "$@"\n')
        path.chmod(0o755)
    login = f"{USER}@{lab.node(LOGIN).address}"
    settings = {"plugin": "muster.training.slurm", "login": login, "partition": "gpu"}
    inventory = directory / "slurm.yml"
    inventory.write_text(yaml.safe_dump(settings))
    (directory / "ranks.yml").write_text("plugin: muster.training.ranks\n")
    yield Campus(lab, inventory, {"PATH": f"{directory}:{os.environ['PATH']}"})
    remove(lab)


def test_user_without_root_trains_on_nodes_that_slurm_chooses(campus: Campus) -> None:
    lab = campus.lab
    assert lab.exec("node1", ["runuser", f"--user={USER}", "--", "sudo", "-n", "true"]).returncode != 0
    play = campus.launch("first", "--until", "enough")
    play.wait_for(r"\[muster\] Slurm job \d+ was allocated c1, c2")
    play.wait_for(r"I am rank 0 of 2 on c1, ada at home in /home/ada")
    assert "first" in as_user(lab, LOGIN, "squeue --noheader --format=%j", USER)
    status = campus.play("status.yml", run_id="first").wait()
    assert status.rc == 0 and re.search(r"c2\b.*\brunning", status.output), status.output
    end_run(lab, "first", user=USER)
    assert play.wait().rc == 0, play.output
    logs = campus.play("logs.yml", run_id="first", fetch=True).wait()
    assert logs.rc == 0 and list(campus.runs.glob("first/logs/node1/**/*.log")), logs.output
    for playbook in ("report.yml", "runs.yml"):
        completed = campus.play(playbook).wait()
        assert completed.rc == 0 and "first" in completed.output, completed.output
    drive.eventually("the job has ended", lambda: as_user(lab, LOGIN, "squeue --noheader", USER) == "", 60)
    leftovers = root_shell(lab, "node2", "find /home/ada /tmp -xdev -name '*ansible_collections*'")
    assert leftovers == "", "no collection is installed on a node"


def test_failure_ends_the_run_and_the_job(campus: Campus) -> None:
    play = campus.launch("second", "--detach")
    play.wait_for("step 3 of rank 0")
    root_shell(campus.lab, "node2", f"kill -USR1 {pid_of(campus.lab, 'node2', r'^/usr/bin/python3 .*ticks[.]py')}")
    play.wait()
    assert play.rc == 2 and "ValueError: boom as told" in play.last_lines(), play.output
    drive.eventually("the job has ended", lambda: as_user(campus.lab, LOGIN, "squeue --noheader", USER) == "", 60)
    for node in ("node1", "node2"):
        leftovers = [
            item for item in campus.lab.processes(node) if item.user == USER and not drive.OWN.search(item.command)
        ]
        assert leftovers == [], node


def test_preemption_is_treated_as_a_notice_although_slurm_signals_the_ranks(campus: Campus) -> None:
    """Without preempt_send_user_signal, Slurm sends SIGTERM to all processes when the grace period begins."""
    play = campus.launch("third", "--stubborn", launch_notice_grace=5, launch_stop_grace=5)
    play.wait_for("step 3 of rank 0")
    urgent = "sbatch --chdir=/ --partition=urgent --nodes=2 --exclusive --output=/dev/null --wrap='sleep 600'"
    as_user(campus.lab, LOGIN, urgent, USER)
    play.wait()
    assert "Slurm will end the job in" in play.output, play.output
    result = json.loads((campus.runs / "third" / "result.json").read_text())
    assert result["state"] == "interrupted", result
    as_user(campus.lab, LOGIN, "scancel --partition=urgent", USER)
