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

LINE = re.compile(
    r"(?:(?P<user>[A-Za-z_][\w.-]*)@)?(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)"
    r"(?::(?P<mpich>[0-9]+))?(?P<words>(?:\s+\w[\w-]*\s*=\s*[0-9]+)*)\s*",
    re.ASCII,
)
SLOTS = re.compile(r"\s(slots|cpu)\s*=\s*([0-9]+)")
FORMS = "`gpu1`, `gpu1 slots=8`, `10.0.0.4:8`"
THIS_MACHINE = ("localhost", "127.0.0.1", "127.0.1.1")
HEAD = """# The machines of {source}. Use it together with ranks.yml, which puts them in order:
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
LOCAL = """    node0:
      # this machine, without SSH
      ansible_connection: local
      ansible_python_interpreter: "{{ ansible_playbook_python }}"
      node_address: 127.0.0.1
"""


class GivenHost(NamedTuple):
    """A machine. slots: processes to start on it, None if not given. user: "" if not given."""

    name: str
    slots: int | None = None
    user: str = ""


def read_hosts(lines: Iterable[str], what: str) -> list[GivenHost]:
    """The machines in the lines of a hostfile, or in a list. what: the word for an item in messages, "line" or "host".

    Raises ValueError with one sentence for each invalid line.
    """
    hosts: dict[str, GivenHost] = {}
    said: list[str] = []
    for number, line in enumerate(lines, 1):
        body = line.partition("#")[0].strip()
        if not body:
            continue
        found = LINE.fullmatch(body)
        if found is None:
            said.append(f"{what} {number} is {ascii(body)[:60]}. Needed: a machine, as in {FORMS}")
            continue
        slots = found["mpich"] or next((word[2] for word in SLOTS.finditer(found["words"])), None)
        if found["name"] in hosts:
            said.append(
                f"{what} {number}: {found['name']} is listed twice. Write each machine once, with all its slots"
            )
        elif slots is not None and int(slots) == 0:
            said.append(f"{what} {number}: {found['name']} has no slots. Remove the line, or write slots=N")
        else:
            hosts[found["name"]] = GivenHost(found["name"], int(slots) if slots else None, found["user"] or "")
    own = [name for name in hosts if name in THIS_MACHINE]
    if own and len(hosts) > 1:
        said.append(
            f"{own[0]} is listed beside other machines, but means a different machine on each. Write the name or "
            "address by which the others reach it"
        )
    if not hosts and not said:
        said.append(f"no machine is named. Needed: one a {what}, as in {FORMS}")
    if said:
        raise ValueError("\n".join(said))
    return list(hosts.values())


def inventory_of(hosts: list[GivenHost], source: str, address_of: Callable[[str], str]) -> str:
    """An inventory of these machines. address_of: returns the IP address of a name, "" if it is unknown."""
    text = HEAD.format(source=source, nnodes=len(hosts))
    names = {host.name for host in hosts}
    free = (name for name in map("node{}".format, itertools.count()) if name not in names)
    for host in hosts:
        if host.name in THIS_MACHINE:
            text += LOCAL
        elif literal := ip_literal(host.name):
            text += f"    {next(free)}:\n      ansible_host: {host.name}\n"
            if literal.is_global:
                text += "      # the address by which the machines reach each other, where they have a private one\n"
                text += "      # (on the machine: ip -brief address)\n      # node_address: 10.0.0.10\n"
        else:
            address = address_of(host.name)
            text += f"    {as_text(host.name)}:\n"
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


def as_text(name: str) -> str:
    """A name as a YAML key, in quotes if YAML would read it as anything but a string."""
    return name if isinstance(yaml_load(name), str) else json.dumps(name)
