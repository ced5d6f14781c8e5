# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Define and validate the options that the modules of all providers share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._clouds.active_runs import find_active_runs
from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import Machine
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import CLUSTER_NAME, PlanRefusedError
from ansible_collections.muster.training.plugins.plugin_utils._clouds.public_key import read_public_key
from ansible_collections.muster.training.plugins.plugin_utils._clouds.watch_files import read_watch_files
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import single_line

# Options for modules whose machines power themselves off.
WATCH_OPTIONS: dict[str, dict[str, Any]] = {
    "power_off": {"type": "bool", "default": False},
    "idle_after": {"type": "str", "default": "30m"},
    "ttl": {"type": "str", "default": "24h"},
}
FirstBoot = Callable[[str, Mapping[str, str]], str]  # arguments: a public key, and the idle watch's files by path
MAX_NODES = 512  # more than any account allows; limits the cost of a typo


def resolve_beside_inventory(path: str, sources: list[str]) -> Path:
    """Resolve a path relative to the first existing inventory source's directory, else to the current directory."""
    source = next((Path(item) for item in sources if "," not in item and Path(item).exists()), Path.cwd())
    base = source if source.is_dir() else source.parent
    return base / path


def validate_cluster_name(name: str) -> str:
    """Return a cluster's name. Raise PlanRefusedError if it is invalid."""
    if not name:
        raise PlanRefusedError("no cluster name is set. Set one: -e cluster=bert")
    if not CLUSTER_NAME.fullmatch(name):
        raise PlanRefusedError(
            f"invalid cluster name {single_line(name, 60)!r}. Use up to 31 lowercase letters, digits and hyphens, "
            "beginning with a letter and not ending with a hyphen"
        )
    return name


def refuse_active_runs(cluster: str, directory: Path, machines: Sequence[Machine]) -> None:
    """Raise PlanRefusedError if a run may be active on machines about to be stopped or removed."""
    runs = find_active_runs(directory, [machine["private_ip"] for machine in machines if machine["private_ip"]])
    if runs:
        raise PlanRefusedError(
            f"{cluster} may still be running {', '.join(runs[:4])}: no result is recorded in {directory}. Check with "
            f"`ansible-playbook status.yml -e run_id={runs[0]}`, stop it, or override this with -e force=true"
        )


def read_common_settings(options: Mapping[str, Any], check: bool, example_type: str, disk_gb: int) -> dict[str, Any]:
    """Return the settings that requests to all providers share. Raise PlanRefusedError if one is invalid.

    example_type, disk_gb: the provider's example of a machine type, and its default size of a disk.
    """
    if not 1 <= options["nnodes"] <= MAX_NODES:
        raise PlanRefusedError(f"nnodes is {options['nnodes']}. Set the number of machines: -e nnodes=4")
    machine_types = [name.strip() for name in options["machine_types"] if name.strip()]
    if not machine_types:
        raise PlanRefusedError(
            f"no machine type is set. List suitable types, best first: -e machine_types={example_type}"
        )
    for name in ("disk_gb", "max_usd_per_hour", "price_per_hour", "wait_minutes"):
        value = options[name]
        if value is not None and (value < 0 or (name == "disk_gb" and value == 0)):
            raise PlanRefusedError(f"{name} cannot be {value}")
    if options["max_usd_per_hour"] is None and not check:
        raise PlanRefusedError(
            "max_usd_per_hour is not set. Set a limit for the hourly cost of the cluster, for example "
            "-e max_usd_per_hour=10; --check shows what it would cost"
        )
    return {
        "nnodes": options["nnodes"],
        "machine_types": machine_types,
        "disk_gb": disk_gb if options["disk_gb"] is None else options["disk_gb"],
        "max_usd_per_hour": options["max_usd_per_hour"],
        "price_per_hour": options["price_per_hour"],
    }


def read_first_boot(options: Mapping[str, Any], first_boot: FirstBoot, alternative: str = "") -> str:
    """Return the provider's first-boot data. alternative: an alternative to a key, phrased as the end of a sentence."""
    key = options["ssh_public_key"]
    return first_boot(
        read_public_key(key, alternative) if key else "",
        read_watch_files(options["idle_after"], options["ttl"]) if options["power_off"] else {},
    )
