# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Machines listed by the user: a hostfile of DeepSpeed, Open MPI or MPICH, or a few addresses. Controller only.

The list becomes an inventory, so it accepts more than hostfile_formats.py, which takes only what two launchers
read alike.
Private to this collection.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ansible.module_utils.common.yaml import yaml_load

from ansible_collections.muster.training.plugins.module_utils._rank_table import ip_literal

HOST_LINE = re.compile(
    r"(?:(?P<user>[A-Za-z_][\w.-]*)@)?(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)"
    r"(?::(?P<mpich>[0-9]+))?(?P<words>(?:\s+\w[\w-]*\s*=\s*[0-9]+)*)\s*",
    re.ASCII,
)
SLOTS_OPTION = re.compile(r"\s(slots|cpu)\s*=\s*([0-9]+)")
EXAMPLES = "`gpu1`, `gpu1 slots=8`, `10.0.0.4:8`"
LOCAL_NAMES = ("localhost", "127.0.0.1", "127.0.1.1")
HEADER = """# The machines of {source}. Use it together with ranks.yml, which puts them in order:
#
#   ansible-playbook muster.training.launch -i static.yml -i ranks.yml -e nnodes={nnodes} -e launch_script=train.py
#
# The group `training` holds the machines that train together.
training:
  vars:
    # The user to log in as, where it is not yours. It needs a key on the machines, and sudo for playbooks that install
    # something.
    # ansible_user: ubuntu
    # Processes to start on each machine, one a GPU. Without it the GPUs are counted on the machine.
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
    """A machine. slots: processes to start on it, None if not given. user: "" if not given."""

    name: str
    slots: int | None = None
    user: str = ""


def read_hosts(lines: Iterable[str], item_name: str) -> list[ListedHost]:
    """The machines in the lines of a hostfile, or in a list. what: the word for an item in messages, "line" or "host".

    Raises ValueError with one sentence for each invalid line.
    """
    hosts: dict[str, ListedHost] = {}
    errors: list[str] = []
    for number, line in enumerate(lines, 1):
        body = line.partition("#")[0].strip()
        if not body:
            continue
        match = HOST_LINE.fullmatch(body)
        if match is None:
            errors.append(f"{item_name} {number} is {ascii(body)[:60]}. Needed: a machine, as in {EXAMPLES}")
            continue
        slots = match["mpich"] or next((slots_match[2] for slots_match in SLOTS_OPTION.finditer(match["words"])), None)
        if match["name"] in hosts:
            errors.append(
                f"{item_name} {number}: {match['name']} is listed twice. Write each machine once, with all its slots"
            )
        elif slots is not None and int(slots) == 0:
            errors.append(f"{item_name} {number}: {match['name']} has no slots. Remove the line, or write slots=N")
        else:
            hosts[match["name"]] = ListedHost(match["name"], int(slots) if slots else None, match["user"] or "")
    local_names = [name for name in hosts if name in LOCAL_NAMES]
    if local_names and len(hosts) > 1:
        errors.append(
            f"{local_names[0]} is listed beside other machines, but means a different machine on each. Write the name "
            "or address by which the others reach it"
        )
    if not hosts and not errors:
        errors.append(f"no machine is named. Needed: one a {item_name}, as in {EXAMPLES}")
    if errors:
        raise ValueError("\n".join(errors))
    return list(hosts.values())


def render_inventory(hosts: list[ListedHost], source: str, resolve: Callable[[str], str]) -> str:
    """An inventory of these machines. address_of: returns the IP address of a name, "" if it is unknown."""
    text = HEADER.format(source=source, nnodes=len(hosts))
    names = {host.name for host in hosts}
    unused_names = (name for name in map("node{}".format, itertools.count()) if name not in names)
    for host in hosts:
        if host.name in LOCAL_NAMES:
            text += LOCAL_HOST
        elif literal := ip_literal(host.name):
            text += f"    {next(unused_names)}:\n      ansible_host: {host.name}\n"
            if literal.is_global:
                text += "      # the address by which the machines reach each other, where they have a private one\n"
                text += "      # (on the machine: ip -brief address)\n      # node_address: 10.0.0.10\n"
        else:
            address = resolve(host.name)
            text += f"    {yaml_key(host.name)}:\n"
            text += (
                f"      node_address: {address}\n"
                if address
                else (
                    "      # the address by which the machines reach each other (on the machine: ip -brief address)\n"
                    "      node_address:\n"
                )
            )
        text += f"      ansible_user: {host.user}\n" if host.user else ""
        text += f"      node_slots: {host.slots}\n" if host.slots else ""
    return text


def yaml_key(name: str) -> str:
    """A name as a YAML key, in quotes if YAML would read it as anything but a string."""
    return name if isinstance(yaml_load(name), str) else json.dumps(name)
