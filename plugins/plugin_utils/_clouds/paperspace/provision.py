# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make a cluster at Paperspace ready: all of it, or everything made for it is removed again. Private."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._clouds.cost import (
    cost_of,
    cost_words,
    differing_prices,
    plan_lines,
    usd,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import Cost, Machine, Plan, Step, What
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import PlanRefused
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace import operations
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.create import (
    LOOK_AGAIN,
    SEEN_AFTER,
    ClusterError,
    Work,
    look,
    make,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.errors import (
    LostAnswerError,
    NotFoundError,
    PaperspaceError,
    RequestError,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.offers import (
    CONSOLE,
    Ask,
    Way,
    makes,
    refuse_too_many,
    refuse_wrong_clock,
    types_to_try,
    way_with,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.remove import (
    remove_machines,
    remove_other,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.resources import (
    machine_of,
    read_account,
    read_addresses,
    read_machines,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.values import integer
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.wait import (
    NO_CAPACITY,
    stop_and_wait,
    wait_until_ready,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.planner import plan
from ansible_collections.muster.training.plugins.plugin_utils._failures.verdict import duration

#: Seconds. A rollback also removes what an interrupted command has made, but nothing so old that someone may be
#: using it.
ROLLBACK_WITHIN = 3600.0
START_AGAIN = 60.0  # seconds between attempts to start all machines while waiting for capacity


class Provided(NamedTuple):
    """The result. way: before anything was made."""

    changed: bool
    way: Way
    now: Plan
    cost: Cost


def provide(work: Work, ask: Ask, check: bool = False) -> Provided:
    """Make what is missing and wait until everything is ready. check: only plan, with read-only requests.

    Raises PlanRefused before anything is made, ClusterError if the cluster could not be made, PaperspaceError.
    """
    team = operations.session(work.client).get("team") or {}
    refuse_wrong_clock(work.client.server_time, work.clock())
    there = look(work, wait=not check)
    work.record.settle(work.clock() - ROLLBACK_WITHIN)
    refused: list[str] = []
    ways = [way_with(work, ask, one, there, check, refused) for one in types_to_try(work, ask, there)]
    possible = [way for way in ways if way is not None]
    if not possible:
        raise PlanRefused(f"{work.cluster} cannot be provided, and nothing was made: {'; '.join(refused)}")
    first = possible[0]
    most = integer(team.get("maxMachines"))
    refuse_too_many(first, most, there)
    for line in [*refused, *(plan_lines(first.wanted, first.plan) if check or first.plan["steps"] else [])]:
        work.say(line)
    work.say(f"{work.cluster}: {cost_words(first.cost, 'present')}")
    if most is not None and makes(first.plan):
        work.say(f"the team has {len(there['machines'])} of the {most} machines it may have")
    if check:
        return Provided(bool(first.plan["steps"]), first, first.plan, first.cost)
    if not first.plan["steps"] and all(machine["state"] == "ready" for machine in first.plan["nodes"]):
        work.record.settle()
        return Provided(False, first, first.plan, first.cost)
    try:
        return _try_in_turn(work, ask, possible, refused)
    except PaperspaceError as error:
        raise ClusterError(f"{error.what}. {recorded(work)} Run this again to continue") from None


def _try_in_turn(work: Work, ask: Ask, possible: list[Way], failed: list[str]) -> Provided:
    first = possible[0]
    for number, way in enumerate(possible):
        if number:
            work.say(f"trying {way.wanted['machine_type']} instead")
            again = way_with(work, ask, way.wanted["machine_type"], look(work), False, failed)
            if again is None:
                continue
            way = again
        ready, troubles = _carry_out(work, ask, way)
        if not troubles:
            return _finish(work, ask, way, first)
        words = "; ".join(f"{name} {why}" for name, why in troubles.items())
        failed.append(f"{ready} of {ask.nnodes} {way.wanted['machine_type']} are ready, {words}")
        _roll_back(work, way, failed)
    _remove_rest(work, failed)
    raise ClusterError(
        f"{work.cluster}: {'; '.join(failed)}. What was made for it was removed again; {_what_is_there(work, first)}. "
        "Try other types (provision_machine_types=[A6000x2, A5000x2]), another region, or on_shortage=wait"
    )


# --- The steps


def _carry_out(work: Work, ask: Ask, way: Way) -> tuple[int, dict[str, str]]:
    """Carry out the steps in order, and wait; return how many machines are ready, and why others are not, by name."""
    network_id = way.plan["network"]["id"] if way.plan["network"] else ""
    script_id = way.script_id
    awaited = {machine["id"]: machine["name"] for machine in way.plan["nodes"]}
    for step in way.plan["steps"]:
        try:
            if step["action"] == "remove":
                remove_machines(work, {step["id"]: step["name"]})
            elif step["action"] == "start":
                _start(work, step["id"], step["name"])
            elif step["what"] == "network":
                network_id = _make_network(work, way, step)
            elif step["what"] == "drive":
                _make_drive(work, way, step, network_id)
            elif step["what"] == "script":
                script_id = _make_script(work, ask, step)
            else:
                awaited[_make_machine(work, ask, way, step, network_id, script_id)] = step["name"]
        except PaperspaceError as error:
            if error.refused and not error.passing:
                return 0, {step["name"]: f"was refused: {error}"}
            raise
    troubles = wait_until_ready(work, awaited)
    if troubles and ask.on_shortage == "wait":
        troubles = _wait_for_capacity(work, awaited, ask.wait_minutes, troubles)
    return len(awaited) - len(troubles), troubles


def _make_network(work: Work, way: Way, step: Step) -> str:
    def ask_for() -> str:
        return operations.create_network(work.client, name=step["name"], region=way.wanted["region"])["id"]

    return make(work, "network", step["name"], ask_for)


def _make_drive(work: Work, way: Way, step: Step, network_id: str) -> str:
    def ask_for() -> str:
        return operations.create_drive(
            work.client,
            name=step["name"],
            size_gb=way.wanted["drive_gb"],
            region=way.wanted["region"],
            network_id=network_id,
        )["id"]

    return make(work, "drive", step["name"], ask_for)


def _make_script(work: Work, ask: Ask, step: Step) -> str:
    def ask_for() -> str:
        return operations.create_startup_script(work.client, name=step["name"], script=ask.first_boot)["id"]

    return make(work, "script", step["name"], ask_for)


def _make_machine(work: Work, ask: Ask, way: Way, step: Step, network_id: str, script_id: str) -> str:
    def ask_for() -> str:
        return operations.create_machine(
            work.client,
            name=step["name"],
            machine_type=way.wanted["machine_type"],
            template_id=way.template_id,
            disk_gb=way.wanted["disk_gb"],
            region=way.wanted["region"],
            network_id=network_id,
            public_ip_type=ask.public_ip,
            startup_script_id=script_id or None,
        ).machine["id"]

    return make(work, "machine", step["name"], ask_for)


def _start(work: Work, machine_id: str, name: str) -> None:
    work.say(f"starting {name}")
    # a stopping machine is started again once it is off; one that is already starting is fine
    with contextlib.suppress(RequestError, LostAnswerError):
        operations.start_machine(work.client, machine_id)


def _wait_for_capacity(
    work: Work, awaited: Mapping[str, str], minutes: float, troubles: dict[str, str]
) -> dict[str, str]:
    """Try to start all machines each minute; in between they are off, and only their disks cost."""
    until = work.clock() + 60 * minutes
    while troubles and work.clock() < until and all(why.startswith(NO_CAPACITY) for why in troubles.values()):
        work.say(f"waiting for capacity; the others are off meanwhile: {duration(until - work.clock())} left")
        stop_and_wait(work, awaited)
        work.sleep(START_AGAIN)
        for machine_id, name in awaited.items():
            _start(work, machine_id, name)
        troubles = wait_until_ready(work, awaited, again=False)
    return troubles


# --- The end, good or bad


def _finish(work: Work, ask: Ask, way: Way, first: Way) -> Provided:
    now = plan(way.wanted, look(work), work.noted)
    work.record.settle()
    cost = cost_of(way.wanted, now, ask.price_per_hour)
    for line in differing_prices(now["nodes"]):
        work.say(line)
    work.say(f"{work.cluster}: {len(now['nodes'])} machines are ready; {cost_words(cost, 'present')}")
    most = ask.max_usd_per_hour
    if most is not None and cost["per_hour"] is not None and cost["per_hour"] > most:
        work.say(f"that is more than max_usd_per_hour, {most:g}: teardown.yml -e cluster={work.cluster} removes them")
    return Provided(True, first, now, cost)


def _roll_back(work: Work, way: Way, failed: list[str]) -> None:
    """Remove the machines made since the cluster was last complete, and stop those that were started.

    Raises ClusterError if one could not be removed, and then nothing more is made.
    """
    new = work.record.unsettled("machine")
    machines = []
    for name, machine_id in new.items():
        try:
            machines.append(machine_of(operations.get_machine(work.client, machine_id)))  # it may not be listed yet
        except NotFoundError:
            work.record.forget("machine", name, machine_id)
    left = remove_with_addresses(work, machines)
    started = [step for step in way.plan["steps"] if step["action"] == "start" and step["id"] not in new.values()]
    if started:
        stop_and_wait(work, {step["id"]: step["name"] for step in started})
    if left:
        words = "; ".join(f"{name}: {why}" for name, why in left.items())
        raise ClusterError(
            f"{work.cluster}: {'; '.join(failed)}. What was made could not be removed, and is billed: {words}. Remove "
            f"it at {CONSOLE}, or with teardown.yml -e cluster={work.cluster}"
        )


def remove_with_addresses(work: Work, machines: list[Machine]) -> dict[str, str]:
    """Remove machines, then their fixed addresses, which would remain and cost; return what still exists, and why."""
    fixed = [machine for machine in machines if machine["fixed_address"] and machine["public_ip"]]
    work.record.note_addresses({machine["public_ip"]: machine["id"] for machine in fixed})
    left = remove_machines(work, {machine["id"]: machine["name"] for machine in machines})
    for ip, machine_id in list(work.noted["addresses"].items()):
        why = _give_back(work, ip, machine_id)
        if why:
            left[f"address {ip}"] = why
    return left


def _give_back(work: Work, ip: str, machine_id: str) -> str:
    """Release the fixed address of a removed machine; return why that failed.

    An address that another machine has by now is left alone. One that is not listed is searched for during a minute.
    """
    began = work.clock()
    while True:
        if machine_id in [machine["id"] for machine in read_machines(work.client)]:
            return ""  # the machine still exists and keeps it
        holder = {address["ip"]: address["machine"] for address in read_addresses(work.client)}.get(ip)
        if holder in ("", machine_id):
            return remove_other(work, {"action": "remove", "what": "address", "name": ip, "id": ip})
        if holder or work.clock() - began > SEEN_AFTER:
            work.say(f"address {ip} was not released: it is already gone, or somebody else's by now")
            work.record.forget_address(ip)
            return ""
        work.sleep(LOOK_AGAIN)


def _remove_rest(work: Work, failed: list[str]) -> None:
    """Remove everything else made for a cluster that was never complete."""
    kinds: tuple[What, ...] = ("script", "drive", "network")
    for what in kinds:
        for name, thing_id in work.record.unsettled(what).items():
            why = remove_other(work, {"action": "remove", "what": what, "name": name, "id": thing_id})
            if why:
                failed.append(f"{what} {name} ({thing_id}) could not be removed: {why}")


def _what_is_there(work: Work, way: Way) -> str:
    """What now exists of the cluster, in words."""
    now = plan({**way.wanted, "stand": "stopped"}, read_account(work.client), work.noted)
    on = [machine for machine in now["nodes"] if machine["state"] != "off"]
    rates = [machine["per_hour"] for machine in on]
    price = "unknown" if None in rates else usd(sum(rate or 0.0 for rate in rates))
    if not now["nodes"] and now["network"] is None:
        return f"nothing of {work.cluster} is left, 0 USD an hour"
    names = ", ".join(f"{machine['name']} ({machine['said']})" for machine in now["nodes"]) or "no machine"
    return f"still there: {names}; {price} an hour"


def recorded(work: Work) -> str:
    """The recorded things, for a message when the API does not answer."""
    made = [entry for entry in work.record.content["entries"] if entry["what"] == "machine"]
    if not made:
        return f"No machine of {work.cluster} is recorded."
    words = ", ".join(f"{entry['name']} ({entry['id'] or 'requested, no answer'})" for entry in made)
    return f"Recorded, and billed: {words}."
