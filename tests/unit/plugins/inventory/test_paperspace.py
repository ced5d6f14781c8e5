# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""End-to-end tests of the plugin: ansible-inventory queries a test server over HTTP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from ansible.errors import AnsibleError
from ansible.inventory.data import InventoryData
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import inventory_loader

from ansible_collections.muster.training.plugins.inventory import paperspace
from tests.support.paperspace_server.account import PaperspaceAccount, cursor
from tests.support.paperspace_server.faults import PaperspaceFault
from tests.support.paperspace_server.objects import drive, machine, network
from tests.support.paperspace_server.server import PaperspaceServer

CHECKOUT = Path(__file__).resolve().parents[4]
KEY = "s3cret-0123456789abcdef"
PREFIX = "muster.training.paperspace: "


class Run(NamedTuple):
    """The result of a command."""

    code: int
    stdout: str
    stderr: str

    @property
    def hosts(self) -> dict[str, dict[str, Any]]:
        """Return the host variables from the output of ansible-inventory --list."""
        hosts: dict[str, dict[str, Any]] = json.loads(self.stdout)["_meta"]["hostvars"]
        return {name: {key: plain(value) for key, value in values.items()} for name, values in hosts.items()}

    def group(self, name: str) -> list[str]:
        """Return the hosts in a group; none if the group does not exist."""
        hosts: list[str] = json.loads(self.stdout).get(name, {}).get("hosts", [])
        return hosts

    @property
    def message(self) -> str:
        """Return the plugin's error from the first line that contains it."""
        lines = [line for line in self.stderr.splitlines() if PREFIX in line]
        assert lines, self.stderr
        return lines[0].partition(PREFIX)[2]


def plain(value: Any) -> Any:
    """Return a value without the markers of untrusted data."""
    return value["__ansible_unsafe"] if isinstance(value, dict) and "__ansible_unsafe" in value else value


class Project:
    """A directory with an inventory file, in which commands run with a separate environment."""

    def __init__(self, directory: Path, server: PaperspaceServer) -> None:
        self.directory = directory
        self.file = directory / "paperspace.yml"
        collection = directory / "collections" / "ansible_collections" / "muster"
        collection.mkdir(parents=True)
        (collection / "training").symlink_to(CHECKOUT)
        (directory / "home").mkdir()
        self.environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(directory / "home"),
            "LC_ALL": "C.UTF-8",
            "ANSIBLE_COLLECTIONS_PATH": str(directory / "collections"),
            "ANSIBLE_NOCOLOR": "1",
            "PAPERSPACE_API_KEY": server.key,
            "PAPERSPACE_API_URL": server.url,
        }

    def run(self, *command: str, **environment: str) -> Run:
        completed = subprocess.run(
            command,
            check=False,
            cwd=self.directory,
            env=self.environment | environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        return Run(completed.returncode, completed.stdout, completed.stderr)

    def inventory(self, options: dict[str, Any] | None = None, *arguments: str, **environment: str) -> Run:
        """Run ansible-inventory -i paperspace.yml --list on a file with these options."""
        self.file.write_text(yaml.safe_dump({"plugin": "muster.training.paperspace", **(options or {})}))
        return self.run("ansible-inventory", "-i", self.file.name, "--list", *arguments, **environment)

    def refusal(self, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> str:
        """Return the plugin's error for these options, in this process to save CPU time."""
        self.file.write_text(yaml.safe_dump({"plugin": "muster.training.paperspace", **options}))
        for name, value in self.environment.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(AnsibleError) as excinfo:
            plugin = inventory_loader.get("muster.training.paperspace")
            plugin.parse(InventoryData(), DataLoader(), str(self.file), cache=False)
        message = str(excinfo.value)
        assert message.startswith(PREFIX) and KEY not in message
        return message.removeprefix(PREFIX)


@pytest.fixture
def server() -> Iterator[PaperspaceServer]:
    with PaperspaceServer(PaperspaceAccount([machine(0), machine(1)]), key=KEY) as running:
        yield running


@pytest.fixture
def project(tmp_path: Path, server: PaperspaceServer) -> Project:
    return Project(tmp_path, server)


# --- Results


def test_one_line_of_configuration_selects_the_cluster(project: Project, server: PaperspaceServer) -> None:
    server.account.machines.append(machine(2, state="off"))
    run = project.inventory()
    assert (run.code, run.stderr) == (0, "")
    assert run.group("training") == ["node-0", "node-1"]
    assert run.hosts["node-1"] == {
        "ansible_host": "198.18.0.11",
        "ansible_user": "paperspace",
        "node_address": "10.64.0.11",
        "node_price_per_hour": 3.7904,
        "node_rank": 1,
        "node_slots": 2,
        "paperspace_agent_type": "LinuxHeadless",
        "paperspace_auto_shutdown_enabled": False,
        "paperspace_auto_shutdown_timeout": None,
        "paperspace_cpus": 16,
        "paperspace_created": "2026-01-01T00:01:00.000Z",
        "paperspace_gpu_count": 2,
        "paperspace_gpu_memory": 48 * 1024**3,
        "paperspace_gpu_model": "Ampere A6000",
        "paperspace_id": "ps000001",
        "paperspace_machine_type": "A6000x2",
        "paperspace_name": "node-1",
        "paperspace_network_id": "nw0000001",
        "paperspace_network_name": "net-1",
        "paperspace_os": "Ubuntu 22.04",
        "paperspace_private_ip": "10.64.0.11",
        "paperspace_public_ip": "198.18.0.11",
        "paperspace_public_ip_type": "dynamic",
        "paperspace_ram": 90 * 1024**3,
        "paperspace_region": "ny2",
        "paperspace_region_name": "ny2",
        "paperspace_state": "ready",
        "paperspace_storage_rate": 0.0104,
        "paperspace_storage_total": 250 * 1024**3,
        "paperspace_storage_used": 110080,
        "paperspace_usage_rate": 3.78,
    }


@pytest.mark.one_core
def test_every_variable_is_in_the_manual(project: Project) -> None:
    manual = yaml.safe_load(paperspace.DOCUMENTATION)["notes"]
    for name in project.inventory().hosts["node-0"]:
        assert f"C({name})" in " ".join(manual)


@pytest.mark.one_core
def test_both_known_typings_give_the_same_hosts(project: Project, server: PaperspaceServer) -> None:
    documented = project.inventory({"region": "NY2"}).hosts
    server.typing = "observed"
    observed = project.inventory({"region": "NY2"}).hosts
    assert {values.pop("paperspace_region_name") for values in documented.values()} == {"ny2"}
    assert {values.pop("paperspace_region_name") for values in observed.values()} == {"East Coast (NY2)"}
    assert observed == documented
    assert len(observed) == 2


@pytest.mark.one_core
def test_all_pages_are_read(project: Project, server: PaperspaceServer) -> None:
    server.account.machines = [machine(number) for number in range(250)]
    hosts = project.inventory().hosts
    assert sorted(values["node_rank"] for values in hosts.values()) == list(range(250))
    assert hosts["node-249"]["node_rank"] == 249
    assert [request.path for request in server.requests] == ["/machines"] * 3 + ["/private-networks"]


@pytest.mark.one_core
def test_options_select_machines_and_report_those_left_out(project: Project, server: PaperspaceServer) -> None:
    server.account.networks.append(network(2, name="mine"))
    server.account.machines += [
        machine(2, name="a-0", networkId="nw0000002"),
        machine(3, name="a-1", networkId="nw0000002", state="off"),
        machine(4, name="a-2", networkId="nw0000002", machineType="C5", accelerators=None),
        machine(5, name="a-3", region="ams1"),
    ]
    options = {"region": "East Coast (NY2)", "private_network": "mine", "names": ["a-*"], "machine_types": ["a6000x2"]}
    assert project.inventory(options).group("training") == ["a-0"]
    run = project.inventory(options, "-v")
    for text in (
        "excluded by region: a-3 (ps000005)",
        "excluded by private_network: node-0 (ps000000), node-1 (ps000001)",
        "excluded by machine_types: a-2 (ps000004)",
        "excluded by states: a-1 (ps000003)",
    ):
        assert PREFIX + text in run.stdout


@pytest.mark.one_core
def test_query_selects_machines(project: Project, server: PaperspaceServer) -> None:
    server.account.machines.append(machine(2, usageRate=1.89))
    options = {"query": "[?usageRate < `3` || name == 'node-0'].id"}
    assert project.inventory(options).group("training") == ["node-0", "node-2"]
    assert PREFIX + "excluded by query: node-1 (ps000001)" in project.inventory(options, "-v").stdout


@pytest.mark.one_core
@pytest.mark.parametrize(
    ("query", "expected_text"),
    [("[?usageRate <]", "is invalid at character 14, at ']'"), ("length(@)", "does not return a list of machines")],
)
def test_invalid_query_is_an_error(project: Project, query: str, expected_text: str) -> None:
    assert expected_text in failure_message(project.inventory({"query": query}))


@pytest.mark.one_core
def test_hosts_can_use_private_addresses_and_ids_as_names(project: Project) -> None:
    run = project.inventory({"connect_with": "private", "hostnames": ["id"], "user": "ubuntu"})
    assert run.hosts["ps000000"]["ansible_host"] == "10.64.0.10"
    assert run.hosts["ps000000"]["ansible_user"] == "ubuntu"


def test_compose_groups_and_keyed_groups_are_applied(project: Project, server: PaperspaceServer) -> None:
    server.account.machines.append(machine(2, machineType="A100-80G", accelerators=None))
    run = project.inventory(
        {
            "strict": True,
            "compose": {"node_slots": "paperspace_gpu_count * 4", "twice": "node_slots * 2"},
            "groups": {"first": "node_rank == 0"},
            "keyed_groups": [{"prefix": "type", "key": "paperspace_machine_type"}],
        }
    )
    assert run.stderr == ""
    assert [values["node_slots"] for values in run.hosts.values()] == [8, 8, 4]
    assert run.group("first") == ["node-0"]
    assert run.group("type_A6000x2") == ["node-0", "node-1"]
    assert run.group("type_A100_80G") == ["node-2"]


@pytest.mark.one_core
def test_empty_inventory_gives_a_warning_with_the_reason(project: Project, server: PaperspaceServer) -> None:
    run = project.inventory({"region": "ca1"})
    assert (run.code, run.hosts) == (0, {})
    assert "no hosts: of 2 machines, region excluded 2 (2 x ny2)." in run.message
    server.account.machines.clear()
    assert "this API key's account has no machines" in project.inventory().message


# --- The network drive


@pytest.fixture
def cluster(server: PaperspaceServer) -> dict[str, Any]:
    """Provide a cluster with a drive, and a drive with the same name in another network."""
    server.account.networks = [network(1), network(2, name="muster-bert")]
    server.account.machines = [machine(0, name="bert-0", networkId=network(2)["id"])]
    server.account.drives = [
        drive(1, name="bert-data", networkId=network(1)["id"]),
        drive(2, name="bert-data", networkId=network(2)["id"], password="{{ 1 + 1 }}"),
    ]
    return server.account.drives[1]


def test_cluster_drive_becomes_a_cifs_share_mount(project: Project, cluster: dict[str, Any]) -> None:
    """Its password is requested on demand, is not a template, and is not listed."""
    run = project.inventory({"cluster": "bert"})
    assert (run.code, run.stderr) == (0, "")
    assert "{{ 1 + 1 }}" not in run.stdout
    hosts = run.hosts["bert-0"]
    (mount,) = hosts["cifs_share_mounts"]
    assert mount["path"] == "/mnt/training-data"
    assert plain(mount["share"]) == cluster["mountPoint"].replace("\\", "/")
    text = "username={{ cifs_share_username }} password={{ cifs_share_password }}"
    output = project.run(
        "ansible", "-i", "paperspace.yml", "-c", "local", "bert-0", "-m", "debug", "-a", f"msg='{text}'"
    )
    assert f"username={cluster['username']} password={{{{ 1 + 1 }}}}" in output.stdout


def test_group_vars_override_the_drive(project: Project, cluster: dict[str, Any]) -> None:
    (project.directory / "group_vars").mkdir()
    (project.directory / "group_vars" / "all.yml").write_text("cifs_share_mounts: []\n")
    assert project.inventory({"cluster": "bert"}).hosts["bert-0"]["cifs_share_mounts"] == []


@pytest.mark.one_core
@pytest.mark.parametrize("options", [{"cluster": "bert", "drive_path": ""}, {"private_network": "muster-bert"}])
def test_excluded_drive_is_not_requested(
    project: Project, server: PaperspaceServer, cluster: dict[str, Any], options: dict[str, str]
) -> None:
    assert "cifs_share_mounts" not in project.inventory(options).hosts["bert-0"]
    assert "/shared-drives" not in [request.path for request in server.requests]


@pytest.mark.one_core
def test_no_password_is_in_the_cache(project: Project, cluster: dict[str, Any]) -> None:
    options = {"cache": True, "cache_plugin": "ansible.builtin.jsonfile", "cache_connection": "kept"}
    for _turn in range(2):
        assert "cifs_share_mounts" in project.inventory({"cluster": "bert", **options}).hosts["bert-0"]
    (cache_file,) = (project.directory / "kept").iterdir()
    assert "bert-data" in cache_file.read_text()
    assert "1 + 1" not in cache_file.read_text()


# --- Error messages


def failure_message(run: Run) -> str:
    """Return the one-line error of a run without hosts, which Ansible considers a success."""
    assert (run.code, run.hosts) == (0, {})
    assert "Traceback" not in run.stderr
    assert KEY not in run.stdout + run.stderr
    return run.message


LIVE_401 = "GET /machines: HTTP 401 UNAUTHORIZED: You must be logged in to access this method."


@pytest.mark.one_core
def test_missing_api_key_is_an_error(project: Project) -> None:
    message = failure_message(project.inventory(PAPERSPACE_API_KEY=""))
    assert "no API key in the option api_key, PAPERSPACE_API_KEY, ~/.paperspace/credentials.toml or" in message
    assert "Create a key at https://console.paperspace.com/settings/apikeys" in message


@pytest.mark.one_core
def test_wrong_api_key_is_an_error(project: Project) -> None:
    message = failure_message(project.inventory(PAPERSPACE_API_KEY="wrong"))
    assert message == (
        f"{LIVE_401} The API key is wrong or was deleted. Check PAPERSPACE_API_KEY (or the option api_key); "
        "create keys at https://console.paperspace.com/settings/apikeys."
    )


def body(code: str, message: str) -> str:
    return json.dumps({"message": message, "code": code})


@pytest.mark.parametrize(
    ("injected", "texts"),
    [
        (
            PaperspaceFault(status=403, body=body("FORBIDDEN", "Not your team.")),
            ["GET /machines: HTTP 403 FORBIDDEN: Not your team. The API key lacks permission", "Use a key of the team"],
        ),
        (
            PaperspaceFault(status=404, body=body("NOT_FOUND", "Not found")),
            ["GET /machines: HTTP 404 NOT_FOUND: Not found. Check", "PAPERSPACE_API_URL or the option api_url"],
        ),
        (
            PaperspaceFault(status=429, body=body("TOO_MANY_REQUESTS", "Slow down."), headers={"Retry-After": "0"}),
            ["GET /machines: HTTP 429 TOO_MANY_REQUESTS: Slow down. Wait a few minutes and try again"],
        ),
        (
            PaperspaceFault(status=429, headers={"Retry-After": "999"}, body=body("TOO_MANY_REQUESTS", "Slow down.")),
            ["HTTP 429 TOO_MANY_REQUESTS: Slow down. The API requests a wait of 999 s before the next attempt."],
        ),
        (
            PaperspaceFault(status=500, headers={"Retry-After": "99"}, body=body("INTERNAL_SERVER_ERROR", "Oops.")),
            ["HTTP 500 INTERNAL_SERVER_ERROR: Oops. The API requests a wait of 99 s"],
        ),
        (
            PaperspaceFault(
                status=400,
                body='{"code": "BAD_REQUEST", "message": "Input validation failed", "issues": '
                '[{"path": ["limit"], "message": "Too big"}]}',
            ),
            ["HTTP 400 BAD_REQUEST: Input validation failed (limit: Too big). The API rejected this request"],
        ),
        (
            PaperspaceFault(status=302, headers={"Location": "https://example.org/"}),
            ["HTTP 302: redirected to https://example"],
        ),
        (
            PaperspaceFault(body="<html><title>Log in</title>"),
            ['HTTP 200, but not the expected JSON: an HTML page, "Log in".'],
        ),
        (
            PaperspaceFault(body='{"items": [{"id": "ps'),
            ["HTTP 200, but not the expected JSON: text that begins", "api_url"],
        ),
        (
            PaperspaceFault(body="[]"),
            ["GET /machines: HTTP 200, but not a page of a list. Check that the API's URL is"],
        ),
        (PaperspaceFault(next_page=cursor("ps000000")), ["GET /machines: the pages form a loop: page 2 points to"]),
        (PaperspaceFault(path="/private-networks", status=403), ["GET /private-networks: HTTP 403"]),
        (
            PaperspaceFault(status=400, body=body("X", "a\n\x1b[31mred\u202e" + 5000 * "x")),
            ["X: a [31mred xxx", "xx... The API"],
        ),
        (PaperspaceFault(status=400, body="you sent {authorization}"), ["you sent Bearer (key)"]),
    ],
)
@pytest.mark.one_core
def test_error_replies_are_explained(
    project: Project,
    server: PaperspaceServer,
    monkeypatch: pytest.MonkeyPatch,
    injected: PaperspaceFault,
    texts: list[str],
) -> None:
    server.faults = [injected]
    message = project.refusal({"retries": 1}, monkeypatch)
    for text in texts:
        assert text in message
    assert message.isprintable()
    assert len(message) < 900


@pytest.mark.parametrize(
    ("injected", "text"),
    [
        (
            PaperspaceFault(status=500, body=body("X", "Oops.")),
            "HTTP 500 X: Oops. This is an error in Paperspace's service: see https",
        ),
        (
            PaperspaceFault(status=503, body="<!DOCTYPE html><title>Busy</title>"),
            'HTTP 503: an HTML page, "Busy". This is an error in',
        ),
        (PaperspaceFault(status=429, body=body("X", "Slow.")), "HTTP 429 X: Slow. Wait a few minutes and try again"),
        (PaperspaceFault(delay=60), "no complete response within 0.5 s. Try again, or raise the timeout."),
        (
            PaperspaceFault(drop=True),
            "the connection failed: Remote end closed connection without response. Check this machine",
        ),
        (PaperspaceFault(truncate=30), "bytes. Check this machine's network and proxy settings"),
    ],
)
@pytest.mark.one_core
def test_temporary_failures_are_explained_when_retries_are_off(
    project: Project, server: PaperspaceServer, monkeypatch: pytest.MonkeyPatch, injected: PaperspaceFault, text: str
) -> None:
    server.faults = [injected]
    timeout = 0.5 if injected.delay else 30  # even an immediate reply may be slow to arrive on a busy machine
    message = project.refusal({"retries": 0, "timeout": timeout}, monkeypatch)
    assert text in message
    assert message.startswith("GET /machines")


@pytest.mark.one_core
def test_busy_server_is_retried_and_the_wait_is_shown(project: Project, server: PaperspaceServer) -> None:
    server.faults = [
        PaperspaceFault(
            status=429, times=1, headers={"Retry-After": "1"}, body=body("TOO_MANY_REQUESTS", "Slow down.")
        ),
        PaperspaceFault(status=502, times=1, headers={"Retry-After": "0"}, body="<html>"),
        PaperspaceFault(path="/private-networks", drop=True, times=1),
    ]
    start = time.monotonic()
    run = project.inventory()
    assert time.monotonic() - start > 2
    assert len(run.hosts) == 2
    assert [line.partition(PREFIX)[2] for line in run.stderr.splitlines() if PREFIX in line] == [
        "GET /machines: HTTP 429 TOO_MANY_REQUESTS: Slow down.; retrying in 1 s (1 of 4)",
        "GET /machines: HTTP 502: an HTML page; retrying in 0 s (2 of 4)",
        f"GET /private-networks at {server.url[7:-3]}: the connection failed: Remote end closed connection without "
        "response; retrying in 1 s (1 of 4)",
    ]


@pytest.mark.one_core
def test_failure_of_the_last_page_fails_the_whole_inventory(project: Project, server: PaperspaceServer) -> None:
    server.account.machines = [machine(number) for number in range(250)]
    server.faults = [PaperspaceFault(path="/machines", skip=2, status=500, body=body("INTERNAL_SERVER_ERROR", "Oops."))]
    run = project.inventory({"retries": 0})
    assert "GET /machines: HTTP 500" in failure_message(run)
    strict = project.inventory({"retries": 0}, ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED="true")
    assert strict.code != 0


@pytest.mark.one_core
def test_unusable_api_url_is_explained(project: Project) -> None:
    with PaperspaceServer() as closed_server:
        url = closed_server.url
    message = failure_message(project.inventory({"retries": 0}, PAPERSPACE_API_URL=url))
    assert "the connection failed: Connection refused. Check this machine's network and proxy settings" in message
    message = failure_message(project.inventory({"api_url": "https://nothing.invalid/v1"}))
    assert message.startswith("GET /machines at nothing.invalid: cannot resolve the server's name:")
    message = failure_message(project.inventory({"api_url": "http://api.paperspace.com/v1"}))
    assert message.startswith("http://api.paperspace.com would send the API key unencrypted. Omit PAPERSPACE_API_URL")


@pytest.mark.one_core
def test_failed_tls_connection_is_explained(project: Project, server: PaperspaceServer) -> None:
    message = failure_message(project.inventory({"retries": 0, "api_url": server.url.replace("http:", "https:")}))
    assert "the TLS connection failed: " in message
    assert "Check this machine's clock, and whether a proxy intercepts TLS connections" in message


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"region": "ams1"},
            "2 regions and cannot reach each other: ny2: node-0 (ps000000), node-1 (ps000001); ams1",
        ),
        (
            {"networkId": "nw0000009"},
            "net-1 (nw0000001): node-0 (ps000000), node-1 (ps000001); nw0000009: odd",
        ),
        ({"publicIp": None}, "no public address: odd (ps000002). Assign one in the Paperspace console"),
        ({"privateIp": None}, "no private address: odd (ps000002)."),
    ],
)
@pytest.mark.one_core
def test_machines_that_cannot_form_a_cluster_are_refused(
    project: Project, server: PaperspaceServer, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], text: str
) -> None:
    server.account.machines.append(machine(2, name="odd", **changes))
    assert text in project.refusal({}, monkeypatch)


@pytest.mark.one_core
def test_unknown_network_is_refused(project: Project) -> None:
    message = failure_message(project.inventory({"private_network": "mine"}))
    assert message.startswith("private_network: no network has the name or id 'mine'; existing: net-1 (nw0000001).")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"states": ["on"]}, "Invalid value ['on'] for config 'states'"),
        ({"connect_with": "vpn"}, "Invalid value 'vpn' for config 'connect_with'"),
        ({"timeout": "soon"}, "Config 'timeout' for"),
        (
            {"api_key": "{{ lookup('ansible.builtin.env', 'NO_SUCH', default=undef()) }}"},
            "The environment variable 'NO_SUCH' is not set",
        ),
    ],
)
def test_invalid_options_are_reported(project: Project, options: dict[str, Any], text: str) -> None:
    run = project.inventory(options)
    assert run.hosts == {}
    assert text in run.stderr


def test_file_with_another_name_is_not_read_by_the_plugin(project: Project) -> None:
    project.inventory()
    project.file.rename(project.directory / "cloud.yml")
    run = project.run("ansible-inventory", "-i", "cloud.yml", "--list")
    assert run.hosts == {}
    assert "could not be verified by inventory plugin 'muster.training.paperspace'" in run.stderr


# --- The key


@pytest.mark.one_core
def test_key_is_read_from_credentials_of_the_official_cli(project: Project) -> None:
    directory = project.directory / "home" / ".paperspace"
    directory.mkdir()
    (directory / "credentials.toml").write_text(f'version = 1\n[keys]\nmy-team = "{KEY}"\n')
    assert len(project.inventory(PAPERSPACE_API_KEY="").hosts) == 2


def test_key_can_come_from_a_template(project: Project) -> None:
    options = {"api_key": "{{ lookup('ansible.builtin.env', 'TEAM_KEY') }}"}
    assert len(project.inventory(options, TEAM_KEY=KEY, PAPERSPACE_API_KEY="wrong").hosts) == 2


def test_key_never_appears_in_output_logs_or_files(project: Project, server: PaperspaceServer) -> None:
    options = {"cache": True, "cache_plugin": "ansible.builtin.jsonfile", "cache_connection": "cache", "retries": 0}
    for injected in (
        PaperspaceFault(times=0),
        PaperspaceFault(status=500, body="you sent {authorization}"),
        PaperspaceFault(drop=True),
    ):
        server.faults = [injected]
        run = project.inventory(options, "-vvvvv", "--flush-cache", ANSIBLE_LOG_PATH="log.txt", ANSIBLE_DEBUG="1")
        assert KEY not in run.stdout + run.stderr
    assert KEY not in project.run("ansible-config", "dump", "--type", "all").stdout
    files = [path for path in project.directory.rglob("*") if path.is_file() and "collections" not in path.parts]
    assert {path.name for path in files} >= {"log.txt", "paperspace.yml"}
    assert any(path.parent.name == "cache" for path in files)
    for path in files:
        assert KEY.encode() not in path.read_bytes()


# --- The cache


CACHE = {"cache": True, "cache_plugin": "ansible.builtin.jsonfile", "cache_connection": "cache"}


@pytest.mark.one_core
def test_cache_holds_the_raw_reply_so_changed_options_apply_immediately(
    project: Project, server: PaperspaceServer
) -> None:
    server.account.machines.append(machine(2, state="off"))
    assert len(project.inventory(CACHE).hosts) == 2
    request_count = len(server.requests)
    assert len(project.inventory(CACHE | {"names": ["node-1"]}).hosts) == 1
    assert len(project.inventory(CACHE | {"states": []}).hosts) == 3
    assert len(server.requests) == request_count
    (file,) = (project.directory / "cache").iterdir()
    assert json.loads(json.loads(file.read_text())["__payload__"])["machines"] == server.account.machines


@pytest.mark.one_core
def test_flush_cache_repeats_the_request_and_caches_the_new_reply(project: Project, server: PaperspaceServer) -> None:
    project.inventory(CACHE)
    server.account.machines.append(machine(2))
    assert len(project.inventory(CACHE).hosts) == 2
    assert len(project.inventory(CACHE, "--flush-cache").hosts) == 3
    assert len(project.inventory(CACHE).hosts) == 3


@pytest.mark.one_core
def test_wrong_key_is_not_hidden_by_a_cached_reply(project: Project) -> None:
    project.inventory(CACHE)
    run = project.inventory(CACHE, "--flush-cache", PAPERSPACE_API_KEY="wrong")
    assert LIVE_401 in failure_message(run)


@pytest.mark.one_core
def test_malformed_cache_file_is_not_trusted(project: Project) -> None:
    """Each request rewrites the file, so each malformed content replaces a valid one."""
    project.inventory(CACHE)
    (file,) = (project.directory / "cache").iterdir()
    good = file.read_text()
    for content in ("", "{", "[]", '{"machines": {"a": 1}}'):
        for written in (json.dumps({"__payload__": content}), content):
            file.write_text(written)
            assert len(project.inventory(CACHE).hosts) == 2, written
            assert file.read_text() == good, written


# --- Hostile input


EVIL = "{{ lookup('ansible.builtin.pipe', 'touch evil') }}"


def test_api_replies_are_data_and_never_code(project: Project, server: PaperspaceServer) -> None:
    texts = {"name": EVIL, "os": EVIL, "machineType": EVIL, "agentType": EVIL, "region": EVIL}
    server.account.machines = [machine(0, **texts), machine(1, **texts | {"name": f"a\n\x1b]0;x\x07{EVIL}"})]
    server.account.networks[0]["name"] = EVIL
    options = {
        "compose": {"composed": "paperspace_name ~ '{{ 1 + 1 }}'"},
        "keyed_groups": [{"prefix": "os", "key": "paperspace_os"}],
        **CACHE,
    }
    for _source in ("asked", "from the cache"):
        run = project.inventory(options)
        assert run.group("training") == [
            "lookup-ansible.builtin.pipe-touch-evil-ps000000",
            "a-0-x-lookup-ansible.builtin.pipe-touch-evil-ps000001",
        ]
        assert {values["paperspace_os"] for values in run.hosts.values()} == {EVIL}
        used = project.run(
            "ansible",
            "training",
            *("-i", "paperspace.yml", "-c", "local", "-m", "ansible.builtin.debug"),
            *("-a", "msg={{ [paperspace_name, paperspace_os, paperspace_network_name, composed, group_names] }}"),
        )
        assert used.code == 0, used.stdout + used.stderr
        assert used.stdout.count(EVIL) >= 8
        assert "\x1b" not in used.stdout
        assert "\x07" not in used.stdout
    assert not list(project.directory.rglob("evil"))


@pytest.mark.one_core
def test_overlong_texts_are_shortened(project: Project, server: PaperspaceServer) -> None:
    server.account.machines = [machine(0, name="n" * 10**6, os="o" * 10**6)]
    ((name, values),) = project.inventory().hosts.items()
    assert name == "n" * 54 + "-ps000000"
    assert len(values["paperspace_os"]) == len(values["paperspace_name"]) == 255


@pytest.mark.one_core
def test_duplicate_and_reserved_names_get_the_machine_id(project: Project, server: PaperspaceServer) -> None:
    server.account.machines = [machine(0, name="gpu"), machine(1, name="gpu"), machine(2, name="localhost")]
    assert project.inventory().group("training") == ["gpu-ps000000", "gpu-ps000001", "localhost-ps000002"]


# --- The manual and its examples


def test_ansible_doc_shows_the_manual(project: Project) -> None:
    run = project.run("ansible-doc", "-t", "inventory", "muster.training.paperspace")
    assert run.code == 0, run.stderr
    for text in ("Queries the Paperspace API", "PAPERSPACE_API_KEY", "PAPERSPACE_API_URL", "private_network"):
        assert text in run.stdout


@pytest.mark.parametrize("number", range(len(list(yaml.safe_load_all(paperspace.EXAMPLES)))))
def test_the_examples_run(project: Project, server: PaperspaceServer, number: int) -> None:
    example = paperspace.EXAMPLES.split("\n---\n")[number]
    name = "muster-bert" if "cluster: bert" in example else "my-team-net"
    server.account.networks.append(network(2, name=name))
    server.account.machines = [machine(n, name=f"bert-{n}", networkId="nw0000002") for n in range(2)]
    (project.directory / "pass").write_text(f"#!/bin/sh\necho {KEY}\n")
    (project.directory / "pass").chmod(0o700)
    project.file.write_text(example)
    path = f"{project.directory}:{project.environment['PATH']}"
    run = project.run("ansible-inventory", "-i", "paperspace.yml", "--list", PATH=path)
    assert (run.stderr, run.group("training")) == ("", ["bert-0", "bert-1"])


@pytest.mark.one_core
def test_sample_file_works_unchanged(project: Project) -> None:
    project.file.write_text((CHECKOUT / "inventories" / "paperspace.yml").read_text())
    assert project.run("ansible-inventory", "-i", "paperspace.yml", "--list").group("training") == ["node-0", "node-1"]


@pytest.mark.one_core
def test_paperspace_server_can_be_started_by_hand(project: Project) -> None:
    (project.directory / "machines.json").write_text('[{"name": "lab-0", "publicIp": "192.0.2.7"}]')
    command = [sys.executable, "-m", "tests.support.paperspace_server", "--port", "0", "--typing", "observed"]
    command += ["--machines-file", str(project.directory / "machines.json"), "--fault", '{"status": 503, "times": 1}']
    with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        settings = dict(pair.split("=", 1) for pair in process.stdout.readline().split())
        run = project.inventory(None, **settings)
        process.terminate()
        assert process.wait(120) == 0
    assert run.hosts["lab-0"]["ansible_host"] == "192.0.2.7"
    assert "HTTP 503" in run.stderr
