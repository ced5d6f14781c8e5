# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stop or remove a cluster at EC2: check repeatedly until nothing of it is left. Private to this collection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._clouds.cost import cost_of, cost_words, plan_lines, usd
from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import Cost, Machine, Plan, Wanted
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2 import prices
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.client import Ec2Error
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.create import stop_machines, terminate
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.discover import (
    LOOK_AGAIN,
    ClusterError,
    Work,
    in_words,
    look,
    recorded,
    wanted_without,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.remove import REMOVABLE, remove_part
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.resources import Account
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import PlanRefused
from ansible_collections.muster.training.plugins.plugin_utils._clouds.planner import plan

Agree = Callable[[Sequence[Machine]], None]
ROUNDS = 3  # a list may be outdated, and show remaining things only once the rest is gone


class Done(NamedTuple):
    """The result. first: the plan before anything was done. left: what could not be removed, in words."""

    changed: bool
    wanted: Wanted
    first: Plan
    now: Plan
    cost: Cost
    left: list[str]
    words: str


def stop(work: Work, check: bool = False, agree: Agree = lambda machines: None) -> Done:
    """Stop all machines of the cluster. agree: raises PlanRefused if these must not be stopped.

    Raises PlanRefused, ClusterError if one stays on, Ec2Error.
    """
    account = look(work, wait=not check)
    wanted = wanted_without(work, "stopped")
    first = plan(wanted, account.there, work.noted)
    _tell(work, wanted, first)
    on = {step["id"]: step["name"] for step in first["steps"]}
    spot = [name for one, name in on.items() if account.raw[one].get("InstanceLifecycle") == "spot"]
    if spot:
        raise PlanRefused(
            f"{', '.join(spot[:4])} of {work.cluster} cannot be stopped: spot machines can only be removed. Nothing "
            "was changed. Leave them on, or tear the cluster down"
        )
    agree([machine for machine in first["nodes"] if machine["state"] != "off"])
    if check:
        return Done(bool(on), wanted, first, first, _cost(work, wanted, first), [], "")
    still = stop_machines(work, on)
    if still:
        raise ClusterError(
            f"{', '.join(still)} of {work.cluster} could not be stopped and still cost money. Run this again"
        )
    now = plan(wanted, look(work).there, work.noted)
    cost = _cost(work, wanted, now)
    words = f"{work.cluster}: {len(now['nodes'])} machines are off; {cost_words(cost, 'stopped')}"
    work.say(words)
    return Done(bool(on), wanted, first, now, cost, [], words)


def remove(work: Work, check: bool = False, agree: Agree = lambda machines: None) -> Done:
    """Remove the whole cluster and check that it is gone. agree: as for stop(). What remains is in left.

    Raises PlanRefused, ClusterError, Ec2Error.
    """
    account = look(work, wait=not check)
    wanted = wanted_without(work, "absent")
    first = plan(wanted, account.there, work.noted)
    _tell(work, wanted, first)
    agree([machine for machine in first["nodes"] if machine["state"] != "off"])
    if check:
        return Done(bool(first["steps"]), wanted, first, first, _cost(work, wanted, first), [], "")
    try:
        return _carry_out(work, wanted, first)
    except Ec2Error as error:
        raise ClusterError(f"{error}. {recorded(work)} Run this again to continue") from None


def _carry_out(work: Work, wanted: Wanted, first: Plan) -> Done:
    now, reasons = first, dict[str, str]()
    for _round in range(ROUNDS):
        reasons = _remove(work, now)
        account = look(work)
        now = plan(wanted, account.there, work.noted)
        if first["steps"] and not now["steps"]:  # a list may be outdated
            work.sleep(LOOK_AGAIN)
            account = look(work)
            now = plan(wanted, account.there, work.noted)
        if reasons or not now["steps"]:
            break
    left = _left(work, account, now, reasons)
    if not left:
        work.record.end()
    cost = _cost(work, wanted, now)
    words = _words(work, now, left)
    work.say(words)
    return Done(bool(first["steps"]), wanted, first, now, cost, left, words)


def _remove(work: Work, found: Plan) -> dict[str, str]:
    """Carry out the steps; return why some things still exist."""
    machines = {step["id"]: step["name"] for step in found["steps"] if step["what"] == "machine"}
    refused = terminate(work, machines)
    ids = {name: one for one, name in machines.items()}
    reasons = {f"machine {name} ({ids[name]})": why for name, why in refused.items()}
    for step in found["steps"]:
        if step["what"] in REMOVABLE and not reasons:
            why = remove_part(work, step["what"], step["name"], step["id"])
            if why:
                reasons[f"{step['what']} {step['name']} ({step['id']})"] = why
    return reasons


def _left(work: Work, account: Account, now: Plan, reasons: dict[str, str]) -> list[str]:
    left = [f"{step['what']} {step['name']} ({step['id']})" for step in now["steps"]]
    left = [f"{one}: {reasons[one]}" if one in reasons else one for one in left]
    left += [f"{one}: {why}" for one, why in reasons.items() if not any(said.startswith(one) for said in left)]
    left += [line for line in now["kept"] if line.startswith(("the network", "the VPC"))]
    volumes = account.volumes.get(work.cluster, [])
    left = [in_words(one) for one in left]
    return left + [f"volume {one}: somebody detached it, and it still costs money" for one in volumes]


def _cost(work: Work, wanted: Wanted, found: Plan) -> Cost:
    disks = any(machine["disk_gb"] for machine in found["nodes"])
    return cost_of(wanted, found, None, prices.prices_with("", None, prices.disk(work.aws) if disks else None))


def _tell(work: Work, wanted: Wanted, first: Plan) -> None:
    for line in plan_lines(wanted, first):
        work.say(in_words(line))


def _words(work: Work, now: Plan, left: list[str]) -> str:
    if not left:
        return f"nothing of {work.cluster} is left, 0 USD an hour"
    on = [machine for machine in [*now["nodes"], *now["doubles"]] if machine["state"] != "off"]
    rates = [machine["per_hour"] for machine in on]
    price = "unknown" if None in rates else usd(sum(rate or 0.0 for rate in rates))
    return f"{work.cluster} is not gone, {price} an hour. Left: {'; '.join(left)}"
