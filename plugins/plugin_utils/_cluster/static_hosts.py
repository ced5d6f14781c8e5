# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Machines listed by the user, in a DeepSpeed, Open MPI or MPICH hostfile or as a few addresses."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ansible.module_utils.common.yaml import yaml_load

from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import ip_literal

HOST_LINE = re.compile(
    r"(?:(?P<user>[A-Za-z_][\w.-]*)@)?(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)"
    r"(?::(?P<mpich>[0-9]+))?(?P<options>(?:\s+\w[\w-]*\s*=\s*[0-9]+)*)\s*",
    re.ASCII,
)
SLOTS_OPTION = re.compile(r"\s(slots|cpu)\s*=\s*([0-9]+)")
EXAMPLES = "`gpu1`, `gpu1 slots=8`, `10.0.0.4:8`"
LOCAL_NAMES = ("localhost", "127.0.0.1", "127.0.1.1")
HEADER = """# The machines of {source}. Use it together with ranks.yml, which orders them:
#
#   ansible-playbook muster.training.launch -i static.yml -i ranks.yml -e nnodes={nnodes} -e launch_script=train.py
#
# The group `training` contains the machines that train together.
training:
  vars:
    # The user to log in as, if it is not your own. It needs an SSH key on the machines, and sudo for playbooks that
    # install software.
    # ansible_user: ubuntu
    # Processes to start on each machine. Defaults to one per GPU of the machine.
    # node_slots: 8
  hosts:
"""
LOCAL_HOST = """    node0:
      # this machine, without SSH
      ansible_connection: local
      ansible_python_interpreter: "{{ ansible_playbook_python }}"
      node_address: 127.0.0.1
"""


class ListedHost(NamedTuple):
    """A listed machine. slots: number of processes to start on it, None if unspecified. user: "" if unspecified."""

    name: str
    slots: int | None = None
    user: str = ""


def read_hosts(lines: Iterable[str], item_name: str) -> list[ListedHost]:
    """Return the machines in the lines of a hostfile or in a list.

    item_name: how messages refer to an item, "line" or "host". Raise ValueError with one sentence for each invalid
    line.
    """
    hosts: dict[str, ListedHost] = {}
    errors: list[str] = []
    for number, line in enumerate(lines, 1):
        body = line.partition("#")[0].strip()
        if not body:
            continue
        match = HOST_LINE.fullmatch(body)
        if match is None:
            errors.append(f"{item_name} {number} is {ascii(body)[:60]}; write a machine as in {EXAMPLES}")
            continue
        slots = match["mpich"] or next(
            (slots_match[2] for slots_match in SLOTS_OPTION.finditer(match["options"])), None
        )
        if match["name"] in hosts:
            errors.append(
                f"{item_name} {number}: {match['name']} is listed twice. List each machine once, with all its slots"
            )
        elif slots is not None and int(slots) == 0:
            errors.append(f"{item_name} {number}: {match['name']} has no slots. Remove the line, or write slots=N")
        else:
            hosts[match["name"]] = ListedHost(match["name"], int(slots) if slots else None, match["user"] or "")
    local_names = [name for name in hosts if name in LOCAL_NAMES]
    if local_names and len(hosts) > 1:
        errors.append(
            f"{local_names[0]} is listed with other machines, but each of them resolves this name to itself. "
            "Write the name or address at which the others reach it"
        )
    if not hosts and not errors:
        errors.append(f"no machines are listed; write one per {item_name}, as in {EXAMPLES}")
    if errors:
        raise ValueError("\n".join(errors))
    return list(hosts.values())


def render_inventory(hosts: list[ListedHost], source: str, resolve: Callable[[str], str]) -> str:
    """Render an inventory of these machines. resolve: returns the IP address for a name, "" if it is unknown."""
    text = HEADER.format(source=source, nnodes=len(hosts))
    names = {host.name for host in hosts}
    unused_names = (name for name in map("node{}".format, itertools.count()) if name not in names)
    for host in hosts:
        if host.name in LOCAL_NAMES:
            text += LOCAL_HOST
        elif literal := ip_literal(host.name):
            text += f"    {next(unused_names)}:\n      ansible_host: {host.name}\n"
            if literal.is_global:
                text += "      # the address at which the machines reach each other, if they have a private one\n"
                text += "      # (to list its addresses, run on it: ip -brief address)\n"
                text += "      # node_address: 10.0.0.10\n"
        else:
            address = resolve(host.name)
            text += f"    {yaml_key(host.name)}:\n"
            text += (
                f"      node_address: {address}\n"
                if address
                else (
                    "      # the address at which the other machines reach this one (to list its addresses, run on\n"
                    "      # it: ip -brief address)\n"
                    "      node_address:\n"
                )
            )
        text += f"      ansible_user: {host.user}\n" if host.user else ""
        text += f"      node_slots: {host.slots}\n" if host.slots else ""
    return text


def yaml_key(name: str) -> str:
    """Return a name as a YAML key, quoted if YAML would not read it as a string."""
    return name if isinstance(yaml_load(name), str) else json.dumps(name)
