# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check a job's variables for interfaces and caches, and for the services that it accesses."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._checks.context import CheckContext, format_gib
from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import Finding, error, warning
from ansible_collections.muster.training.plugins.plugin_utils._text.name_list import format_list

INTERNAL_PREFIXES = ("lo", "docker", "veth", "br-", "virbr", "cni", "flannel", "cali")
SOCKET_VARIABLES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
MIN_CACHE_BYTES = 2**30  # room for compiled kernels; models need more than this
SHORT_LIFETIME = 3600.0  # seconds for which temporary credentials should still be valid
# The libraries that use a cache; a job that uses none of them does not need it.
CACHE_USERS: dict[str, frozenset[str]] = {
    "HF_HOME": frozenset({"transformers", "datasets", "huggingface_hub", "diffusers", "peft", "trl", "accelerate"}),
    "TRITON_CACHE_DIR": frozenset({"triton", "deepspeed", "flash_attn", "unsloth"}),
    "TORCHINDUCTOR_CACHE_DIR": frozenset(),
    "TORCH_HOME": frozenset({"torchvision", "timm"}),
    "XDG_CACHE_HOME": frozenset(),
}


DOCKER_BRIDGE = re.compile(r"br-[0-9a-f]{12}")  # other bridges, such as br-ex or br-bond0, may be uplinks
# Credentials that AWS's libraries prefer over a file.
PREFERRED_CREDENTIALS = {"AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE"}


def is_internal(interface: str) -> bool:
    """Return whether an interface has no route to other machines."""
    prefixes = tuple(prefix for prefix in INTERNAL_PREFIXES[1:] if not prefix.startswith("br-"))
    return interface == "lo" or interface.startswith(prefixes) or bool(DOCKER_BRIDGE.fullmatch(interface))


def selected_interfaces(variable: str, value: str, interfaces: list[str]) -> tuple[list[str], list[str]]:
    """Return the interfaces that a variable selects, and the names in the variable that match no interface.

    NCCL takes a list of prefixes; "=" requires exact names, "^" excludes them (src/misc/socket.cc). A name may be
    followed by a port. gloo and TensorPipe take exact names.
    """
    excludes = is_exact = False
    if variable.startswith("NCCL"):
        excludes = value.startswith("^")
        is_exact = value.lstrip("^").startswith("=")
        value = value.lstrip("^=")
    else:
        is_exact = True
    names = [name.strip().partition(":")[0] for name in value.split(",") if name.strip()]

    def matches(interface: str, name: str) -> bool:
        return interface == name if is_exact else interface.startswith(name)

    matched = [interface for interface in interfaces if any(matches(interface, name) for name in names)]
    if excludes:
        return [interface for interface in interfaces if interface not in matched], []
    return matched, [name for name in names if not any(matches(interface, name) for interface in interfaces)]


def interface_problem(variable: str, value: str, interfaces: Mapping[str, Mapping[str, Any]]) -> tuple[str, bool]:
    """Return the problem with a variable on a node and whether it prevents the run, or ("", False)."""
    selected, unknown = selected_interfaces(variable, value, list(interfaces))
    is_exclusion = value.startswith("^")
    if unknown and not variable.startswith("NCCL"):
        return f"the node has no interface {format_list(unknown)}", True
    external = [name for name in selected if not is_internal(name)]
    if not selected:
        return "it excludes all interfaces" if is_exclusion else "the node has no such interface", True
    if not external:
        return f"it selects {format_list(selected)}, which has no route to other machines", True
    if not is_exclusion and len(external) < len(selected):
        internal = [name for name in selected if is_internal(name)]
        return f"it also selects {format_list(internal)}, which has no route to other machines", False
    if not any(interfaces[name]["up"] for name in external):
        return f"{format_list(external)} is down", True
    return "", False


def is_used(variable: str, context: CheckContext, name: str) -> bool:
    """Return whether the job's backend on a node certainly reads a variable: NCCL if there are GPUs, otherwise gloo."""
    has_gpus = bool(context.facts[name].get("gpu_count"))
    return has_gpus if variable.startswith("NCCL") else not has_gpus and variable.startswith("GLOO")


def check_interfaces(context: CheckContext) -> list[Finding]:
    """Check the interfaces that the job's variables name on each node."""
    if context.all_loopback:
        return []
    problems: dict[tuple[str, str, bool], list[str]] = {}
    for variable in SOCKET_VARIABLES:
        value = context.environment.get(variable, "")
        for node in context.nodes if value else []:
            problem, is_fatal = interface_problem(variable, value, context.facts[node.name]["interfaces"])
            if problem:
                is_error = is_fatal and is_used(variable, context, node.name)
                problems.setdefault((variable, problem, is_error), []).append(node.name)
    findings = []
    for (variable, problem, is_error), names in problems.items():
        make_finding = error if is_error else warning
        facts = context.facts[names[0]]
        usable = sorted(name for name in facts["interfaces"] if not is_internal(name))
        findings.append(
            make_finding(
                "job-interface",
                names,
                problem=f"launch_environment sets {variable}={context.environment[variable]}: {problem}",
                requirement=(
                    f"an interface on each node that has a route to the others; {names[0]} has {format_list(usable)}"
                ),
                remedy=f"remove {variable} from launch_environment: muster sets it on each node to the interface "
                "of its "
                f"node_address ({facts['interface']} on {names[0]})",
            )
        )
    return findings


def needs_cache(context: CheckContext, name: str, variable: str, cache: Mapping[str, Any]) -> bool:
    """Return whether a job uses a cache: it sets the cache's variable, or imports a library that writes to it."""
    if variable in ("HOME", "TMPDIR") or cache["explicit"]:
        return True
    imports = context.facts[name].get("imports") or {}
    if variable in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR") and "compile" in imports.get("features", []):
        return True
    return bool(CACHE_USERS.get(variable, frozenset()) & set(imports.get("libraries", [])))


def check_caches(context: CheckContext) -> list[Finding]:
    """Check that the job can write to its home, temporary and cache directories, and that they have space."""
    denied: dict[tuple[str, str, str], list[str]] = {}
    small: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for node, caches in context.nodes_with("caches"):
        disks = (context.facts[node.name].get("storage") or {"disks": {}})["disks"].values()
        seen_devices = {disk["device"] for disk in disks}  # disk-full reports these
        for variable, cache in caches.items():
            if not needs_cache(context, node.name, variable, cache):
                continue
            if not cache["writable"]:
                denied.setdefault((variable, cache["path"], cache["existing"]), []).append(node.name)
            elif cache["free_bytes"] < MIN_CACHE_BYTES and cache["device"] not in seen_devices:
                seen_devices.add(cache["device"])
                small.setdefault((variable, cache["path"]), []).append((node.name, cache["free_bytes"]))
    findings = []
    for (variable, path, existing), names in denied.items():
        facts = context.facts[names[0]]
        is_set = facts["caches"][variable]["explicit"]
        make_finding = error if variable == "TMPDIR" else warning
        findings.append(
            make_finding(
                "cache-unwritable",
                names,
                problem=f"{facts['user']} cannot write to {existing}"
                + (f", so that {path} cannot be created" if existing != path else "")
                + f" ({variable}{' in launch_environment' if is_set else ''})",
                requirement="a directory that the job's user can write to",
                remedy=f"on the node: {ownership_command(facts['user'], path, existing)}; or set {variable} in "
                "launch_environment to another directory",
            )
        )
    for (variable, path), entries in small.items():
        findings.append(
            warning(
                "cache-no-room",
                [name for name, _free in entries],
                problem=f"{format_gib(min(free for _name, free in entries))} free at {path} ({variable})",
                requirement=f"{format_gib(MIN_CACHE_BYTES)} for the caches of the job's libraries",
                remedy=f"free up space, or set {variable} in launch_environment to a directory on a larger disk",
            )
        )
    return findings


def ownership_command(user: str, path: str, existing: str) -> str:
    """Return a command that lets a user write to a directory without changing any other directory."""
    if path == "/tmp":
        return "sudo chmod 1777 /tmp"
    return f"sudo chown {user} {path}" if existing == path else f"sudo install -d -o {user} {path}"


def parse_expiry(text: str) -> float | None:
    """Convert an ISO 8601 expiry to seconds since the epoch, or return None if it is unknown."""
    try:
        moment = datetime.datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()


def expiry_finding(nodes: list[str], source: str, remaining: float) -> Finding | None:
    """Return a finding for temporary credentials that are invalid or will be soon."""
    if remaining > SHORT_LIFETIME:
        return None
    expired = remaining <= 0
    minutes = f"{max(1, round(abs(remaining) / 60))} min"
    make_finding = error if expired else warning
    return make_finding(
        "credentials-expire",
        nodes,
        problem=f"the temporary AWS credentials in {source} "
        + (f"expired {minutes} ago" if expired else f"expire in {minutes}"),
        requirement="credentials that are valid for as long as the job reads from or writes to the bucket",
        remedy="get new ones (aws sso login, aws sts assume-role); for long runs use an instance profile",
    )


def check_credentials(context: CheckContext) -> list[Finding]:
    """Check the credentials that the job would use to access its buckets."""
    findings = []
    services = {node.name: facts for node, facts in context.nodes_with("services") if facts["buckets"]}
    if not services:
        return []
    buckets = format_list(next(iter(services.values()))["buckets"])
    missing = [name for name, facts in services.items() if not (facts.get("credentials") or {"known": True})["known"]]
    if missing:
        findings.append(
            warning(
                "bucket-credentials",
                missing,
                problem=f"the job reads {buckets}, but the node has no AWS credentials: no key in "
                "launch_environment, no "
                "~/.aws/credentials, no instance profile",
                requirement="credentials on each node, unless the bucket is public",
                remedy='pass yours: -e \'{"launch_pass_environment": ["AWS_*"]}\', or use an instance profile',
            )
        )
    now = next((facts["clock"]["after"] for _node, facts in _clocks(context)), None)
    own_expiry = parse_expiry(context.environment.get("AWS_CREDENTIAL_EXPIRATION", ""))
    if now is not None and own_expiry is not None and "AWS_SESSION_TOKEN" in context.job.variables:
        finding = expiry_finding([], "launch_environment", own_expiry - now)
        return [*findings, *([finding] if finding else [])]
    for name, facts in services.items():
        credentials = facts.get("credentials") or {}
        expiry = parse_expiry(credentials.get("expires") or "")
        if now is not None and expiry is not None and not PREFERRED_CREDENTIALS & set(context.job.variables):
            finding = expiry_finding([name], credentials["source"], expiry - now)
            findings += [finding] if finding else []
    return findings


def _clocks(context: CheckContext) -> list[tuple[Any, Any]]:
    return [(node, context.facts[node.name]) for node, clock in context.nodes_with("clock") if "after" in clock]


# Service: check ID, purpose, remedy.
SERVICES = {
    "hub": (
        "hub-unreachable",
        "the Hugging Face Hub",
        (
            "allow outgoing HTTPS; or download the models beforehand (hugging_face_models, ansible-playbook site.yml "
            "--tags hugging_face -e hugging_face_enabled=true), which sets HF_HUB_OFFLINE"
        ),
    ),
    "wandb": (
        "wandb-unreachable",
        "W&B",
        'allow outgoing HTTPS, or use W&B\'s offline mode: -e \'{"launch_environment": {"WANDB_MODE": "offline"}}\'',
    ),
    "s3": ("bucket-unreachable", "S3", "allow outgoing HTTPS, or correct AWS_ENDPOINT_URL in launch_environment"),
}


def check_services(context: CheckContext) -> list[Finding]:
    """Check that each node can reach the services that the job needs."""
    unreached: dict[tuple[str, str], list[str]] = {}
    for node, services in context.nodes_with("services"):
        for name in SERVICES:
            problem = (services.get(name) or {"error": ""})["error"]
            # only the first rank logs to W&B
            if problem and (name != "wandb" or node.node_rank == 0):
                unreached.setdefault((name, problem), []).append(node.name)
    findings = []
    for (name, problem), names in unreached.items():
        check_id, label, remedy = SERVICES[name]
        services = context.facts[names[0]]["services"]
        what = {"hub": format_list(services["models"].values()), "s3": format_list(services["buckets"]), "wandb": ""}[
            name
        ]
        findings.append(
            warning(
                check_id,
                names,
                problem=f"the job needs {label}{f' for {what}' if what else ''}, which the node cannot reach: "
                f"{problem}",
                requirement=f"access to {label} from each node that uses it",
                remedy=remedy,
            )
        )
    return [*findings, *check_wandb_key(context)]


def check_wandb_key(context: CheckContext) -> list[Finding]:
    """Check that rank 0 can log in to W&B, which cannot prompt without a terminal."""
    first = context.table.master.name
    services = (context.facts.get(first) or {}).get("services") or {}
    wandb = services.get("wandb")
    if not wandb or wandb.get("netrc") or "WANDB_API_KEY" in context.job.variables or context.job.image:
        return []
    return [
        warning(
            "wandb-no-key",
            [first],
            problem="the job logs to W&B, but has no key: no WANDB_API_KEY, and no entry in ~/.netrc",
            requirement="a key on rank 0's node: otherwise wandb.init fails with 'api_key not configured'",
            remedy='ansible-playbook site.yml --tags wandb -e wandb_enabled=true, or -e \'{"launch_pass_environment": '
            '["WANDB_API_KEY"]}\'',
        )
    ]


def check_job_environment(context: CheckContext) -> list[Finding]:
    """Return the findings of all checks in this file."""
    return [
        *check_interfaces(context),
        *check_caches(context),
        *check_services(context),
        *check_credentials(context),
    ]
