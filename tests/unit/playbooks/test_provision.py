# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Output of provision.yml, cost.yml and teardown.yml; the tests of the action plugin cover their effects."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paperspace_server.account import PaperspaceAccount
from tests.support.paperspace_server.objects import machine, network
from tests.support.paperspace_server.server import PaperspaceServer

pytestmark = pytest.mark.one_core

CHECKOUT = Path(__file__).resolve().parents[3]
KEY = "a-key-that-nobody-may-read"
NODES = ["-e", "nnodes=3", "-e", "region=ny2", "-e", "machine_types=A6000x2"]


@pytest.fixture
def server() -> Iterator[PaperspaceServer]:
    """Provide an account with two of three nodes, one of them off, and a foreign machine."""
    home = network(21, name="muster-bert")["id"]
    machines = [
        machine(1, name="bert-0", networkId=home, dtCreated="2026-01-01T00:00:00Z"),
        machine(2, name="bert-1", networkId=home, state="off", publicIp=None),
        machine(3, name="photos", networkId="nwshared"),
    ]
    with PaperspaceServer(PaperspaceAccount(machines, [network(21, name="muster-bert")]), key=KEY) as started:
        yield started


def play(server: PaperspaceServer, directory: Path, name: str, *arguments: str, key: str = KEY) -> tuple[int, str]:
    (directory / "here.ini").write_text("localhost ansible_connection=local\n")
    command = [str(Path(sys.executable).with_name("ansible-playbook")), f"playbooks/{name}.yml"]
    completed = subprocess.run(
        [*command, "-i", str(directory / "here.ini"), *arguments],
        cwd=CHECKOUT,
        env={**os.environ, "PAPERSPACE_API_KEY": key, "PAPERSPACE_API_URL": server.url, "HOME": str(directory)},
        stdin=subprocess.DEVNULL,
        check=False,
        capture_output=True,
        text=True,
    )
    assert KEY not in completed.stdout + completed.stderr
    assert "Traceback" not in completed.stdout + completed.stderr
    assert [item.method for item in server.requests if item.method != "GET"] == []
    assert not (directory / ".muster" / "clusters" / "bert.json").exists()
    return completed.returncode, completed.stdout + completed.stderr


def test_check_mode_shows_plan_price_and_diff(server: PaperspaceServer, tmp_path: Path) -> None:
    (tmp_path / "group_vars").mkdir()  # the command line takes precedence over the default
    (tmp_path / "group_vars" / "all.yml").write_text("{provision_cluster: other, provision_nnodes: 9}\n")
    code, output = play(server, tmp_path, "provision", "-e", "cluster=bert", *NODES, "--check", "--diff")
    assert code == 0, output
    for line in (
        "exists: machine bert-0 (ps000001) of type A6000x2, ready, 3.78 USD an hour while it is on",
        "create: machine bert-2 of type A6000x2 with 250 GB",
        "start: machine bert-1 (ps000002)",
        "bert: 11.34 USD an hour, 272.16 USD a day (Paperspace's console, 2025-12-28); disks, whether machines are "
        "on or off: 30.00",
        '+  "bert-2": "ready"',
        '-  "bert-1": "off"',
    ):
        assert line in output, output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-e", "cluster=bert", *NODES), "max_usd_per_hour is not set. Set a limit for the hourly cost of the cluster"),
        (("-e", "cluster=bert", *NODES, "-e", "provision_disk=500"), "did you mean provision_disk_gb?"),
        # other tests cover the same checks of names and durations
        pytest.param(
            ("-e", "cluster=bert", *NODES, "-e", "idle_watch_afer=2h"),
            "did you mean idle_watch_after?",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            ("-e", "cluster=bert", *NODES, "--check", "-e", "idle_watch_enabled=true", "-e", "idle_watch_ttl=5m"),
            "ttl is '5m'. Use a number with a unit",
            marks=pytest.mark.thorough,
        ),
        (
            ("-e", "cluster=bert", *NODES, "--check", "-e", "provision_provider=lambda"),
            "unknown provider 'lambda'. Known providers: ec2, paperspace",
        ),
        (
            ("-e", "cluster=bert", *NODES, "--check", "-e", "region=mars1"),
            "unknown Paperspace region 'mars1'. Choose one of: ny2 (East Coast (NY2))",
        ),
        (
            ("-e", "cluster=bert", *NODES, "--check", "-e", "provision_ssh_public_key=~/.ssh/none.pub"),
            ".ssh/none.pub: No such file or directory. Create a key pair with `ssh-keygen -t ed25519`",
        ),
        (
            ("-e", "cluster=bert", *NODES, "--check", "-e", "provision_ssh_public_key=-----BEGIN"),
            "ssh_public_key is not an SSH public key",
        ),
        (
            ("-e", "cluster=../../etc", *NODES, "-e", "max_usd_per_hour=20"),
            "Use up to 31 lowercase letters, digits and hyphens",
        ),
    ],
)
def test_wrong_arguments_are_refused_with_a_message(
    server: PaperspaceServer, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    code, output = play(server, tmp_path, "provision", *arguments)
    assert (code, message in output) == (2, True), output


@pytest.mark.parametrize(
    ("key", "message"),
    [
        pytest.param("", "no API key in the option api_key, PAPERSPACE_API_KEY, ", marks=pytest.mark.thorough),
        ("wrong", "The API key is wrong or was deleted"),
    ],
)
def test_missing_or_wrong_api_key_is_refused(server: PaperspaceServer, tmp_path: Path, key: str, message: str) -> None:
    code, output = play(
        server, tmp_path, "provision", "-e", "cluster=bert", *NODES, "-e", "max_usd_per_hour=20", key=key
    )
    assert (code, message in output) == (2, True), output


def test_template_is_planned_in_check_mode_but_refused_for_uncleaned_machine(
    server: PaperspaceServer, tmp_path: Path
) -> None:
    arguments = ["-e", "cluster=bert", "-e", "template=golden"]
    code, output = play(server, tmp_path, "image", *arguments, "--check")
    assert code == 0, output
    assert (
        "create: template golden from bert-0, which will be off in the meantime; the template costs 11.00 USD a month"
        in output
    )
    code, output = play(server, tmp_path, "image", *arguments)
    assert code == 2
    assert "bert-0 was not cleaned, so no template was created from it" in output


def test_cost_lists_clusters_and_other_machines(server: PaperspaceServer, tmp_path: Path) -> None:
    code, output = play(server, tmp_path, "cost")
    assert code == 0, output
    row = next(line for line in output.splitlines() if line.startswith("bert "))
    assert row.split()[:6] == ["bert", "ny2", "1", "on,", "1", "off"]
    assert "outside clusters: 1 machine, 1 of them on, 3.78 USD an hour" in output


def test_cost_supports_jmespath_queries(server: PaperspaceServer, tmp_path: Path) -> None:
    code, output = play(server, tmp_path, "cost", "-e", "jmespath=clusters[].[cluster,per_hour]")
    assert code == 0, output
    assert json.loads(output[output.index("[\n") :]) == [["bert", 3.78]]
    code, output = play(server, tmp_path, "cost", "-e", "jmespath=clusters[")
    assert code == 2
    assert "is invalid at its end, where something is missing" in output


def test_cluster_older_than_its_ttl_is_named(server: PaperspaceServer, tmp_path: Path) -> None:
    code, output = play(server, tmp_path, "cost", "-e", "idle_watch_ttl=2d")
    assert code == 0, output
    assert "more than its ttl of 48:00:00" in output
    assert "3.78 USD an hour. If it is no longer needed, remove it: teardown.yml -e cluster=bert" in output
    assert "ttl" not in play(server, tmp_path, "cost", "-e", "idle_watch_ttl=off")[1]


def test_provision_applies_idle_watch(server: PaperspaceServer, tmp_path: Path) -> None:
    code, output = play(server, tmp_path, "provision", "--list-tasks")
    assert code == 0, output
    assert "idle_watch : Apply idle_watch_state" in output


def test_teardown_lists_machines_and_asks_for_the_cluster_name(server: PaperspaceServer, tmp_path: Path) -> None:
    code, output = play(server, tmp_path, "teardown", "-e", "cluster=bert")
    assert code == 2
    assert "remove: machine bert-1 (ps000002)" in output
    assert "nothing was changed: the name bert was not typed" in output


def test_teardown_is_refused_while_a_run_may_be_active(server: PaperspaceServer, tmp_path: Path) -> None:
    record = tmp_path / "runs" / "first"
    record.mkdir(parents=True)
    (record / "token").write_text("secret")
    plan = {"nodes": [{"name": "bert-0", "address": server.account.machines[0]["privateIp"]}]}
    (record / "plan.json").write_text(json.dumps(plan))
    code, output = play(server, tmp_path, "teardown", "-e", "cluster=bert", "-e", "confirm=bert")
    assert code == 2
    assert "bert may still be running first: no result is recorded in " in output
    assert f". Check with `ansible-playbook playbooks/status.yml -i {tmp_path}" in output


def test_teardown_with_limit_is_refused(server: PaperspaceServer, tmp_path: Path) -> None:
    code, output = play(
        server, tmp_path, "teardown", "-e", "cluster=bert", "-e", "confirm=bert", "--limit", "localhost"
    )
    assert code == 2
    assert "run it without --limit" in output


def test_teardown_of_unknown_cluster_reports_no_resources(server: PaperspaceServer, tmp_path: Path) -> None:
    code, output = play(server, tmp_path, "teardown", "-e", "cluster=gpt")
    assert code == 0, output
    assert "no resources of gpt remain, 0 USD an hour" in output
