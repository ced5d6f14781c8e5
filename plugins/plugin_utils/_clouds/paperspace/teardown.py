# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stop a cluster at Paperspace, or remove it and check that nothing is left. Private."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._clouds.cost import cost_of, cost_words, plan_lines, usd
from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import Cost, Machine, Plan, Wanted
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace import operations
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.create import (
    LOOK_AGAIN,
    ClusterError,
    Work,
    look,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.errors import PaperspaceError
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.provision import (
    recorded,
    remove_with_addresses,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.remove import remove_other
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.resources import name_of
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.templates import (
    Template,
    delete_template,
    own_templates,
    template_words,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.wait import stop_and_wait
from ansible_collections.muster.training.plugins.plugin_utils._clouds.planner import plan

Agree = Callable[[Sequence[Machine]], None]


class Done(NamedTuple):
    """The result. first: the plan before anything was done. left: what could not be removed, in words."""

    changed: bool
    wanted: Wanted
    first: Plan
    now: Plan
    cost: Cost
    left: list[str]
    words: str


def _wanted(work: Work, stand: str, remove_drive: bool) -> Wanted:
    return {
        "cluster": work.cluster,
        "stand": "stopped" if stand == "stopped" else "absent",
        "nnodes": 0,
        "machine_type": "",
        "region": "",
        "disk_gb": 0,
        "drive_gb": 0,
        "script": "",
        "network_id": work.network_id,
        "remove_drive": remove_drive,
    }


def stop(work: Work, check: bool = False, agree: Agree = lambda machines: None) -> Done:
    """Stop all machines of the cluster. agree: raises PlanRefused if these must not be stopped.

    Raises PlanRefused, ClusterError if one stays on, PaperspaceError.
    """
    operations.session(work.client)
    wanted = _wanted(work, "stopped", False)
    first = plan(wanted, look(work, wait=not check), work.noted)
    _tell(work, wanted, first)
    agree([machine for machine in first["nodes"] if machine["state"] != "off"])
    if check:
        return Done(bool(first["steps"]), wanted, first, first, cost_of(wanted, first), [], "")
    machines = {machine["id"]: machine["name"] for machine in [*first["nodes"], *first["doubles"]]}
    on = stop_and_wait(work, machines)
    now = plan(wanted, look(work), work.noted)
    cost = cost_of(wanted, now)
    if on:
        raise ClusterError(
            f"{', '.join(on)} of {work.cluster} could not be stopped and still cost money. Run this again"
        )
    words = f"{work.cluster}: {len(machines)} machines are off; {cost_words(cost, 'stopped')}"
    work.say(words)
    return Done(bool(first["steps"]), wanted, first, now, cost, [], words)


def remove(
    work: Work,
    remove_drive: bool = False,
    check: bool = False,
    agree: Agree = lambda machines: None,
    remove_templates: bool = False,
) -> Done:
    """Remove the whole cluster and check that it is gone. agree: as for stop(). What remains is in left.

    remove_templates: also remove those made from its machines.

    Raises PlanRefused, ClusterError, PaperspaceError.
    """
    operations.session(work.client)
    wanted = _wanted(work, "absent", remove_drive)
    first = plan(wanted, look(work, wait=not check), work.noted)
    _tell(work, wanted, first)
    agree([machine for machine in first["nodes"] if machine["state"] != "off"])
    templates = own_templates(work, [machine["id"] for machine in [*first["nodes"], *first["doubles"]]])
    for one in templates:
        doing = "to remove: " if remove_templates else "it stays: "
        work.say(f"{doing}template {template_words(one)}")
    if check:
        changes = bool(first["steps"]) or (remove_templates and bool(templates))
        return Done(changes, wanted, first, first, cost_of(wanted, first), [], "")
    try:
        if remove_templates:
            for one in templates:
                delete_template(work, one)
            templates = []
        return _carry_out(work, wanted, first, templates)
    except PaperspaceError as error:
        raise ClusterError(f"{error.what}. {recorded(work)} Run this again to continue") from None


def _carry_out(work: Work, wanted: Wanted, first: Plan, templates: list[Template]) -> Done:
    for one in templates:  # once their machines are gone, only the record tells their owner
        work.record.keep("template", name_of(one), str(one["id"]), work.clock())
    reasons = remove_with_addresses(work, [*first["nodes"], *first["doubles"]])
    for step in first["steps"]:
        if step["what"] in ("script", "drive", "network"):
            why = remove_other(work, step)
            if why:
                reasons[f"{step['what']} {step['name']} ({step['id']})"] = why
    now = plan(wanted, look(work), work.noted)
    if first["steps"] and not now["steps"]:  # the list may be outdated
        work.sleep(LOOK_AGAIN)
        now = plan(wanted, look(work), work.noted)
    left = [f"{step['what']} {step['name']} ({step['id']})" for step in now["steps"]]
    left = [f"{one}: {reasons[one]}" if one in reasons else one for one in left]
    left += [f"{one}: {why}" for one, why in reasons.items() if not any(said.startswith(one) for said in left)]
    if now["strangers"]:
        left += [line for line in now["kept"] if line.startswith("the network")]
    if not left and not now["drives"] and not templates:
        work.record.end()
    cost = cost_of(wanted, now)
    words = _words(work, now, left, [template_words(one) for one in templates])
    work.say(words)
    return Done(bool(first["steps"]), wanted, first, now, cost, left, words)


def _tell(work: Work, wanted: Wanted, first: Plan) -> None:
    for line in plan_lines(wanted, first):
        work.say(line)


def _words(work: Work, now: Plan, left: list[str], templates: list[str]) -> str:
    on = [machine for machine in [*now["nodes"], *now["doubles"]] if machine["state"] != "off"]
    rates = [machine["per_hour"] for machine in on]
    price = "unknown" if None in rates else usd(sum(rate or 0.0 for rate in rates))
    if left:
        return f"{work.cluster} is not gone, {price} an hour. Left: {'; '.join(left)}"
    also = f"; the template {', '.join(templates)} stays; remove it with teardown_template=true" if templates else ""
    if now["kept"]:
        kept = "; ".join(now["kept"])
        return (
            f"no machine of {work.cluster} is left; {kept}, at a price unknown here. Remove it with "
            f"teardown_drive=true{also}"
        )
    if templates:
        return f"no machine of {work.cluster} is left{also}"
    return f"nothing of {work.cluster} is left, 0 USD an hour"
