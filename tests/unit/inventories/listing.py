# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run ansible-inventory on an example of inventories/, with ranks.yml after it, and return its hosts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.unit.typed import CHECKOUT, give_collection

EXAMPLES = CHECKOUT / "inventories"


def run_inventory(
    directory: Path, name: str, text: str, before: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run ansible-inventory on a file with this name and text, on ranks.yml after it, and on a source before it."""
    sources = [*([before] if before else []), directory / name, EXAMPLES / "ranks.yml"]
    if not (directory / "collections").exists():
        give_collection(directory)
    (directory / name).write_text(text)
    return subprocess.run(
        ["ansible-inventory", *(word for source in sources for word in ("-i", str(source))), "--list"],
        check=False,
        capture_output=True,
        text=True,
        cwd=directory,
        env={
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(directory),
            "LC_ALL": "C.UTF-8",
            "ANSIBLE_COLLECTIONS_PATH": str(directory / "collections"),
            "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "true",
            "ANSIBLE_NOCOLOR": "1",
            **environment,
        },
    )


def list_training(
    directory: Path, name: str, text: str, before: Path | None = None, **environment: str
) -> dict[str, dict[str, Any]]:
    """Return the variables of the hosts in the group training, by name."""
    completed = run_inventory(directory, name, text, before, **environment)
    assert completed.returncode == 0, completed.stderr
    listed = json.loads(completed.stdout)
    hosts = listed.get("training", {}).get("hosts", [])
    return {host: {key: plain(value) for key, value in listed["_meta"]["hostvars"][host].items()} for host in hosts}


def plain(value: Any) -> Any:
    """Return a value without Ansible's tag for untrusted data."""
    return value["__ansible_unsafe"] if isinstance(value, dict) and "__ansible_unsafe" in value else value


def contract(hosts: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return only the variables of each host that the playbooks read."""
    names = ("ansible_host", "ansible_user", "node_address", "node_rank", "node_slots", "node_price_per_hour")
    return {host: {name: values[name] for name in names if name in values} for host, values in hosts.items()}
