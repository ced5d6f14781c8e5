# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ways to get a cluster at Paperspace: type of machine, template, script. Private, changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._clouds.cost import cost_of, over_budget
from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import Cost, Plan, There, Wanted
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import (
    PlanRefused,
    own_machines,
    own_network,
    own_scripts,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace import operations
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.create import Work
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.first_boot import first_boot_name
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.validate import (
    check_disk,
    choose_template,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.planner import plan
from ansible_collections.muster.training.plugins.plugin_utils._failures.verdict import duration

CONSOLE = "https://console.paperspace.com"
CLOCKS_APART = 300.0  # seconds


class Ask(NamedTuple):
    """The request. machine_types: in the order of preference. region: a code.

    max_usd_per_hour: may be None only for a plan. first_boot: text of the first-boot script, "" for none.
    """

    nnodes: int
    machine_types: list[str]
    region: str
    template: str
    disk_gb: int
    drive_gb: int = 0
    public_ip: str = "dynamic"
    max_usd_per_hour: float | None = None
    price_per_hour: float | None = None
    on_shortage: str = "rollback"
    wait_minutes: float = 20.0
    first_boot: str = ""


class Way(NamedTuple):
    """A plan with one type of machine. script_id: of the first-boot script, "" if there is none yet."""

    wanted: Wanted
    plan: Plan
    cost: Cost
    template_id: str
    script_id: str


def refuse_wrong_clock(server: float | None, here: float) -> None:
    """Raise PlanRefused if this machine's clock is wrong, since the record and the ages of machines depend on it.

    server: the API's time, None if unknown; both in seconds since 1970.
    """
    ahead = here - server if server is not None else 0.0
    if abs(ahead) > CLOCKS_APART:
        raise PlanRefused(
            f"this machine's clock is {duration(abs(ahead))} {'ahead of' if ahead > 0 else 'behind'} the API's, so "
            "nothing was made: ages, and recovery after an interruption, depend on it. Set it: sudo timedatectl "
            "set-ntp true"
        )


def makes(found: Plan) -> int:
    """How many machines a plan makes."""
    return sum(step["action"] == "make" and step["what"] == "machine" for step in found["steps"])


def types_to_try(work: Work, ask: Ask, there: There) -> list[str]:
    """The types in the order to try them; for an existing cluster only one, its own if that is requested."""
    own = own_machines(work.cluster, own_network(work.cluster, there["networks"], work.network_id), there)
    has = {machine["machine_type"] for machine in own}
    fit = [one for one in ask.machine_types if one in has]
    return (fit or ask.machine_types)[:1] if has else list(ask.machine_types)


def way_with(work: Work, ask: Ask, machine_type: str, there: There, check: bool, refused: list[str]) -> Way | None:
    """The way with one type; None if it is refused, with the reason added to refused.

    Raises PlanRefused if no type can help.
    """
    wanted: Wanted = {
        "cluster": work.cluster,
        "stand": "present",
        "nnodes": ask.nnodes,
        "machine_type": machine_type,
        "region": ask.region,
        "disk_gb": ask.disk_gb,
        "drive_gb": ask.drive_gb,
        "script": first_boot_name(work.cluster, ask.first_boot) if ask.first_boot else "",
        "network_id": work.network_id,
        "remove_drive": False,
    }
    found = plan(wanted, there, work.noted)
    cost = cost_of(wanted, found, ask.price_per_hour)
    template_id = ""
    try:
        if makes(found):
            template = _template(work, ask, machine_type)
            check_disk(ask.disk_gb, template)
            template_id = str(template["id"])
        why = over_budget(cost, ask.max_usd_per_hour, machine_type) if found["steps"] else ""
        if why and not (check and ask.max_usd_per_hour is None):
            raise PlanRefused(why)
        if makes(found) and not operations.is_available(work.client, machine_type, ask.region):
            raise PlanRefused(f"no {machine_type} is available in {ask.region} now")
    except PlanRefused as error:
        refused.append(str(error))
        return None
    scripts = own_scripts(work.cluster, found["nodes"], there)
    script_id = next((script["id"] for script in scripts if script["name"] == wanted["script"]), "")
    return Way(wanted, found, cost, template_id, script_id)


def _template(work: Work, ask: Ask, machine_type: str) -> Mapping[str, Any]:
    ours: list[Any] = list(operations.list_templates(work.client))
    theirs: list[Any] = list(operations.list_os_templates(work.client))
    return choose_template(ask.template, machine_type, ask.region, ours, theirs)


def refuse_too_many(way: Way, most: int | None, there: There) -> None:
    """Raise PlanRefused if the plan exceeds the team's limit of machines. most: None if the API reports none."""
    new, has = makes(way.plan), len(there["machines"])
    if most is not None and new and has + new > most:
        raise PlanRefused(
            f"{new} machine{'s are' if new > 1 else ' is'} to be made, but the team has {has} of the {most} it may "
            f"have, including those that are off. Nothing was made. Remove {has + new - most}, or ask Paperspace "
            f"for more: {CONSOLE}"
        )
