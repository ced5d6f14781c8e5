# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster at EC2, from nothing to running: all of it or nothing. Private to this collection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._clouds.cost import cost_of, cost_words, plan_lines, usd
from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import Cost, Plan
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2 import prices
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.client import QUOTA, SHORTAGE, Ec2Error
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.create import (
    launch,
    make_group,
    make_placement,
    name_machines,
    open_out,
    set_rules,
    start,
    terminate,
    wait_until_running,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.discover import (
    ClusterError,
    Work,
    in_words,
    look,
    recorded,
    refuse_strangers,
    wanted_without,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.network import have_network
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.offers import Ask, Way, Ways, find_ways
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.quotas import family
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.remove import REMOVABLE, remove_part
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.request import Launch, rule_changes
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.tags import client_token, numbers_for
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import PlanRefused, network_name
from ansible_collections.muster.training.plugins.plugin_utils._clouds.planner import plan
from ansible_collections.muster.training.plugins.plugin_utils._failures.verdict import duration

AGAIN = 60.0  # seconds between attempts at all ways while waiting for capacity


class Provided(NamedTuple):
    """The result. first: the way before anything was made."""

    changed: bool
    first: Way
    now: Plan
    cost: Cost


def provide(work: Work, ask: Ask, check: bool = False) -> Provided:
    """Make what is missing and wait until everything runs. check: only plan, with read-only requests.

    Raises PlanRefused before anything is made, ClusterError if the cluster could not be made, Ec2Error.
    """
    account = look(work, wait=not check)
    refuse_strangers(work, account)
    ways = find_ways(work, ask, account, check)
    if not ways.possible:
        raise PlanRefused(f"{work.cluster} cannot be provided, and nothing was made: {'; '.join(ways.refused)}")
    first = ways.possible[0]
    network = first.plan["network"]
    group = account.groups[network["id"]] if network else {}
    changes = rule_changes(str(group.get("GroupId")), group.get("IpPermissions") or [], ask.ssh_from)
    for line in [
        *ways.refused,
        *ways.told,
        *(plan_lines(first.wanted, first.plan) if check or first.plan["steps"] else []),
    ]:
        work.say(in_words(line))
    if any(changes):
        work.say(
            f"to open: {network_name(work.cluster)} between the nodes, and to SSH only from {', '.join(ask.ssh_from)}"
        )
    where = f" ({first.words})" if first.zone else ""
    work.say(f"{work.cluster}{where}: {cost_words(first.cost, 'present')}")
    if check:
        return Provided(bool(first.plan["steps"]) or any(changes), first, first.plan, first.cost)
    ready = all(machine["state"] == "ready" for machine in first.plan["nodes"])
    if not first.plan["steps"] and not any(changes) and ready:
        name_machines(work, account.raw.items())
        work.record.settle()
        return Provided(False, first, first.plan, first.cost)
    try:
        return _try_in_turn(work, ask, ways)
    except Ec2Error as error:
        raise ClusterError(f"{error}. {recorded(work)} Run this again to continue") from None


def _try_in_turn(work: Work, ask: Ask, ways: Ways) -> Provided:
    until, failed = work.clock() + 60 * ask.wait_minutes, [*ways.refused]
    while True:
        full: set[tuple[str, str | None]] = set()
        tried: list[str] = []
        for way in ways.possible:
            if (way.market, family(way.machine_type)) in full:
                continue
            try:
                troubles = _carry_out(work, ask, ways, way)
            except Ec2Error as error:
                if error.code in QUOTA:
                    full.add((way.market, family(way.machine_type)))
                elif error.code not in SHORTAGE:
                    if not error.passing:
                        _remove_rest(work, failed)
                    raise
                tried.append(f"{way.words}: {error}")
                work.say(tried[-1])
                continue
            if not troubles:
                return _finish(work, ask, ways.possible[0], way)
            tried.append(f"{way.words}: {'; '.join(f'{name} {why}' for name, why in troubles.items())}")
        if work.clock() >= until:
            break
        work.say(f"no capacity anywhere; trying all options again: {duration(until - work.clock())} left")
        work.sleep(AGAIN)
    failed += tried
    _remove_rest(work, failed)
    raise ClusterError(
        f"{work.cluster}: {'; '.join(failed)}. {_what_is_there(work)}. Try other types "
        "(provision_machine_types=[g5.xlarge, g4dn.xlarge]), another region, provision_market=spot-else-on-demand, or "
        "on_shortage=wait"
    )


def _carry_out(work: Work, ask: Ask, ways: Ways, way: Way) -> dict[str, str]:
    """Carry out the steps of one way in order, and wait; return why some machines do not run, by name.

    In that case, the new machines are removed. Raises Ec2Error with no machine made, ClusterError.
    """
    account = look(work)
    found = plan(way.wanted, account.there, work.noted)
    names = [step["name"] for step in found["steps"] if step["action"] == "make" and step["what"] == "machine"]
    group, vpc = found["network"]["id"] if found["network"] else "", ways.site.vpc
    if ways.site.block and names:
        vpc, subnet = have_network(work, account, found, ways.site.block, way.zone)
        way = way._replace(subnet=subnet)
    if not group:
        group = make_group(work, vpc)
        account.groups[group] = {}
    set_rules(work, group, account.groups[group].get("IpPermissions") or [], ask.ssh_from)
    if way.efa:
        open_out(work, group, account.groups[group].get("IpPermissionsEgress") or [])
    awaited = {machine["id"]: machine["name"] for machine in found["nodes"] if machine["state"] != "ready"}
    if any(step["what"] == "placement group" for step in found["steps"]):
        make_placement(work)
    off = {step["id"]: step["name"] for step in found["steps"] if step["action"] == "start"}
    if off:
        start(work, off)
    second = [step for step in found["steps"] if step["action"] == "remove"]
    extra = terminate(work, {step["id"]: step["name"] for step in second if step["what"] == "machine"})
    if extra:
        return extra
    for step in second:
        if step["what"] in REMOVABLE:
            remove_part(work, step["what"], step["name"], step["id"])
    made = _launch(work, ask, ways, way, group, names) if names else {}
    troubles = wait_until_running(work, {**awaited, **made})
    if troubles and made:
        _roll_back(work, made, troubles)
    return troubles


def _launch(work: Work, ask: Ask, ways: Ways, way: Way, group: str, names: list[str]) -> dict[str, str]:
    if ways.image is None:
        raise ClusterError(
            f"machines of {work.cluster} have meanwhile disappeared. Run this again to make what is missing"
        )
    for name in names:
        work.record.intend("machine", name, work.clock())
    entries = [one for one in work.record.content["entries"] if one["what"] == "machine" and one["name"] in names]
    asked = min(one["asked"][0] for one in entries)
    token = client_token(group, [way.machine_type, way.market, way.subnet], names, asked)
    placement = any(what == "placement group" for what, _name in way.wanted.get("parts", []))
    request = Launch(
        cluster=work.cluster,
        numbers=numbers_for(work.cluster, names),
        machine_type=way.machine_type,
        market=way.market,
        subnet=way.subnet,
        efa=way.efa,
        group=group,
        placement=network_name(work.cluster) if placement else "",
        image=ways.image,
        disk_gb=ask.disk_gb,
        first_boot=ask.first_boot,
        key_name=ask.key_name,
        price=f"{way.price.usd:.6g}" if way.price else "",
        price_source=f"{way.price.source} {way.price.date}".strip() if way.price else "",
        token=token,
    )
    return launch(work, request, names)


def _roll_back(work: Work, made: Mapping[str, str], troubles: Mapping[str, str]) -> None:
    """Remove what was just made. Raises ClusterError if that fails, and then nothing more is made."""
    left = terminate(work, made)
    if left:
        raise ClusterError(
            f"{work.cluster}: {'; '.join(f'{name} {why}' for name, why in troubles.items())}. What was made "
            f"could not be removed, and is billed: {'; '.join(f'{name}: {why}' for name, why in left.items())}. Remove "
            f"it with teardown.yml -e cluster={work.cluster}"
        )


def _finish(work: Work, ask: Ask, first: Way, way: Way) -> Provided:
    account = look(work)
    name_machines(work, account.raw.items())
    now = plan(way.wanted, account.there, work.noted)
    work.record.settle()
    known = prices.prices_with(way.machine_type, way.price, prices.disk(work.aws))
    cost = cost_of(way.wanted, now, ask.price_per_hour, known)
    work.say(f"{work.cluster}: {len(now['nodes'])} machines are running; {cost_words(cost, 'present')}")
    return Provided(True, first, now, cost)


def _remove_rest(work: Work, failed: list[str]) -> None:
    """Remove the groups and the network of a cluster that was never complete."""
    if plan(wanted_without(work, "stopped"), look(work).there, work.noted)["nodes"]:
        return
    for what in REMOVABLE:
        for name, thing_id in work.record.unsettled(what).items():
            why = remove_part(work, what, name, thing_id)
            if why:
                failed.append(f"{what} {name} ({thing_id}) could not be removed: {why}")


def _what_is_there(work: Work) -> str:
    """What now exists of the cluster, in words."""
    now = plan(wanted_without(work, "stopped"), look(work).there, work.noted)
    if not now["nodes"] and now["network"] is None and not now["parts"]:
        return f"Nothing of {work.cluster} is left, 0 USD an hour"
    on = [machine for machine in now["nodes"] if machine["state"] != "off"]
    rates = [machine["per_hour"] for machine in on]
    price = "unknown" if None in rates else usd(sum(rate or 0.0 for rate in rates))
    names = ", ".join(f"{machine['name']} ({machine['said']})" for machine in now["nodes"]) or "no machine"
    more = "".join(f", {part['what']} {part['name']} ({part['id']})" for part in now["parts"])
    return f"Still there: {names}{more}; {price} an hour"
