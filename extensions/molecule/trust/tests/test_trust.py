"""Root acts only on files owned by root, although a user without sudo planted links and programs for each role."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support import drive
from tests.support.cluster import Cluster
from tests.support.trust_rows import DIRECTORY, HOME, PROGRAM, ROWS, USER

CHECKOUT = Path(__file__).resolve().parents[4]
HOSTS = ("node1", "node2")  # links that replace directories and files inside them
EXECUTION_LOG = "/var/tmp/told"
REPORTER = f"#!/bin/sh\nid --user >> {EXECUTION_LOG}\nexit 1\n"
# Programs that root calls by name, placed first on the user's PATH, and startup files for shells and Python.
PROGRAMS = [
    *(
        f"{HOME}/{directory}/{name}"
        for directory in ("bin", ".local/bin")
        for name in ("python3", "rsync", "ssh-keygen", "sh")
    ),
    f"{HOME}/.bash_profile",
    # in the role python_env's default directory, which belongs to the user here
    *(f"/opt/muster/{directory}" for directory in ("env/bin/python", "s3/env/bin/python", "tools/uv")),
]
PACKAGE = "Package: mount-s3\nVersion: 1\nArchitecture: all\nMaintainer: nobody\nDescription: none"
# A minimal fake engine: it has no image and cannot pull any.
PODMAN = r"""#!/bin/sh
[ "$1" = info ] && { echo /var/tmp; exit; }
echo "Error: no such image" >&2
exit 125
"""
CANARIES = "cd /etc/canary && find . -printf '%p %U %G %m %y\\n' | sort && find . -type f -exec sha256sum {} + | sort"
OWNED = f"find / -xdev -user {USER} -not -path '{HOME}*' -not -path '/proc/*' -not -path '/run/*' | sort"
SOURCES = {"code": "code_source", "stage_data_here": "stage_data_here"}
"""Rows that copy the test's project, and the variable for its path."""
CREDENTIALS = "/usr/local/lib/muster/s3/credentials"
"""A file that a role gives the user outside of the home directory, in a directory owned by root."""


def roles_with_a_user() -> set[str]:
    """Return the roles with a user option, based on their argument specs."""
    result = set()
    for path in (CHECKOUT / "roles").glob("*/meta/argument_specs.yml"):
        specs = yaml.safe_load(path.read_text())["argument_specs"]
        options = {name for specification in specs.values() for name in specification.get("options", {})}
        if any(name.endswith("_user") for name in options):
            result.add(path.parents[1].name)
    return result


def test_each_role_with_a_user_has_a_row() -> None:
    covered = {row.role or name for name, row in ROWS.items()}
    # data_mounts: the roles that call it have rows; idle_watch: it only compares process owners with the user
    assert roles_with_a_user() - {"data_mounts", "idle_watch"} == covered


@pytest.fixture(scope="module")
def hosts() -> Iterator[Cluster]:
    """Yield two hosts with a user without sudo, and the links and programs planted by that user."""
    with drive.own_lab("trust", nodes=2) as lab:
        cluster = Cluster(lab)
        for host in HOSTS:
            cluster.sh(host, plant_script(host))
        yield cluster


def plant_script(host: str) -> str:
    """Return the script that plants links and programs on a host, as the user where possible."""
    plants: dict[str, str] = {path: PROGRAM for path in PROGRAMS}
    for row in ROWS.values():
        plants |= row.directories if host == HOSTS[0] else row.files
    lines, root_lines = [], []
    for number, (path, kind) in enumerate(sorted(plants.items())):
        canary = f"/etc/canary/{number}"
        lines.append(f"mkdir -p $(dirname {path})")
        if kind == PROGRAM:
            lines.append(f"cp /var/tmp/tell {path}")
        else:
            lines.append(f"ln -s {canary} {path}")
            root_lines.append(f"mkdir {canary}" if kind == DIRECTORY else f"(umask 077; echo secret > {canary})")
    as_user = "\n".join(lines)
    return f"""
set -e
rm -rf /etc/canary {HOME} {EXECUTION_LOG} /opt/muster {Path(CREDENTIALS).parent}
getent passwd {USER} > /dev/null || useradd --create-home --shell /bin/bash {USER}
install --directory --owner={USER} --group={USER} {HOME} /opt/muster
printf '{PODMAN}' > /usr/local/bin/podman && ln -sf podman /usr/local/bin/newuidmap && chmod 755 /usr/local/bin/podman
command -v rsync > /dev/null || {{ apt-get update && apt-get install --yes --no-install-recommends rsync; }} > /dev/null
mkdir /etc/canary
{chr(10).join(root_lines)}
printf '%s' '{REPORTER}' > /var/tmp/tell && chmod 755 /var/tmp/tell
touch {EXECUTION_LOG} && chmod 666 {EXECUTION_LOG}
runuser -u {USER} -- sh -e <<'END'
{as_user}
END
if ! dpkg-query --show mount-s3 2> /dev/null; then
    mkdir -p /root/package/DEBIAN
    echo '{PACKAGE}' > /root/package/DEBIAN/control
    dpkg-deb --build /root/package /root/mount-s3.deb && dpkg --install /root/mount-s3.deb
fi > /dev/null
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project to copy."""
    project = tmp_path_factory.mktemp("source") / "project"
    (project / "package").mkdir(parents=True)
    (project / "train.py").write_text("print()\n")
    (project / "package" / "__init__.py").write_text("\n")
    return project


@pytest.fixture(scope="module")
def outcomes(hosts: Cluster, source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Run all roles on all hosts at once, each host as a separate cluster; return the outcomes by host and role."""
    folder = tmp_path_factory.mktemp("trust")
    before = {host: hosts.sh(host, f"{CANARIES}\n{OWNED}") for host in HOSTS}
    playbook = folder / "roles.yml"
    tasks = [
        {
            "name": name,
            "block": [
                {
                    "name": name,
                    "ansible.builtin.include_role": {"name": f"muster.training.{row.role or name}"},
                    "vars": {**row.variables, **({SOURCES[name]: str(source)} if name in SOURCES else {})},
                },
                {"name": "End", "ansible.builtin.debug": {"msg": f"TRUST {name} went well TRUST"}},
            ],
            "rescue": [
                {
                    "name": "End",
                    "ansible.builtin.debug": {
                        "msg": f"TRUST {name} failed at {{{{ ansible_failed_task.name }}}}: "
                        "{{ ansible_failed_result | to_json }} TRUST"
                    },
                }
            ],
        }
        for name, row in ROWS.items()
    ]
    playbook.write_text(json.dumps([{"hosts": "training", "gather_facts": False, "tasks": tasks}]))
    plays = {}
    for host in HOSTS:
        inventory = yaml.safe_load(hosts.lab.inventory.read_text())
        inventory["training"]["hosts"] = {host: inventory["training"]["hosts"][host]}
        (folder / host).mkdir()
        (folder / host / "inventory.yml").write_text(yaml.safe_dump(inventory))
        plays[host] = drive.start(str(playbook), folder / host / "inventory.yml")
    result = {}
    for host, play in plays.items():
        text = " ".join(play.wait(1800).output.split())
        result[host] = dict(re.findall(r"TRUST (\w+) (.*?) TRUST", text))
        result[host]["output"] = play.output
        result[host]["before"] = before[host]
    return result


@pytest.mark.parametrize("name", ROWS)
def test_role_works_or_reports_the_planted_obstacle(name: str, outcomes: dict[str, dict[str, str]]) -> None:
    for host, expected in zip(HOSTS, ROWS[name].ends, strict=True):
        output = outcomes[host].get(name, outcomes[host]["output"][-3000:])
        if expected:
            assert re.search(expected, output), f"{host}: {output}"
        else:
            assert output == "went well", f"{host}: {output}"


@pytest.mark.usefixtures("outcomes")
@pytest.mark.parametrize("host", HOSTS)
def test_root_owned_files_are_unchanged(host: str, hosts: Cluster, outcomes: dict[str, dict[str, str]]) -> None:
    after = hosts.sh(host, f"{CANARIES}\n{OWNED}").splitlines()
    before = outcomes[host]["before"].splitlines()
    assert len(before) > len(ROWS)
    assert [line for line in before if line not in after] == []
    assert [line for line in after if line not in before and line != CREDENTIALS] == []


@pytest.mark.usefixtures("outcomes")
@pytest.mark.parametrize("host", HOSTS)
def test_no_program_of_the_user_ran_as_root(host: str, hosts: Cluster) -> None:
    uid = hosts.sh(host, f"id --user {USER}").strip()
    hosts.sh(host, f"runuser -u {USER} -- {HOME}/bin/python3 || true; {HOME}/.local/bin/sh || true")
    output = hosts.sh(host, f"cat {EXECUTION_LOG}").split()
    assert output[-2:] == [uid, "0"], "the programs tell by whom they are run"
    assert "0" not in output[:-2]
