"""The nodes become a Slurm cluster: jobs run with GPUs, nodes join and return, and everything can be removed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab import Lab
from tests.support import drive, slurm_hosts
from tests.support.drive import root_shell
from tests.support.slurm_hosts import as_user, changed, end_run, in_queue, states

FAKE_GPUS = ["/dev/fakegpu0", "/dev/fakegpu1"]
SETTINGS = {"slurm_gpu_files": "/dev/fakegpu[0-9]*"}
KEY = ["base64", "--wrap=0", "/etc/munge/munge.key"]


def site(lab: Lab, inventory: Path | None = None, *options: str, **extra: Any) -> drive.Play:
    """Run the role as a user would."""
    return slurm_hosts.site(lab, inventory, *options, **SETTINGS | extra)


def make_gpus(lab: Lab, node: str) -> None:
    """Create device files of fake GPUs. They vanish when the host restarts, as with a driver that loads late."""
    root_shell(lab, node, "; ".join(f"mknod {path} c 1 3" for path in FAKE_GPUS))


@pytest.fixture(scope="module")
def cluster(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the first two hosts a cluster, after a run in check mode; return their inventory."""
    for node in lab.nodes:
        make_gpus(lab, node.name)
    # Slurm must not depend on a machine's hostname
    root_shell(lab, "node1", "hostname ps2xyz")
    hosts = yaml.safe_load(lab.inventory.read_text())
    del hosts["training"]["hosts"]["node3"]
    inventory = tmp_path_factory.mktemp("two") / "inventory.yml"
    inventory.write_text(yaml.safe_dump(hosts))

    play = site(lab, inventory, "--check", "--diff")
    assert play.rc == 0, play.output
    assert "NodeName=node2 NodeAddr=" in play.output
    assert root_shell(lab, "node1", "ls /etc/slurm /etc/munge 2>&1 || true").count("No such file") == 2

    play = site(lab, inventory, "-vvv")
    assert play.rc == 0, play.output
    for name in ("node1", "node2"):
        key = lab.exec(name, KEY).stdout
        assert len(key) > 40 and key not in play.output, "the key was printed"
    return inventory


def test_second_run_changes_nothing(lab: Lab, cluster: Path) -> None:
    play = site(lab, cluster)
    assert play.rc == 0, play.output
    assert changed(play) == [0, 0], play.output
    assert "Wait until all nodes" not in play.output, "the state alone shows that nothing is left to do"


def test_job_of_an_ordinary_user_gets_gpus_on_both_nodes(lab: Lab, cluster: Path) -> None:
    output = as_user(lab, "node2", "srun --nodes=2 --gpus-per-node=2 printenv SLURMD_NODENAME CUDA_VISIBLE_DEVICES")
    assert sorted(output.split()) == ["0,1", "0,1", "node1", "node2"]


def test_key_is_readable_by_munge_alone_and_the_same_everywhere(lab: Lab, cluster: Path) -> None:
    keys = {lab.exec(node, KEY).stdout for node in ("node1", "node2")}
    assert len(keys) == 1
    for node in ("node1", "node2"):
        assert root_shell(lab, node, "stat -c '%U %a' /etc/munge/munge.key") in ("munge 400", "munge 600")


HEALTH_CHECK = "/usr/local/lib/muster/slurm/health-check"


def reasons(lab: Lab) -> str:
    """Return the reasons why nodes get no jobs, as shown to users."""
    return as_user(lab, "node2", "sinfo --noheader --list-reasons --format='%N %E'")


def test_node_without_a_gpu_gets_no_jobs_until_it_is_back(lab: Lab, cluster: Path) -> None:
    root_shell(lab, "node2", "mv /dev/fakegpu1 /dev/lost")
    job = as_user(lab, "node1", "sbatch --parsable --requeue --nodelist=node2 --output=/dev/null --wrap=true")
    drive.eventually("the prolog has drained node2", lambda: "muster: gpu-missing" in reasons(lab), 60)
    assert states(lab)["node1"] == "idle", "the other nodes are fit"
    root_shell(lab, "node2", f"mv /dev/lost /dev/fakegpu1 && {HEALTH_CHECK}")
    assert reasons(lab) == ""
    lab.exec("node1", ["scancel", job])
    drive.eventually("node2 is idle", lambda: states(lab)["node2"] == "idle", 60)


def test_node_that_a_person_drained_stays_drained(lab: Lab, cluster: Path) -> None:
    root_shell(lab, "node1", "scontrol update NodeName=node2 State=DRAIN Reason='new fan'")
    root_shell(lab, "node2", HEALTH_CHECK)
    assert "new fan" in reasons(lab)
    root_shell(lab, "node1", "scontrol update NodeName=node2 State=RESUME")


def test_run_without_a_queue_keeps_jobs_away(lab: Lab, cluster: Path) -> None:
    play = drive.launch(lab, "ticks.py", nnodes=1, nodes="node2", run_id="alone", launch_launcher="env")
    play.wait_for("step 1 of rank 0")
    root_shell(lab, "node2", HEALTH_CHECK)
    assert "muster: busy: run alone, owned by muster, was started without Slurm and is active" in reasons(lab)
    assert drive.run("stop.yml", lab.inventory, run_id="alone").rc == 0
    play.wait()
    root_shell(lab, "node2", HEALTH_CHECK)
    assert reasons(lab) == ""


def test_run_on_some_nodes_is_refused(lab: Lab, cluster: Path) -> None:
    play = site(lab, cluster, "--limit", "node2")
    assert play.rc != 0
    assert "this run is limited and omits node1" in play.output, play.output


def test_node_returns_after_a_restart_even_if_its_gpus_are_late(breakable: Lab, cluster: Path) -> None:
    lab = breakable
    lab.power_off("node2")
    lab.power_on("node2")
    drive.eventually(
        "slurmd has failed for lack of GPUs",
        lambda: (
            lab.exec("node2", ["grep", "-q", "fakegpu0", "/var/log/slurm/slurmd.log"]).returncode == 0
            and int(root_shell(lab, "node2", "systemctl show slurmd --property=NRestarts --value")) > 0
        ),
        120,
    )
    make_gpus(lab, "node2")
    drive.eventually("node2 is idle again", lambda: states(lab).get("node2") == "idle", 120)


def test_node_joins_while_a_job_runs(lab: Lab, cluster: Path) -> None:
    job = as_user(lab, "node1", "sbatch --parsable --nodes=1 --nodelist=node2 --output=/dev/null --wrap='sleep 600'")
    drive.eventually("the job is running", lambda: states(lab)["node2"] == "allocated", 60)

    play = site(lab)
    assert play.rc == 0, play.output
    assert states(lab) == {"node1": "idle", "node2": "allocated", "node3": "idle"}
    assert as_user(lab, "node3", f"squeue --noheader --jobs={job} --format=%T") == "RUNNING"
    play = site(lab)
    assert changed(play) == [0, 0, 0], play.output

    play = site(lab, slurm_state="absent")
    assert play.rc != 0 and f"Slurm still has jobs: {job} of muster" in play.output, play.output
    as_user(lab, "node1", f"scancel {job}")
    drive.eventually("the job has ended", lambda: states(lab)["node2"] == "idle", 60)


@pytest.mark.thorough  # a node that joins gets both in the same way
def test_replaced_node_gets_the_key_and_its_configuration(lab: Lab, cluster: Path) -> None:
    assert site(lab).rc == 0  # all three, even if this test runs alone
    root_shell(
        lab,
        "node3",
        "systemctl stop slurmd munge && mungekey --create --force && chown munge: /etc/munge/munge.key"
        " && rm -r /etc/default/slurmd /etc/systemd/system/slurmd.service.d /var/lib/muster && systemctl daemon-reload"
        " && systemctl start munge",
    )
    play = site(lab)
    assert play.rc == 0, play.output
    assert len({lab.exec(node.name, KEY).stdout for node in lab.nodes}) == 1
    assert as_user(lab, "node3", "srun --nodes=3 printenv SLURMD_NODENAME").split().count("node3") == 1


@pytest.fixture
def occupied(lab: Lab, cluster: Path) -> Iterator[str]:
    """Start a job of the same user on node2; yield its number."""
    job = as_user(lab, "node1", "sbatch --parsable --nodelist=node2 --output=/dev/null --wrap='sleep 900'")
    drive.eventually("the job is running", lambda: states(lab)["node2"] == "allocated", 60)
    yield job
    lab.exec("node1", ["scancel", job])
    drive.eventually("node2 is idle", lambda: states(lab)["node2"] == "idle", 60)


def test_run_waits_for_its_nodes_and_then_runs(lab: Lab, occupied: str) -> None:
    play = in_queue(lab, "waits", "--until", "enough")
    play.wait_for(r"\[muster\] queued as Slurm job \d+, position 1")
    root_shell(lab, "node1", f"scancel {occupied}")
    play.wait_for("step 1 of rank 0")
    end_run(lab, "waits")
    play.wait()
    assert play.rc == 0, play.output
    assert drive.record(lab, "waits")["state"] == "succeeded"
    drive.nothing_left(lab, ["node1", "node2"], within=60)


@pytest.mark.thorough  # tests/unit/plugins/module_utils/slurm/test_queue.py
def test_waiting_run_is_shown_and_can_be_stopped(lab: Lab, occupied: str) -> None:
    assert in_queue(lab, "never", detach=True).wait().rc == 0
    play = drive.run("status.yml", lab.inventory, run_id="never")
    assert re.search(r"queued as Slurm job \d+, position 1", play.output), play.output
    play = drive.run("stop.yml", lab.inventory, run_id="never")
    assert play.rc == 0 and "removed from the Slurm queue" in play.output, play.output
    assert as_user(lab, "node1", "squeue --noheader --name=never") == ""


def test_failure_of_a_rank_ends_the_run_and_the_job(lab: Lab, cluster: Path) -> None:
    play = in_queue(lab, "fails", "--detach", "--unknown-argument").wait()
    assert play.rc != 0 and "unrecognized arguments: --unknown-argument" in play.output, play.output
    drive.nothing_left(lab, ["node1", "node2"], within=60)
    drive.eventually("the job has ended", lambda: as_user(lab, "node1", "squeue --noheader --name=fails") == "", 60)


@pytest.mark.thorough  # tests/unit/playbooks/test_slurm_choice.py
def test_slurm_chooses_the_nodes_that_are_free(lab: Lab, occupied: str) -> None:
    assert site(lab).rc == 0  # node3, too
    play = in_queue(lab, "chosen", "--until", "enough", launch_slurm_choose=True)
    play.wait_for(r"\[muster\] Slurm job \d+ was allocated node1, node3")
    play.wait_for("step 1 of rank 0")
    assert as_user(lab, "node1", "squeue --noheader --name=chosen --format=%T") == "RUNNING"
    end_run(lab, "chosen", ("node1", "node3"))
    play.wait()
    assert play.rc == 0, play.output
    assert drive.record(lab, "chosen")["state"] == "succeeded"


@pytest.mark.thorough
def test_variants_of_a_sweep_run_at_the_same_time(lab: Lab, cluster: Path) -> None:
    assert site(lab).rc == 0  # node3, too
    settings: dict[str, Any] = {"launch_launcher": "env", "launch_import_test": False, "launch_slurm_choose": True}
    play = drive.start(
        "sweep.yml",
        lab.inventory,
        run_id="both",
        sweep_variants=[{"name": name, "args": ["--until", "enough"]} for name in ("one", "two")],
        sweep_parallel=2,
        nnodes=1,
        launch_script=str(drive.JOBS / "ticks.py"),
        launch_scheduler="slurm",
        **settings,
    )
    running = "squeue --noheader --states=RUNNING --format=%j"
    names = ["both-one", "both-two"]
    drive.eventually(
        "both variants run",
        lambda: sorted(as_user(lab, "node1", running).split()) == names,
        180,
        lambda: f"{as_user(lab, 'node1', 'squeue')}\n{play.output}",
    )
    for node in lab.nodes:
        root_shell(lab, node.name, "for path in ~muster/.muster/runs/both-*/node0; do touch $path/enough || true; done")
    play.wait()
    assert play.rc == 0, play.output


def test_refused_run_releases_its_nodes(lab: Lab, cluster: Path) -> None:
    play = in_queue(lab, "wrong", launch_slurm_choose=True, launch_python="/no/python").wait()
    assert play.rc != 0 and "interpreter-missing" in play.output, play.output
    job = re.search(r"Slurm job (\d+) was allocated", play.output)
    assert job is not None
    lab.exec("node1", ["scancel", job[1]])


LAUNCHERS: dict[str, dict[str, Any]] = {
    "torchrun": {},
    "accelerate": {"launch_launcher": "accelerate"},
    "deepspeed": {"launch_launcher": "deepspeed"},
    "pdsh": {"launch_launcher": "deepspeed", "launch_deepspeed_launcher": "pdsh"},
    "mpirun": {"launch_launcher": "mpirun"},
}


@pytest.mark.parametrize(
    "launcher", [name if name == "torchrun" else pytest.param(name, marks=pytest.mark.thorough) for name in LAUNCHERS]
)
def test_launchers_find_their_ranks_in_a_step(lab: Lab, cluster: Path, launcher: str) -> None:
    options = {"nnodes": 2, "nproc_per_node": 1, "launch_import_test": False, **LAUNCHERS[launcher]}
    play = drive.launch(
        lab, "steps.py", "--raise-on", "1", run_id=f"in-step-{launcher}", launch_scheduler="slurm", **options
    ).wait()
    assert play.rc == 2, play.output
    failure = drive.record(lab, f"in-step-{launcher}")["first_failure"]
    assert (failure["rank"], failure["error"]) == (1, "ValueError: boom at step 5")


def test_scancel_ends_the_run_with_a_verdict(lab: Lab, cluster: Path) -> None:
    play = in_queue(lab, "cancelled")
    play.wait_for("step 1 of rank 0")
    as_user(lab, "node1", "scancel --name=cancelled")
    play.wait()
    verdict = drive.record(lab, "cancelled")
    assert verdict["state"] == "stopped" and re.search(r"Slurm job \d+ was cancelled", play.output), play.output
    drive.nothing_left(lab, ["node1", "node2"], within=60)


def test_run_continues_while_the_controller_restarts(lab: Lab, cluster: Path) -> None:
    play = in_queue(lab, "alone-a-while", "--until", "enough")
    play.wait_for("step 1 of rank 0")
    root_shell(lab, "node1", "systemctl stop slurmctld")
    play.wait_for("step 60 of rank 0")
    root_shell(lab, "node1", "systemctl start slurmctld")
    end_run(lab, "alone-a-while")
    play.wait()
    assert play.rc == 0, play.output
    drive.eventually("nodes are idle", lambda: states(lab)["node2"] == "idle", 120)


@pytest.mark.thorough  # Slurm checks time limits once per minute
def test_ranks_get_a_notice_before_the_time_limit(lab: Lab, cluster: Path) -> None:
    play = in_queue(lab, "limited", launch_slurm_time="2", launch_notice_grace=5, launch_stop_grace=5).wait()
    assert "Slurm will end the job" in play.output, play.output
    assert drive.record(lab, "limited")["state"] == "interrupted"


@pytest.mark.thorough  # Slurm waits two minutes before a requeued job starts again
def test_requeued_job_starts_the_run_again(lab: Lab, cluster: Path) -> None:
    play = in_queue(lab, "again", "--until", "enough", launch_slurm_requeue=1)
    play.wait_for("step 1 of rank 0")
    job = as_user(lab, "node1", "squeue --noheader --name=again --format=%i")
    as_user(lab, "node1", f"scontrol requeue {job}")
    play.wait()
    directory = "/home/muster/.muster/runs/again"
    drive.eventually(
        "the second life runs",
        lambda: lab.exec("node1", ["test", "-d", f"{directory}/node0/earlier/0"]).returncode == 0,
        300,
    )
    end_run(lab, "again")
    drive.eventually("it ends", lambda: as_user(lab, "node1", "squeue --noheader --name=again") == "", 120)
    assert '"succeeded"' in as_user(lab, "node1", f"cat {directory}/node0/result.json")
    assert lab.exec("node2", ["test", "-e", f"{directory}/node1/requeue"]).returncode == 1, "secrets remain"


def test_run_outside_the_queue_is_refused_on_nodes_with_a_job(lab: Lab, occupied: str) -> None:
    play = drive.launch(lab, "ticks.py", nnodes=2, run_id="refused", launch_launcher="env").wait()
    assert play.rc != 0
    assert f"slurm-job on node2: Slurm is running job {occupied} on the node" in play.output, play.output


@pytest.mark.thorough  # installs a database server, which takes two minutes on a busy machine
def test_accounting_records_finished_jobs(lab: Lab, cluster: Path) -> None:
    play = site(lab, slurm_accounting=True)
    assert play.rc == 0, play.output
    as_user(lab, "node1", "srun --nodes=1 --job-name=counted true")
    drive.eventually("it is recorded", lambda: "counted" in as_user(lab, "node2", "sacct --noheader -o JobName"), 60)
    play = site(lab, slurm_accounting=True)
    assert changed(play) == [0, 0, 0], play.output


def test_everything_can_be_removed(lab: Lab, cluster: Path) -> None:
    for expected in (True, False):
        play = site(lab, slurm_state="absent")
        assert play.rc == 0, play.output
        assert any(changed(play)) is expected, play.output
    names = (
        "/etc/slurm/slurm.conf /etc/systemd/system/slurm*/* /etc/default/slurmd /var/lib/muster/slurm.proof"
        " /usr/local/lib/muster/slurm /etc/muster/slurm_health.json"
    )
    for node in lab.nodes:
        assert lab.exec(node.name, ["pgrep", "slurm"]).returncode == 1
        assert root_shell(lab, node.name, f"ls {names} 2>/dev/null || true") == ""
