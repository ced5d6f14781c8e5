"""The job's variables: interfaces, caches, services and credentials."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._checks.job_environment import (
    interface_problem,
    ownership_command,
    selected_interfaces,
)
from ansible_collections.muster.training.plugins.plugin_utils._checks.job_request import plain_environment
from tests.unit.healthy import GIB, Facts, Spoil, cluster, findings, spoilt

INTERFACES = ["lo", "docker0", "eth0", "eth1", "veth1a2b", "ib0"]


@pytest.mark.parametrize(
    ("variable", "value", "selected", "unknown"),
    [
        ("NCCL_SOCKET_IFNAME", "eth", ["eth0", "eth1"], []),
        ("NCCL_SOCKET_IFNAME", "=eth0", ["eth0"], []),
        ("NCCL_SOCKET_IFNAME", "=eth", [], ["eth"]),
        ("NCCL_SOCKET_IFNAME", "eth0,ib", ["eth0", "ib0"], []),
        ("NCCL_SOCKET_IFNAME", "=eth0:5000", ["eth0"], []),
        ("NCCL_SOCKET_IFNAME", "^docker,lo,veth", ["eth0", "eth1", "ib0"], []),
        ("NCCL_SOCKET_IFNAME", "^=docker", INTERFACES, []),
        ("NCCL_SOCKET_IFNAME", "eth9,eth0", ["eth0"], ["eth9"]),
        ("GLOO_SOCKET_IFNAME", "eth0,eth1", ["eth0", "eth1"], []),
        ("GLOO_SOCKET_IFNAME", "eth", [], ["eth"]),
        ("TP_SOCKET_IFNAME", "ib0", ["ib0"], []),
    ],
)
def test_interfaces_are_selected_as_by_the_library(
    variable: str, value: str, selected: list[str], unknown: list[str]
) -> None:
    assert selected_interfaces(variable, value, INTERFACES) == (selected, unknown)


@pytest.mark.parametrize(
    ("variable", "value", "problem", "fatal"),
    [
        ("NCCL_SOCKET_IFNAME", "eth0", "", False),
        ("NCCL_SOCKET_IFNAME", "^lo,docker0", "", False),
        ("NCCL_SOCKET_IFNAME", "eth9", "the node has no such interface", True),
        ("NCCL_SOCKET_IFNAME", "eth9,eth0", "", False),
        ("NCCL_SOCKET_IFNAME", "lo", "it selects lo, which has no route to other machines", True),
        ("NCCL_SOCKET_IFNAME", "docker0,eth0", "it also selects docker0", False),
        ("NCCL_SOCKET_IFNAME", "^eth,lo,docker,veth,ib", "it excludes all interfaces", True),
        ("GLOO_SOCKET_IFNAME", "eth9", "the node has no interface eth9", True),
        ("GLOO_SOCKET_IFNAME", "veth1a2b", "it selects veth1a2b", True),
        ("GLOO_SOCKET_IFNAME", "eth1", "eth1 is down", True),
    ],
)
def test_interface_must_exist_and_lead_to_other_machines(variable: str, value: str, problem: str, fatal: bool) -> None:
    interfaces = {name: {"up": name != "eth1"} for name in INTERFACES}
    text, is_fatal = interface_problem(variable, value, interfaces)
    assert text.startswith(problem) and bool(text) == bool(problem) and is_fatal == fatal


@pytest.mark.parametrize(
    ("environment", "gpu_count", "severity"),
    [
        ({"GLOO_SOCKET_IFNAME": "ens5"}, 0, ""),
        ({"NCCL_SOCKET_IFNAME": "ens"}, 8, ""),
        ({"NCCL_SOCKET_IFNAME": "^lo,docker"}, 8, ""),
        ({"GLOO_SOCKET_IFNAME": "eth9"}, 0, "error"),
        ({"GLOO_SOCKET_IFNAME": "eth9"}, 8, "warning"),
        ({"NCCL_SOCKET_IFNAME": "eth9"}, 8, "error"),
        ({"NCCL_SOCKET_IFNAME": "eth9"}, 0, "warning"),
        ({"NCCL_SOCKET_IFNAME": "lo"}, 8, "error"),
    ],
)
def test_wrong_interface_stops_the_launch_only_if_its_library_is_used(
    environment: dict[str, str], gpu_count: int, severity: str
) -> None:
    result = findings(cluster(2, gpu_count), environment=environment)
    assert [(item.severity, item.id, item.nodes) for item in result] == (
        [(severity, "job-interface", ("node1", "node2"))] if severity else []
    )
    assert all("ens5 on node1" in item.remedy for item in result)


def test_only_the_nodes_without_the_interface_are_named() -> None:
    def spoil(facts: dict[str, Facts]) -> None:
        facts["node3"]["interfaces"]["enp1s0"] = facts["node3"]["interfaces"].pop("ens5")

    assert spoilt(spoil, environment={"GLOO_SOCKET_IFNAME": "ens5"}) == [("error", "job-interface", ("node3",))]


def cache(variable: str, **values: Any) -> Spoil:
    def spoil(facts: dict[str, Facts]) -> None:
        home = facts["node2"]["caches"]["HOME"]
        facts["node2"]["caches"].setdefault(variable, {**home, "path": f"/c/{variable}", "existing": "/c"})
        facts["node2"]["caches"][variable].update(values)

    return spoil


@pytest.mark.parametrize(
    ("variable", "values", "libraries", "severity"),
    [
        ("HF_HOME", {"writable": False}, [], ""),
        ("HF_HOME", {"writable": False}, ["transformers"], "warning"),
        ("HF_HOME", {"writable": False, "explicit": True}, [], "warning"),
        ("HOME", {"writable": False}, [], "warning"),
        ("TMPDIR", {"writable": False}, [], "error"),
        ("TRITON_CACHE_DIR", {"writable": False}, ["torch"], ""),
        ("TRITON_CACHE_DIR", {"writable": False}, ["deepspeed"], "warning"),
    ],
)
def test_cache_must_be_writable_if_the_job_uses_it(
    variable: str, values: dict[str, Any], libraries: list[str], severity: str
) -> None:
    facts = cluster(2)
    cache(variable, **values)(facts)
    facts["node2"]["imports"]["libraries"] = libraries
    result = findings(facts)
    assert [(item.severity, item.id, item.nodes) for item in result] == (
        [(severity, "cache-unwritable", ("node2",))] if severity else []
    )
    assert all(variable in item.problem and "sudo " in item.remedy for item in result)


@pytest.mark.parametrize(
    ("path", "existing", "command"),
    [
        ("/home/u/.cache/huggingface", "/home/u/.cache/huggingface", "sudo chown ubuntu /home/u/.cache/huggingface"),
        ("/root/hf", "/root", "sudo install -d -o ubuntu /root/hf"),
        ("/tmp", "/tmp", "sudo chmod 1777 /tmp"),
    ],
)
def test_user_is_given_ownership_of_only_the_directory_itself(path: str, existing: str, command: str) -> None:
    assert ownership_command("ubuntu", path, existing) == command


def test_cache_on_a_separate_full_disk_is_reported() -> None:
    full = {"free_bytes": GIB // 4, "explicit": True}
    assert spoilt(cache("HF_HOME", **full, device=7)) == [("warning", "cache-no-room", ("node2",))]
    assert spoilt(cache("HF_HOME", **full)) == []  # the disk that holds the runs, which disk-full reports


def services(first: bool = False, **values: Any) -> Spoil:
    def spoil(facts: dict[str, Facts]) -> None:
        facts["node1" if first else "node2"]["services"].update(values)

    return spoil


UNREACHED = {"host": "huggingface.co", "error": "huggingface.co does not resolve: Name or service not known"}
MODELS = {"--model_name_or_path": "meta-llama/Llama-3.1-8B"}


def test_unreachable_services_are_warnings() -> None:
    assert spoilt(services(hub={"host": "huggingface.co", "error": ""}, models=MODELS)) == []
    facts = cluster(2)
    services(hub=UNREACHED, models=MODELS)(facts)
    (result,) = findings(facts)
    assert (result.severity, result.id, result.nodes) == ("warning", "hub-unreachable", ("node2",))
    assert "meta-llama/Llama-3.1-8B" in result.problem and UNREACHED["error"] in result.problem


def test_wandb_is_needed_on_the_first_node_only_and_needs_a_key() -> None:
    reachable = {"host": "api.wandb.ai", "error": "", "netrc": False}
    assert spoilt(services(wandb={**reachable, "error": "no"})) == []
    assert spoilt(services(True, wandb={**reachable, "error": "no", "netrc": True})) == [
        ("warning", "wandb-unreachable", ("node1",))
    ]
    assert spoilt(services(True, wandb=reachable)) == [("warning", "wandb-no-key", ("node1",))]
    assert spoilt(services(True, wandb=reachable), environment={"WANDB_API_KEY": "k" * 40}) == []
    assert spoilt(services(True, wandb={**reachable, "netrc": True})) == []


def expiry(seconds: float) -> str:
    """Return an expiry time this many seconds after the time in the facts."""
    return datetime.datetime.fromtimestamp(1000.5 + seconds, datetime.UTC).isoformat()


def test_bucket_needs_credentials() -> None:
    bucket: dict[str, Any] = {"buckets": ["data"], "s3": {"host": "s3.amazonaws.com", "error": ""}}
    unknown = {"source": "", "expires": "", "known": False}
    assert spoilt(services(**bucket, credentials=unknown)) == [("warning", "bucket-credentials", ("node2",))]
    assert spoilt(services(**bucket, credentials={**unknown, "known": True})) == []
    assert spoilt(services(**bucket)) == []  # the metadata service did not respond in time


@pytest.mark.parametrize(("seconds", "severity"), [(7200, ""), (600, "warning"), (-600, "error")])
def test_temporary_credentials_must_be_valid(seconds: float, severity: str) -> None:
    on_node = {"source": "/home/ubuntu/.aws/credentials", "expires": expiry(seconds), "known": True}
    result = spoilt(services(buckets=["data"], credentials=on_node))
    assert result == ([(severity, "credentials-expire", ("node2",))] if severity else [])
    variables = {"AWS_SESSION_TOKEN": "t", "AWS_CREDENTIAL_EXPIRATION": expiry(seconds), "AWS_ACCESS_KEY_ID": "a"}
    no_expiry = {"source": "", "expires": "", "known": True}
    passed = spoilt(services(buckets=["data"], credentials=no_expiry), environment=variables)
    assert passed == ([(severity, "credentials-expire", ())] if severity else [])


def test_variables_sent_to_nodes_contain_no_secrets() -> None:
    environment = {
        "HF_TOKEN": "secret",
        "WANDB_API_KEY": "secret",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "HF_ENDPOINT": "https://user:secret@hub",
        "NCCL_SOCKET_IFNAME": "eth0",
        "NCCL_IB_GID_INDEX": 3,
        "HF_HOME": None,
    }
    assert plain_environment(environment) == {"NCCL_SOCKET_IFNAME": "eth0", "NCCL_IB_GID_INDEX": "3"}
