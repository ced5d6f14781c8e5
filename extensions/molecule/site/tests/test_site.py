"""From untouched hosts to a running job, as a user does it: one run of site.yml, then a launch."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab import Lab
from tests.support import drive
from tests.support.drive import root_shell

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
TORCH_CHECK = "2.13.0+cpu False None; matrix product correct on the CPU, sum of two ranks by gloo"
STATE = """
find /etc /home /usr/local -type f ! -path '/home/muster/.ansible*' ! -name .sudo_as_admin*  -exec sha256sum {} +
dpkg-query --show
nft list ruleset
df --output=target,size /dev/shm
cat /proc/sys/net/core/somaxconn
"""
"""A script that prints the state of a host that roles may change."""


def site(lab: Lab, project: Path, *options: str, roll: bool = False, **extra: Any) -> drive.Play:
    """Run site.yml as a user would, with a separate SSH port for the nodes; roll: use the collection's callback."""
    # A test host shares its kernel with this machine, except for network settings.
    kernel = {"base_packages_sysctl": {"net.core.somaxconn": 5000}}
    # The CPU build of torch comes from the index that pip on the test hosts uses for all packages.
    software = {"pytorch_index_url": "", "python_env_requirements_files": ["~/project/requirements.txt"]}
    settings = {"ssh_mesh_port": 2222, "code_source": str(project), **software, **kernel, **extra}
    return drive.run("site.yml", lab.inventory, options=options, timeout=540, roll=roll, **settings)


def launch(lab: Lab, **extra: Any) -> drive.Play:
    """Launch the project's job on all nodes, in the environment that site.yml created for its code."""
    settings: dict[str, Any] = {
        "launch_working_directory": "/home/muster/project",
        "launch_script": "train.py",
        "launch_python": "/opt/muster/envs/project/env/bin/python",
    }
    return drive.start("launch.yml", lab.inventory, nnodes=len(NODES), **settings, **extra).wait()


def states(lab: Lab) -> set[tuple[str, str]]:
    """Return the state of all hosts, as pairs of a host and a line."""
    return {(name, line) for name in NODES for line in root_shell(lab, name, STATE).splitlines()}


def flat_output(play: drive.Play) -> str:
    """Return the output of a play without line breaks."""
    return " ".join(play.output.split())


def changes(play: drive.Play) -> dict[str, int]:
    """Return the number of changes on each host."""
    return {name: int(number) for name, number in re.findall(r"(\w+) +: ok=\d+ +changed=(\d+)", flat_output(play))}


def tasks(play: drive.Play) -> list[str]:
    """Return the tasks run on the nodes, in order, without the repetitions that Ansible prints for each node."""
    names = re.findall(r"TASK \[(.+?)\] \*", flat_output(play).partition("PLAY [Set up the cluster]")[2])
    return [task for task, _again in groupby(names)]


def test_new_host_key_is_accepted_and_changed_host_key_is_refused(lab: Lab, tmp_path: Path) -> None:
    """The checkout's ansible.cfg configures this; an inventory overrides it."""
    machines = yaml.safe_load(lab.inventory.read_text())
    hosts = machines["training"]["vars"]
    known_hosts = tmp_path / "known_hosts"

    def ping(*options: str) -> drive.Play:
        fresh = (
            "ControlPath=none",
            "GlobalKnownHostsFile=/dev/null",
            f"UserKnownHostsFile={known_hosts}",
            "HashKnownHosts=no",
        )
        hosts["ansible_ssh_common_args"] = " ".join(f"-o {word}" for word in ("IdentitiesOnly=yes", *fresh, *options))
        (tmp_path / "machines.yml").write_text(yaml.safe_dump(machines))
        # ansible-runner would disable it
        return drive.run("ping.yml", tmp_path / "machines.yml", env={"ANSIBLE_HOST_KEY_CHECKING": "true"})

    assert ping("StrictHostKeyChecking=yes").rc == 2
    first = ping()
    assert first.rc == 0, first.output
    _address, kind, key = known_hosts.read_text().splitlines()[0].split()[:3]
    known_hosts.write_text("".join(f"{node.address} {kind} {key}\n" for node in lab.nodes))
    changed = ping()
    assert changed.rc == 2 and RECORDED in flat_output(changed), changed.output


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
    variables: dict[str, Any] = {wrong: 2222}
    play = site(lab, project, "--tags", "base_packages", **variables)
    assert play.rc == 2, play.output
    assert message in flat_output(play), play.output
    assert not any(changes(play).values())


def test_unusable_node_is_named_before_anything_changes(lab: Lab, project: Path) -> None:
    rule = "/etc/sudoers.d/90-muster"
    root_shell(lab, "node2", f"sed -i s/NOPASSWD:// {rule}")
    play = site(lab, project)
    root_shell(lab, "node2", f"sed -i 's/ALL$/NOPASSWD:ALL/' {rule}")
    assert play.rc == 2
    assert "unreachable on node2: sudo asks for a password" in flat_output(play), play.output
    assert "--ask-become-pass" in flat_output(play), play.output
    assert not any(changes(play).values())

    lab.power_off("node2")
    play = site(lab, project)
    lab.power_on("node2")
    assert play.rc == 2
    assert "unreachable on node2: " in flat_output(play), play.output
    assert "--limit 'all:!node2'" in flat_output(play), play.output
    assert not any(changes(play).values())


@pytest.mark.thorough
def test_check_mode_on_pristine_hosts_changes_nothing(lab: Lab, project: Path) -> None:
    assert "127.0.1.1" in root_shell(lab, "node2", "getent hosts node2"), "these hosts were touched before"
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
    assert sum(line.endswith(TORCH_CHECK) for line in lines) == 1, "said once, of all nodes, after the role's name"
    names = {node.name: node.address for node in lab.nodes}
    resolve = "; ".join(f"getent hosts {name} | cut -d' ' -f1" for name in NODES)
    log_in = "; ".join(f"ssh -o BatchMode=yes {name} hostname" for name in NODES)
    port = "import socket; s = socket.create_server(('', 0)); print(s.getsockname()[1], flush=True); s.accept()"
    for name in NODES:
        assert root_shell(lab, name, resolve).split() == list(names.values()), name
        assert root_shell(lab, name, f"runuser -l muster -c {log_in!r}").split() == NODES, name
        assert root_shell(lab, name, "sha256sum < /home/muster/project/train.py") == root_shell(
            lab, "node1", "sha256sum < /home/muster/project/train.py"
        )
        for tool in ("rsync", "git", "tmux", "gcc"):
            root_shell(lab, name, f"command -v {tool}")
        assert root_shell(lab, name, "/opt/muster/envs/project/env/bin/python -c 'import colorama; print(1)'") == "1"
    listed = drive.run("env.yml", lab.inventory)
    assert listed.rc == 0 and re.search(r"project +3\.\d+ +2\.13\.0\+cpu .* node1, node2", flat_output(listed)), (
        listed.output
    )
    # any port is open between nodes, including those behind node2's firewall
    root_shell(lab, "node2", "touch /run/port")
    root_shell(lab, "node2", f'systemd-run --quiet --unit=listener sh -c "exec python3 -uc \\"{port}\\" > /run/port"')
    drive.eventually("it listens", lambda: bool(root_shell(lab, "node2", "cat /run/port")), 120)
    root_shell(
        lab, "node1", f"timeout 5 bash -c '</dev/tcp/{names['node2']}/{root_shell(lab, 'node2', 'cat /run/port')}'"
    )


def test_a_second_run_changes_nothing(lab: Lab, project: Path) -> None:
    before = states(lab)
    play = site(lab, project)
    assert play.rc == 0, play.output
    assert set(changes(play)) >= set(NODES) and not any(changes(play).values()), play.output
    assert states(lab) ^ before == set()
    limited = site(lab, project, "--limit", "node1")
    assert limited.rc == 0, limited.output
    assert tasks(limited) == tasks(play), "the number of tasks does not grow with the number of nodes"


@pytest.mark.thorough  # tests/unit/plugins/module_utils/python_env/test_solve.py, and test_environments.py
def test_second_project_has_its_own_environment_but_shares_torch(lab: Lab, tmp_path: Path) -> None:
    second_project = tmp_path / "other"
    second_project.mkdir()
    (second_project / "requirements.txt").write_text("six\n")
    play = site(lab, second_project, "--tags", "code,pytorch,python_env", python_env_requirements_files=[])
    assert play.rc == 0, play.output
    environments = "/opt/muster/envs"
    library = "env/lib/python3*/site-packages/torch/lib/libtorch_cpu.so"
    for name in NODES:
        root_shell(lab, name, f"{environments}/project/env/bin/python -c 'import colorama, torch'")
        root_shell(lab, name, f"{environments}/other/env/bin/python -c 'import six, torch'")
        assert len(set(root_shell(lab, name, f"stat --format=%i {environments}/*/{library}").split())) == 1
    rerun = site(lab, second_project, "--tags", "code,pytorch,python_env", python_env_requirements_files=[])
    assert rerun.rc == 0 and not any(changes(rerun).values()), rerun.output

    listed = drive.run("env.yml", lab.inventory)
    assert listed.rc == 0 and re.search(r"other +3\.\d+ +2\.13\.0\+cpu .* node1, node2", flat_output(listed)), (
        listed.output
    )
    removed = drive.run("env.yml", lab.inventory, remove="other")
    assert removed.rc == 0, removed.output
    assert drive.run("env.yml", lab.inventory, remove="other").rc == 0
    for name in NODES:
        assert root_shell(lab, name, f"ls {environments}") == "project"
        root_shell(lab, name, f"{environments}/project/env/bin/python -c 'import colorama, torch'")
        root_shell(lab, name, "rm -r /home/muster/other")


def test_roles_can_be_switched_off_and_selected_by_tag(lab: Lab, project: Path) -> None:
    """Values of -e are strings, as on the command line."""
    play = site(lab, project, *(word for role in ROLES for word in ("-e", f"{role}_enabled=no")))
    assert play.rc == 0, play.output
    executed = [task for task in tasks(play) if " : " in task and ": Check for misspelt" not in task]
    assert executed == [f"muster.training.{role} : End the role where it is off" for role in ROLES]
    assert "included:" not in play.output
    play = site(lab, project, "--tags", "hosts_file")
    executed = [task for task in tasks(play) if " : " in task]
    assert {task.partition(" : ")[0] for task in executed} == {"muster.training.hosts_file"}


def test_job_runs_on_the_cluster_and_is_refused_on_a_broken_one(lab: Lab, project: Path) -> None:
    first = launch(lab, run_id="first")
    assert first.rc == 0, first.output
    assert "rank 1 sees node1 node2" in root_shell(
        lab, "node2", "cat $(find /home/muster/.muster/runs/first -name '*.log')"
    )

    root_shell(lab, "node2", "sed -i 's/.* node1$/10.255.255.1 node1/' /etc/hosts")
    refused = launch(lab, run_id="second")
    assert refused.rc == 2, refused.output
    assert "name-differs on node2" in flat_output(refused) and "10.255.255.1" in flat_output(refused), refused.output
    assert "nothing was started" in flat_output(refused)
    assert not any("second" in root_shell(lab, name, "ls /home/muster/.muster/runs") for name in NODES)

    repaired = site(lab, project, "--tags", "hosts_file")
    assert repaired.rc == 0 and {name: changes(repaired)[name] for name in NODES} == {
        **dict.fromkeys(NODES, 0),
        "node2": 1,
    }
    third = launch(lab, run_id="third")
    assert third.rc == 0, third.output
    drive.nothing_left(lab, NODES, within=10)
