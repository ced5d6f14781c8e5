# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A template of one of a cluster's machines at Paperspace, from which others are made. Private.

Paperspace makes it from a machine that is off, and lists it when done, which may take an hour.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._clouds.cost import usd
from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import Machine
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import (
    PlanRefused,
    own_machines,
    own_network,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace import operations
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.client import EVENT_ENDED
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.create import (
    LOOK_AGAIN,
    SEEN_AFTER,
    ClusterError,
    Work,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.errors import (
    LostAnswerError,
    PaperspaceError,
    RequestError,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.resources import name_of, read_account
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.teardown import Agree
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.templates import (
    Template,
    delete_template,
    own_templates,
    template_words,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.wait import (
    INTERVAL,
    failure_of,
    stop_and_wait,
    wait_until_ready,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.prices import template_price
from ansible_collections.muster.training.plugins.plugin_utils._failures.verdict import duration
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import one_line

#: Seconds. Paperspace publishes no limit; enough to copy a disk of 2 TB.
IMAGED_WITHIN = 3600.0


class Imaged(NamedTuple):
    """The result. template_id: "" if the template is only planned, or is gone."""

    changed: bool
    template_id: str
    words: str


def make_image(
    work: Work, node: str, name: str, start: bool = True, check: bool = False, agree: Agree = lambda machines: None
) -> Imaged:
    """Ensure a template of a machine of the cluster. An existing one of this machine is kept unchanged.

    node: name of the machine. start: start it afterwards. agree: raises PlanRefused if the machine must not be stopped.
    Raises PlanRefused, ClusterError, PaperspaceError.
    """
    operations.session(work.client)
    machine = _machine(work, node)
    found = _find(work, name, machine["id"])
    entry = work.record.entry("template", name)
    if found and (entry is None or entry["settled"]):
        return Imaged(False, found, f"the template {name} ({found}) of {node} already exists. Give another name")
    price = template_price(machine["disk_gb"])
    cost = f"{usd(price.usd)} a month ({price.source}, {price.date})" if price else "an unknown price a month"
    work.say(f"to make: template {name} of {node}, which is off meanwhile; it costs {cost} as long as it is kept")
    agree([machine] if machine["state"] != "off" else [])
    if check:
        return Imaged(True, "", "")
    try:
        if not found:
            _stop(work, machine)
            found = _make(work, name, machine)
        if start:
            _start(work, machine)
    except PaperspaceError as error:
        raise ClusterError(f"{error.what}. {node} may be off. Run this again to continue") from None
    work.record.settle_one("template", name)
    words = f"the template {name} ({found}) of {node} is made; provision_template={name} makes machines from it"
    work.say(words)
    return Imaged(True, found, words)


def remove_image(work: Work, name: str, check: bool = False) -> Imaged:
    """Remove the templates of this name made from the cluster's machines. Raises as make_image() does."""
    operations.session(work.client)
    ours = [one for one in own_templates(work, _own_ids(work)) if name_of(one) == name]
    if not ours:
        _refuse_foreign([one for one in operations.list_templates(work.client) if name_of(one) == name])
        work.record.forget_all("template", name)
        return Imaged(False, "", f"there is no template {name}")
    for one in ours:
        work.say(f"to remove: template {template_words(one)}")
        if not check:
            delete_template(work, one)
    return Imaged(True, "", f"the template {name} is gone")


# --- Owner of a template


def _own_ids(work: Work) -> list[str]:
    there = read_account(work.client)
    network = own_network(work.cluster, there["networks"], work.network_id)
    return [machine["id"] for machine in own_machines(work.cluster, network, there)]


def _machine(work: Work, node: str) -> Machine:
    there = read_account(work.client)
    network = own_network(work.cluster, there["networks"], work.network_id)
    own = own_machines(work.cluster, network, there)
    named = [machine for machine in own if machine["name"] == node]
    if len(named) != 1:
        names = ", ".join(machine["name"] for machine in own) or "none"
        what = f"{len(named)} machines called" if named else "no machine"
        raise PlanRefused(f"{work.cluster} has {what} {one_line(node, 80)!r}. Its machines: {names}")
    return named[0]


def _find(work: Work, name: str, machine_id: str) -> str:
    """Id of the template of this name and machine, "" without one. Raises PlanRefused for somebody else's."""
    named = [one for one in operations.list_templates(work.client) if name_of(one) == name]
    for one in named:
        if one.get("parentMachineId") == machine_id:
            return str(one["id"])
    _refuse_foreign(named)
    return ""


def _refuse_foreign(named: Sequence[Template]) -> None:
    for one in named:
        parent = one_line(one.get("parentMachineId") or "unknown", 80)
        raise PlanRefused(
            f"the template {template_words(one)} was made from another machine ({parent}), and is left alone. Give "
            "another name"
        )


# --- The steps


def _stop(work: Work, machine: Machine) -> None:
    _settled_events(work, machine["id"])
    if stop_and_wait(work, {machine["id"]: machine["name"]}):
        raise ClusterError(f"{machine['name']} could not be stopped, so no template was made. Run this again")


def _make(work: Work, name: str, machine: Machine) -> str:
    """Request the template and wait until it is listed; one that was requested before without an answer is found."""
    for asked in range(3):
        _settled_events(work, machine["id"])
        entry = work.record.entry("template", name)
        found = _listed(work, name, machine["id"]) if entry else _find(work, name, machine["id"])
        if found:
            work.record.made("template", name, found)
            return found
        failed = failure_of([one for one in _events(work, machine["id"]) if one.get("name") == "template-create"])
        if entry and failed:
            work.record.forget_all("template", name)
            raise ClusterError(f"no template of {machine['name']} was made: {failed}. It is off. Run this again")
        if asked < 2:
            _ask(work, name, machine)
    raise ClusterError(f"the template {name} was requested twice, but is not listed. {machine['name']} is off")


def _ask(work: Work, name: str, machine: Machine) -> None:
    began = work.clock()
    while True:
        work.record.intend("template", name, work.clock())
        try:
            operations.create_template(work.client, name=name, machine_id=machine["id"])
        except LostAnswerError:
            return
        except PaperspaceError as error:
            if error.refused:
                work.record.forget_all("template", name)
            # the API may still refuse for a while after the machine is off
            if not isinstance(error, RequestError) or work.clock() - began > SEEN_AFTER:
                raise
            work.sleep(LOOK_AGAIN)
            continue
        work.say(f"making template {name} of {machine['name']}")
        return


def _listed(work: Work, name: str, machine_id: str) -> str:
    """Id of the template, "" without one; looks again for a minute, since the list may be outdated."""
    began = work.clock()
    while True:
        found = _find(work, name, machine_id)
        if found or work.clock() - began > SEEN_AFTER:
            return found
        work.sleep(LOOK_AGAIN)


def _events(work: Work, machine_id: str) -> list[Mapping[str, Any]]:
    return list(operations.machine_events(work.client, machine_id))


def _settled_events(work: Work, machine_id: str) -> None:
    """Wait until nothing is in progress on the machine."""
    began = work.clock()
    while any(event.get("state") not in EVENT_ENDED for event in _events(work, machine_id)):
        if work.clock() - began > IMAGED_WITHIN:
            raise ClusterError(
                f"an operation on the machine {machine_id} has not ended after {duration(IMAGED_WITHIN)}. Look at "
                "https://console.paperspace.com"
            )
        work.sleep(INTERVAL)


def _start(work: Work, machine: Machine) -> None:
    with contextlib.suppress(RequestError, LostAnswerError):  # it is already on, or its state will show the failure
        operations.start_machine(work.client, machine["id"])
    troubles = wait_until_ready(work, {machine["id"]: machine["name"]})
    if troubles:
        words = "; ".join(f"{name} {why}" for name, why in troubles.items())
        raise ClusterError(f"the template is made, but {words}. provision.yml starts it again")
