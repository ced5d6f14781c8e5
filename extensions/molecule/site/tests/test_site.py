"""From untouched hosts to a running job, as a person does it: one run of site.yml, then a launch."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab import Lab
from tests.support import drive

NODES = ["node1", "node2"]
SOFTWARE = [
    "pytorch",
    "python_env",
    "pytorch",
    "python_env",
    "pytorch",
    "flash_attention",
    "deepspeed",
    "wandb",
    "hugging_face",
    "slurm",
]
ROLES = [
    "base_packages",
    "idle_watch",
    "nvidia_driver",
    "hosts_file",
    "firewall",
    "ssh_mesh",
    "docker_engine",
    "docker_data_root",
    "container_image",
    "cifs_share",
    "s3fs",
    "mount_s3",
    "open_mpi",
    "code",
    *SOFTWARE,
]
RECORDED = "its host key differs from the one that this machine has recorded"
PROVED = "2.13.0+cpu False None; matrix product correct on the CPU, sum of two ranks by gloo"
STATE = """
find /etc /home /usr/local -type f ! -path '/home/muster/.ansible*' ! -name .sudo_as_admin*  -exec sha256sum {} +
dpkg-query --show
nft list ruleset
df --output=target,size /dev/shm
cat /proc/sys/net/core/somaxconn
"""
"""What a role changes on a host."""


def site(lab: Lab, project: Path, *options: str, roll: bool = False, **extra: Any) -> drive.Play:
    """Run site.yml as a user would, with a separate SSH port for the nodes; roll: also with our output."""
    # A test host shares its kernel with this machine, except for network settings.
    kernel = {"base_packages_sysctl": {"net.core.somaxconn": 5000}}
    # The CPU build of torch comes from the index that pip on the test hosts uses for all packages.
    software = {"pytorch_index_url": "", "python_env_requirements_files": ["~/project/requirements.txt"]}
    given = {"ssh_mesh_port": 2222, "code_source": str(project), **software, **kernel, **extra}
    return drive.run("site.yml", lab.inventory, options=options, timeout=540, roll=roll, **given)


def launch(lab: Lab, **extra: Any) -> drive.Play:
    """Launch the project's job on all nodes, in the environment that site.yml made for its code."""
    where: dict[str, Any] = {
        "launch_working_directory": "/home/muster/project",
        "launch_script": "train.py",
        "launch_python": "/opt/muster/envs/project/env/bin/python",
    }
    return drive.start("launch.yml", lab.inventory, nnodes=len(NODES), **where, **extra).wait()


def states(lab: Lab) -> set[tuple[str, str]]:
    """What is on each host, line by line."""
    return {(name, line) for name in NODES for line in root(lab, name, STATE).splitlines()}


def root(lab: Lab, node: str, command: str) -> str:
    """Run a command on a host; it must succeed."""
    done = lab.exec(node, ["bash", "-c", command])
    assert done.returncode == 0, f"{node}: {command}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


def words(play: drive.Play) -> str:
    """What was printed, without line breaks."""
    return " ".join(play.output.split())


def changes(play: drive.Play) -> dict[str, int]:
    """Return how many changes were made on each host."""
    return {name: int(number) for name, number in re.findall(r"(\w+) +: ok=\d+ +changed=(\d+)", words(play))}


def tasks(play: drive.Play) -> list[str]:
    """The tasks that were run on the nodes, in order. Ansible tells its own, such as to run handlers, once for each."""
    output = re.findall(r"TASK \[(.+?)\] \*", words(play).partition("PLAY [Set up the cluster]")[2])
    return [task for task, _again in groupby(output)]


def test_new_host_key_is_accepted_and_changed_host_key_is_refused(lab: Lab, tmp_path: Path) -> None:
    """By the checkout's ansible.cfg; what an inventory says comes before it."""
    machines = yaml.safe_load(lab.inventory.read_text())
    hosts = machines["training"]["vars"]
    known = tmp_path / "known_hosts"

    def ping(*options: str) -> drive.Play:
        fresh = (
            "ControlPath=none",
            "GlobalKnownHostsFile=/dev/null",
            f"UserKnownHostsFile={known}",
            "HashKnownHosts=no",
        )
        hosts["ansible_ssh_common_args"] = " ".join(f"-o {word}" for word in ("IdentitiesOnly=yes", *fresh, *options))
        (tmp_path / "machines.yml").write_text(yaml.safe_dump(machines))
        # ansible-runner would disable it
        return drive.run("ping.yml", tmp_path / "machines.yml", env={"ANSIBLE_HOST_KEY_CHECKING": "true"})

    assert ping("StrictHostKeyChecking=yes").rc == 2
    first = ping()
    assert first.rc == 0, first.output
    _address, kind, key = known.read_text().splitlines()[0].split()[:3]
    known.write_text("".join(f"{node.address} {kind} {key}\n" for node in lab.nodes))
    changed = ping()
    assert changed.rc == 2 and RECORDED in words(changed), changed.output


@pytest.mark.thorough  # tests/unit/playbooks/test_site.py
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            "ssh_mesh_prot",
            "ssh_mesh_prot is set (with -e), but the role has no such variable; did you mean ssh_mesh_port?",
        ),
        (
            "hostsfile_enabled",
            "hostsfile_enabled is set (with -e), but nothing reads it; did you mean hosts_file_enabled?",
        ),
    ],
)
def test_a_misspelled_variable_is_refused(lab: Lab, project: Path, wrong: str, message: str) -> None:
    given: dict[str, Any] = {wrong: 2222}
    play = site(lab, project, "--tags", "base_packages", **given)
    assert play.rc == 2, play.output
    assert message in words(play), play.output
    assert not any(changes(play).values())


@pytest.mark.thorough  # molecule/preflight
def test_unusable_node_is_named_before_anything_changes(lab: Lab, project: Path) -> None:
    rule = "/etc/sudoers.d/90-muster"
    root(lab, "node2", f"sed -i s/NOPASSWD:// {rule}")
    play = site(lab, project)
    root(lab, "node2", f"sed -i 's/ALL$/NOPASSWD:ALL/' {rule}")
    assert play.rc == 2
    assert "unreachable on node2: sudo asks for a password" in words(play), play.output
    assert "--ask-become-pass" in words(play), play.output
    assert not any(changes(play).values())

    lab.power_off("node2")
    play = site(lab, project)
    lab.power_on("node2")
    assert play.rc == 2
    assert "unreachable on node2: " in words(play), play.output
    assert "--limit 'all:!node2'" in words(play), play.output
    assert not any(changes(play).values())


@pytest.mark.thorough
def test_check_mode_on_pristine_hosts_changes_nothing(lab: Lab, project: Path) -> None:
    assert "127.0.1.1" in root(lab, "node2", "getent hosts node2"), "these hosts were touched before"
    before = states(lab)
    play = site(lab, project, "--check", "--diff", roll=True)
    assert play.rc == 0, play.output
    lines = drive.plain_lines(play)
    assert f"    +{lab.node('node2').address} node2" in lines
    assert lines[-1].startswith("site: 2 of 2 nodes would be changed ")
    assert "firewall.py: a program, " in play.output and "import " not in play.output, "none is printed"
    assert states(lab) ^ before == set()
    assert not (lab.inventory.parent / "ssh_mesh").exists()


def test_one_run_sets_up_the_cluster(lab: Lab, project: Path) -> None:
    play = site(lab, project, roll=True)
    assert play.rc == 0, play.output
    lines = drive.plain_lines(play)
    assert len(lines) <= 2 * len(ROLES) and lines[-1].startswith("site: 2 of 2 nodes changed "), play.output
    assert sum(line.endswith(PROVED) for line in lines) == 1, "said once, of all nodes, after the role's name"
    names = {node.name: node.address for node in lab.nodes}
    ask = "; ".join(f"getent hosts {name} | cut -d' ' -f1" for name in NODES)
    log_in = "; ".join(f"ssh -o BatchMode=yes {name} hostname" for name in NODES)
    port = "import socket; s = socket.create_server(('', 0)); print(s.getsockname()[1], flush=True); s.accept()"
    for name in NODES:
        assert root(lab, name, ask).split() == list(names.values()), name
        assert root(lab, name, f"runuser -l muster -c {log_in!r}").split() == NODES, name
        assert root(lab, name, "sha256sum < /home/muster/project/train.py") == root(
            lab, "node1", "sha256sum < /home/muster/project/train.py"
        )
        for tool in ("rsync", "git", "tmux", "gcc"):
            root(lab, name, f"command -v {tool}")
        assert root(lab, name, "/opt/muster/envs/project/env/bin/python -c 'import colorama; print(1)'") == "1"
    listed = drive.run("env.yml", lab.inventory)
    assert listed.rc == 0 and re.search(r"project +3\.\d+ +2\.13\.0\+cpu .* node1, node2", words(listed)), listed.output
    # any port is open between nodes, including those behind node2's firewall
    root(lab, "node2", "touch /run/port")
    root(lab, "node2", f'systemd-run --quiet --unit=listener sh -c "exec python3 -uc \\"{port}\\" > /run/port"')
    drive.eventually("it listens", lambda: bool(root(lab, "node2", "cat /run/port")), 120)
    root(lab, "node1", f"timeout 5 bash -c '</dev/tcp/{names['node2']}/{root(lab, 'node2', 'cat /run/port')}'")


def test_a_second_run_changes_nothing(lab: Lab, project: Path) -> None:
    before = states(lab)
    play = site(lab, project)
    assert play.rc == 0, play.output
    assert set(changes(play)) >= set(NODES) and not any(changes(play).values()), play.output
    assert states(lab) ^ before == set()
    few = site(lab, project, "--limit", "node1")
    assert few.rc == 0, few.output
    assert tasks(few) == tasks(play), "the number of tasks does not grow with the number of nodes"


@pytest.mark.thorough  # tests/unit/plugins/module_utils/python_env/test_solve.py, and test_environments.py
def test_second_project_has_its_own_environment_but_shares_torch(lab: Lab, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "requirements.txt").write_text("six\n")
    play = site(lab, other, "--tags", "code,pytorch,python_env", python_env_requirements_files=[])
    assert play.rc == 0, play.output
    environments = "/opt/muster/envs"
    library = "env/lib/python3*/site-packages/torch/lib/libtorch_cpu.so"
    for name in NODES:
        root(lab, name, f"{environments}/project/env/bin/python -c 'import colorama, torch'")
        root(lab, name, f"{environments}/other/env/bin/python -c 'import six, torch'")
        assert len(set(root(lab, name, f"stat --format=%i {environments}/*/{library}").split())) == 1
    again = site(lab, other, "--tags", "code,pytorch,python_env", python_env_requirements_files=[])
    assert again.rc == 0 and not any(changes(again).values()), again.output

    listed = drive.run("env.yml", lab.inventory)
    assert listed.rc == 0 and re.search(r"other +3\.\d+ +2\.13\.0\+cpu .* node1, node2", words(listed)), listed.output
    removed = drive.run("env.yml", lab.inventory, remove="other")
    assert removed.rc == 0, removed.output
    assert drive.run("env.yml", lab.inventory, remove="other").rc == 0
    for name in NODES:
        assert root(lab, name, f"ls {environments}") == "project"
        root(lab, name, f"{environments}/project/env/bin/python -c 'import colorama, torch'")
        root(lab, name, "rm -r /home/muster/other")


@pytest.mark.thorough  # tests/unit/playbooks/test_site.py
def test_roles_can_be_switched_off_and_selected_by_tag(lab: Lab, project: Path) -> None:
    """As typed: what comes with -e is a text."""
    play = site(lab, project, *(word for role in ROLES for word in ("-e", f"{role}_enabled=no")))
    assert play.rc == 0, play.output
    ran = [task for task in tasks(play) if " : " in task and ": Check for misspelt" not in task]
    assert ran == [f"muster.training.{role} : End the role where it is off" for role in ROLES]
    assert "included:" not in play.output
    play = site(lab, project, "--tags", "hosts_file")
    ran = [task for task in tasks(play) if " : " in task]
    assert {task.partition(" : ")[0] for task in ran} == {"muster.training.hosts_file"}


def test_job_runs_on_the_cluster_and_is_refused_on_a_broken_one(lab: Lab, project: Path) -> None:
    well = launch(lab, run_id="first")
    assert well.rc == 0, well.output
    assert "rank 1 sees node1 node2" in root(lab, "node2", "cat $(find /home/muster/.muster/runs/first -name '*.log')")

    root(lab, "node2", "sed -i 's/.* node1$/10.255.255.1 node1/' /etc/hosts")
    refused = launch(lab, run_id="second")
    assert refused.rc == 2, refused.output
    assert "name-differs on node2" in words(refused) and "10.255.255.1" in words(refused), refused.output
    assert "nothing was started" in words(refused)
    assert not any("second" in root(lab, name, "ls /home/muster/.muster/runs") for name in NODES)

    mended = site(lab, project, "--tags", "hosts_file")
    assert mended.rc == 0 and {name: changes(mended)[name] for name in NODES} == {**dict.fromkeys(NODES, 0), "node2": 1}
    again = launch(lab, run_id="third")
    assert again.rc == 0, again.output
    drive.nothing_left(lab, NODES, within=10)
