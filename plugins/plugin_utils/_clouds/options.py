# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options that the modules of all providers share, and their validation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._clouds.active_runs import find_active_runs
from ansible_collections.muster.training.plugins.plugin_utils._clouds.age_limit import normalize_limit
from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import Machine
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import CLUSTER_NAME, PlanRefusedError
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.first_boot import (
    UNIT_DIRECTORY,
    WATCH_PROGRAM_DIRECTORY,
    WATCH_SETTINGS,
    WATCH_UNITS,
    format_watch_settings,
)
from ansible_collections.muster.training.plugins.plugin_utils._node_call.program_files import program_sources
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import single_line

#: Options of modules whose machines power themselves off
WATCH_OPTIONS: dict[str, dict[str, Any]] = {
    "power_off": {"type": "bool", "default": False},
    "idle_after": {"type": "str", "default": "30m"},
    "ttl": {"type": "str", "default": "24h"},
}
UNITS = Path(__file__).resolve().parents[3] / "roles" / "idle_watch" / "files"
MAX_NODES = 512  # more than any account allows; limits the cost of a typo


def resolve_beside_inventory(path: str, sources: list[str]) -> Path:
    """Resolve a path relative to the directory of the first inventory source that exists, else to the current one."""
    source = next((Path(item) for item in sources if "," not in item and Path(item).exists()), Path.cwd())
    base = source if source.is_dir() else source.parent
    return base / path


def validate_cluster_name(name: str) -> str:
    """Return the name of a cluster. Raise PlanRefusedError if it is invalid."""
    if not name:
        raise PlanRefusedError("no cluster name is set. Set one: -e cluster=bert")
    if not CLUSTER_NAME.fullmatch(name):
        raise PlanRefusedError(
            f"invalid cluster name {single_line(name, 60)!r}. Use up to 31 lower-case letters, digits and hyphens, "
            "beginning with a letter and not ending with a hyphen"
        )
    return name


def read_watch_files(after: str, ttl: str) -> dict[str, str]:
    """Return the role idle_watch's files, by path on the node, so that the watch works before the role runs."""
    programs = program_sources("_idle_watch.idle_watch")
    return {
        **{f"{WATCH_PROGRAM_DIRECTORY}/{path}": text for path, text in programs.items()},
        **{f"{UNIT_DIRECTORY}/{name}": (UNITS / name).read_text(encoding="utf-8") for name in WATCH_UNITS},
        WATCH_SETTINGS: format_watch_settings(normalize_limit("idle_after", after), normalize_limit("ttl", ttl)),
    }


def refuse_active_runs(cluster: str, directory: Path, machines: Sequence[Machine]) -> None:
    """Raise PlanRefusedError if a run may be active on machines about to be stopped or removed."""
    runs = find_active_runs(directory, [machine["private_ip"] for machine in machines if machine["private_ip"]])
    if runs:
        raise PlanRefusedError(
            f"{cluster} may still be running {', '.join(runs[:4])}: no result is recorded in {directory}. Check with "
            f"`ansible-playbook status.yml -e run_id={runs[0]}`, stop it, or override this with -e force=true"
        )
