# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cluster planner: interrupted plans resume at any step, and foreign resources stay unchanged."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._clouds import cost
from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import (
    AccountResources,
    ClusterPart,
    ClusterPlan,
    DesiredCluster,
    Drive,
    JournalNotes,
    Machine,
    Network,
    ResourceKind,
    Step,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import (
    PlanRefusedError,
    node_number,
    parse_cluster_name,
    script_name,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace import prices
from ansible_collections.muster.training.plugins.plugin_utils._clouds.planner import plan_cluster

SCRIPT = script_name("bert", "0123abcd")
NO_NOTES: JournalNotes = {"ids": {}, "repeated": [], "addresses": {}}


def desired_cluster(**changes: Any) -> DesiredCluster:
    plain: dict[str, Any] = {
        "cluster": "bert",
        "state": "present",
        "nnodes": 3,
        "machine_type": "A6000x2",
        "region": "ny2",
        "disk_gb": 250,
        "drive_gb": 0,
        "script": SCRIPT,
        "network_id": "",
        "remove_drive": False,
    }
    return {**plain, **changes}  # type: ignore[typeddict-item]


def machine(name: str, machine_id: str = "", **changes: Any) -> Machine:
    plain: dict[str, Any] = {
        "id": machine_id or f"ps-{name}",
        "name": name,
        "state": "ready",
        "provider_state": "ready",
        "machine_type": "A6000x2",
        "region": "ny2",
        "network": "nw-bert",
        "disk_gb": 250,
        "private_ip": "",
        "public_ip": "",
        "fixed_address": False,
        "per_hour": 3.78,
        "created": 1.0,
    }
    return {**plain, **changes}  # type: ignore[typeddict-item]


def network(name: str, network_id: str = "", region: str = "ny2") -> Network:
    return {"id": network_id or name.replace("muster-", "nw-"), "name": name, "region": region}


def drive(name: str, network_id: str = "nw-bert", size: int | None = 250) -> Drive:
    return {
        "id": f"dr-{name}-{network_id}",
        "name": name,
        "network": network_id,
        "region": "ny2",
        "size_gb": size,
        "share": "",
        "username": "",
    }


def part(what: ResourceKind, name: str = "muster-bert", part_id: str = "", **changes: Any) -> ClusterPart:
    plain: dict[str, Any] = {
        "kind": what,
        "cluster": "bert",
        "id": part_id or f"own {what} {name}",
        "name": name,
        "holds": [],
    }
    return {**plain, **changes}  # type: ignore[typeddict-item]


PARTS: list[tuple[ResourceKind, str]] = [
    ("VPC", "muster-bert"),
    ("internet gateway", "muster-bert"),
    ("subnet", "muster-bert-1a"),
    ("placement group", "muster-bert"),
]
AROUND = ("VPC", "internet gateway", "subnet")


def account(*machines: Machine, **parts: Any) -> AccountResources:
    plain: dict[str, Any] = {"machines": list(machines), "networks": [], "drives": [], "scripts": [], "addresses": []}
    return {**plain, **parts}  # type: ignore[typeddict-item]


def carry_out(resources: AccountResources, step: Step, want: DesiredCluster, numbers: Any) -> None:
    """Apply the effect of a step to the cloud's resources."""
    lists: dict[str, Any] = dict(resources)
    home = next((item["id"] for item in resources["networks"] if item["name"] == "muster-bert"), "")
    if step["kind"] == "address":
        resources["addresses"] = [item for item in resources["addresses"] if item["ip"] != step["id"]]
    elif step["action"] == "remove":
        kind = "parts" if step["kind"] in (*AROUND, "placement group") else f"{step['kind']}s"
        lists[kind][:] = [item for item in lists[kind] if item["id"] != step["id"]]
        for address in resources["addresses"]:
            address["machine"] = "" if address["machine"] == step["id"] else address["machine"]
        if step["kind"] == "network":
            assert not any(item["network"] == step["id"] for item in [*resources["machines"], *resources["drives"]])
        if step["kind"] in AROUND:
            assert not any(item["name"] == "muster-bert" for item in resources["networks"]), "it lies there"
            assert step["kind"] != "VPC" or not [item for item in resources["parts"] if item["cluster"] == "bert"]
    elif step["action"] in ("start", "stop"):
        result = next(item for item in resources["machines"] if item["id"] == step["id"])
        result["state"] = "ready" if step["action"] == "start" else "off"
    elif step["kind"] in (*AROUND, "placement group"):
        resources["parts"].append(part(step["kind"], step["name"], f"part-{next(numbers)}"))
    elif step["kind"] == "network":
        resources["networks"].append(network(step["name"], f"nw-{next(numbers)}"))
    elif step["kind"] == "drive":
        resources["drives"].append(drive(step["name"], home, want["drive_gb"]))
    elif step["kind"] == "script":
        resources["scripts"].append({"id": f"sc-{next(numbers)}", "name": step["name"], "machines": []})
    else:
        assert home, "a machine is made into a network that is there"
        resources["machines"].append(machine(step["name"], f"ps-{next(numbers)}", network=home, created=2.0))


def foreign(resources: AccountResources) -> AccountResources:
    """Return the resources that do not belong to bert by the documented rule: network and name."""
    home = [item["id"] for item in resources["networks"] if item["name"] == "muster-bert"]
    own_ids = [
        item["id"]
        for item in resources["machines"]
        if item["network"] in home and node_number("bert", item["name"]) is not None
    ]
    return {
        "machines": [item for item in resources["machines"] if item["id"] not in own_ids],
        "networks": [item for item in resources["networks"] if item["name"] != "muster-bert"],
        "drives": [item for item in resources["drives"] if item["network"] not in home or item["name"] != "bert-data"],
        "scripts": [item for item in resources["scripts"] if not item["name"].startswith("muster-bert-first-boot-")],
        "addresses": [item for item in resources["addresses"] if item["ip"] not in ("198.51.100.1", "198.51.100.2")],
        "parts": [item for item in resources.get("parts", []) if item["cluster"] != "bert"],
    }


# --- Accounts

NAMES = st.sampled_from(["bert-0", "bert-1", "bert-3", "bert-7"])
STRANGE = st.sampled_from(["bertha-0", "bert", "bert-2-0", "bert-01", "node", "Bert-0", "bert-0 ", "bert--1"])
STATES = st.sampled_from(["ready", "coming", "going", "off"])


@st.composite
def accounts(draw: st.DrawFn) -> AccountResources:
    has_network = draw(st.booleans())
    own_names = draw(st.lists(NAMES, max_size=4)) if has_network else []
    machines = [
        machine(name, f"own-{location}", state=draw(STATES), created=float(draw(st.integers(1, 3))))
        for location, name in enumerate(own_names)
    ]
    has_address = draw(st.booleans())
    if machines and has_address:
        machines[0]["fixed_address"], machines[0]["public_ip"] = True, "198.51.100.1"
    homes = st.sampled_from(["", "nw-bert", "nw-bert-2"] if own_names else ["", "nw-bert-2"])
    strangers = [
        machine(draw(STRANGE), f"other-{location}", network=draw(homes), machine_type="C1")
        for location in range(draw(st.integers(0, 3)))
    ]
    strangers += [machine("bert-9", "namesake", network="nw-bert-2")] * draw(st.integers(0, 1))
    networks = [network("muster-bert-2"), network("muster-bertha"), network("net")]
    networks += [network("muster-bert")] * has_network
    drives = [drive("bert-data", "nw-bert-2"), drive("bert-data-old", "nw-bert-2")]
    drives += [drive("bert-data")] * (has_network and draw(st.booleans()))
    drives += [drive("photos")] * (has_network and draw(st.booleans()))
    scripts = [{"id": "sc-o", "name": "bert-first-boot", "machines": []}]
    scripts += [{"id": "sc-own", "name": SCRIPT, "machines": ["own-0"]}] * draw(st.booleans())
    addresses = [
        {"ip": "198.51.100.1", "region": "ny2", "machine": "own-0"},
        {"ip": "198.51.100.9", "region": "ny2", "machine": draw(st.sampled_from(["", "other-0"]))},
    ]
    parts = [part(what, "muster-bert-1a", f"other {what}", cluster="bert-1a") for what, _name in PARTS]
    parts += [part(what, name) for what, name in draw(st.lists(st.sampled_from(PARTS), unique=True))]
    shared = draw(st.booleans())
    if strangers and shared:
        parts[-1]["holds"] = [strangers[0]["id"]]
    order = draw(st.permutations([*machines, *strangers]))
    return account(*order, networks=networks, drives=drives, scripts=scripts, addresses=addresses, parts=parts)


WISHES = st.fixed_dictionaries(
    {
        "state": st.sampled_from(["present", "stopped", "absent"]),
        "nnodes": st.integers(1, 6),
        "drive_gb": st.sampled_from([0, 250]),
        "script": st.sampled_from(["", SCRIPT]),
        "remove_drive": st.booleans(),
        "parts": st.lists(st.sampled_from(PARTS), unique=True).map(lambda chosen: sorted(chosen, key=PARTS.index)),
    }
)


@given(accounts(), WISHES, st.integers(0, 12), st.booleans())
def test_interrupted_plan_resumes_with_the_remaining_steps_and_then_has_none(
    resources: AccountResources, wish: dict[str, Any], step_count: int, twice: bool
) -> None:
    want, numbers = desired_cluster(**wish), itertools.count()
    noted: JournalNotes = {
        "ids": {},
        "repeated": ["machine bert-0", "machine bert-1"] if twice else [],
        "addresses": {"198.51.100.1": "own-0"},
    }
    foreign_before = copy.deepcopy(foreign(resources))
    full_plan = plan_cluster(want, resources, noted)
    for step in full_plan["steps"][:step_count]:
        carry_out(resources, step, want, numbers)
    remaining = plan_cluster(want, resources, noted)["steps"]
    # resources created in the meantime have new IDs; the actions and their order are the same
    assert [(item["action"], item["kind"], item["name"]) for item in remaining] == [
        (item["action"], item["kind"], item["name"]) for item in full_plan["steps"][step_count:]
    ]
    for step in remaining:
        carry_out(resources, step, want, numbers)
    assert plan_cluster(want, resources, noted)["steps"] == []
    assert foreign(resources) == foreign_before, "nothing of anybody else is touched"
    nodes = plan_cluster(want, resources, noted)["nodes"]
    if want["state"] == "present":
        assert len(nodes) >= want["nnodes"]
        assert len(nodes) == max(want["nnodes"], len(full_plan["nodes"])), "surplus is neither made nor removed"
    elif want["state"] == "absent":
        assert nodes == []


@given(accounts(), WISHES)
def test_steps_touch_only_what_belongs_to_the_cluster(resources: AccountResources, wish: dict[str, Any]) -> None:
    kinds = ("machines", "networks", "drives", "scripts", "parts")
    strange = {item["id"] for kind in kinds for item in dict(foreign(resources))[kind]}  # type: ignore[attr-defined]
    for step in plan_cluster(desired_cluster(**wish), resources, NO_NOTES)["steps"]:
        assert step["id"] not in strange
        assert step["action"] != "remove" or wish["state"] == "absent"


# --- Single cases


def names(result: ClusterPlan) -> list[str]:
    return [f"{step['action']} {step['kind']} {step['name']}" for step in result["steps"]]


def test_new_cluster_is_planned_in_an_empty_account() -> None:
    assert names(plan_cluster(desired_cluster(drive_gb=250), account(), NO_NOTES)) == [
        "make network muster-bert",
        "make drive bert-data",
        f"make script {SCRIPT}",
        "make machine bert-0",
        "make machine bert-1",
        "make machine bert-2",
    ]


def test_parts_are_created_before_machines_and_removed_after_them() -> None:
    want = desired_cluster(nnodes=1, script="", parts=PARTS)
    assert names(plan_cluster(want, account(), NO_NOTES)) == [
        "make VPC muster-bert",
        "make internet gateway muster-bert",
        "make subnet muster-bert-1a",
        "make network muster-bert",
        "make placement group muster-bert",
        "make machine bert-0",
    ]
    resources = account(
        machine("bert-0"),
        networks=[network("muster-bert")],
        parts=[*(part(what, name) for what, name in PARTS), part("VPC", "muster-bert-2", cluster="bert-2")],
    )
    assert plan_cluster(want, resources, NO_NOTES)["steps"] == []
    assert names(plan_cluster(desired_cluster(state="absent"), resources, NO_NOTES)) == [
        "remove machine bert-0",
        "remove placement group muster-bert",
        "remove network muster-bert",
        "remove subnet muster-bert-1a",
        "remove internet gateway muster-bert",
        "remove VPC muster-bert",
    ]


def test_vpc_that_holds_a_foreign_machine_is_kept() -> None:
    foreign_machine = machine("theirs", "i-theirs", network="sg-theirs")
    parts = [part("VPC", holds=["ps-bert-0", "i-theirs"]), part("subnet", "muster-bert-1a", holds=["i-theirs"])]
    resources = account(machine("bert-0"), foreign_machine, networks=[network("muster-bert")], parts=parts)
    result = plan_cluster(desired_cluster(state="absent"), resources, NO_NOTES)
    assert names(result) == ["remove machine bert-0", "remove network muster-bert"]
    assert result["retained"] == [
        "the VPC muster-bert is kept: it contains theirs (i-theirs), not part of this cluster"
    ]


def test_duplicate_vpc_is_removed_and_the_recorded_one_kept() -> None:
    resources = account(
        machine("bert-0"), networks=[network("muster-bert")], parts=[part("VPC"), part("VPC", part_id="2")]
    )
    noted: JournalNotes = {"ids": {"VPC muster-bert": "2"}, "repeated": [], "addresses": {}}
    assert plan_cluster(desired_cluster(nnodes=1, script=""), resources, noted)["steps"] == []
    noted["repeated"] = ["VPC muster-bert"]
    assert [step["id"] for step in plan_cluster(desired_cluster(nnodes=1, script=""), resources, noted)["steps"]] == [
        "own VPC muster-bert"
    ]
    assert len(plan_cluster(desired_cluster(state="absent"), resources, noted)["steps"]) == 4, "all go in the end"


def test_missing_nodes_are_created_and_surplus_nodes_kept() -> None:
    resources = account(machine("bert-1"), machine("bert-4"), networks=[network("muster-bert")])
    assert names(plan_cluster(desired_cluster(nnodes=4, script=""), resources, NO_NOTES)) == [
        "make machine bert-0",
        "make machine bert-2",
    ]
    assert plan_cluster(desired_cluster(nnodes=1), resources, NO_NOTES)["steps"] == []


def test_drive_and_its_network_are_kept_unless_removal_is_requested() -> None:
    resources = account(machine("bert-0"), networks=[network("muster-bert")], drives=[drive("bert-data")])
    default_plan = plan_cluster(desired_cluster(state="absent"), resources, NO_NOTES)
    assert names(default_plan) == ["remove machine bert-0"]
    assert default_plan["retained"] == ["the drive bert-data (dr-bert-data-nw-bert, 250 GB) is kept, with its data"]
    removal_plan = plan_cluster(desired_cluster(state="absent", remove_drive=True), resources, NO_NOTES)
    assert names(removal_plan) == ["remove machine bert-0", "remove drive bert-data", "remove network muster-bert"]


def test_address_now_used_by_a_foreign_machine_is_not_released() -> None:
    noted: JournalNotes = {
        "ids": {},
        "repeated": [],
        "addresses": {"198.51.100.1": "ps-dead", "198.51.100.2": "ps-dead"},
    }
    addresses = [
        {"ip": "198.51.100.1", "region": "ny2", "machine": "ps-stranger"},
        {"ip": "198.51.100.2", "region": "ny2", "machine": ""},
    ]
    result = plan_cluster(desired_cluster(state="absent"), account(addresses=addresses), noted)
    assert names(result) == ["remove address 198.51.100.2"]


def test_duplicate_machine_is_removed_and_the_recorded_machine_is_kept() -> None:
    resources = account(
        machine("bert-0", "old"), machine("bert-0", "new", created=2.0), networks=[network("muster-bert")]
    )
    want = desired_cluster(nnodes=1, script="")
    assert plan_cluster(want, resources, NO_NOTES)["nodes"][0]["id"] == "old"
    assert plan_cluster(want, resources, NO_NOTES)["steps"] == [], (
        "the other is told, and left: nobody asked twice for it"
    )
    noted: JournalNotes = {"ids": {"machine bert-0": "new"}, "repeated": ["machine bert-0"], "addresses": {}}
    assert [step["id"] for step in plan_cluster(want, resources, noted)["steps"]] == ["old"]


@pytest.mark.parametrize(
    ("resources", "changes", "expected_text"),
    [
        (
            account(networks=[network("muster-bert", "nw1"), network("muster-bert", "nw2", "ca1")]),
            {},
            "2 networks are named muster-bert: nw1 in ny2, nw2 in ca1. Select",
        ),
        (
            account(networks=[network("muster-bert", "nw1")]),
            {"network_id": "nw3"},
            "Networks with this name: nw1 in ny2",
        ),
        (
            account(machine("mine"), networks=[network("muster-bert")]),
            {},
            "the name bert is taken: the network muster-bert (nw-bert) contains mine (ps-mine) and no machine of",
        ),
        (
            account(machine("bert-0", machine_type="A4000"), networks=[network("muster-bert")]),
            {},
            "bert-0 is of type A4000, not A6000x2. Existing resources are never changed",
        ),
        (
            account(machine("bert-0", disk_gb=100), networks=[network("muster-bert")]),
            {},
            "bert-0 has a disk of 100 GB, not 250",
        ),
        (
            account(networks=[network("muster-bert", region="ca1")]),
            {},
            "the network muster-bert is in ca1, not ny2",
        ),
        (
            account(networks=[network("muster-bert")], drives=[drive("bert-data", size=500)]),
            {"drive_gb": 250},
            "the drive bert-data has 500 GB, not 250",
        ),
    ],
)
def test_conflict_with_existing_resources_is_refused(
    resources: AccountResources, changes: dict[str, Any], expected_text: str
) -> None:
    with pytest.raises(PlanRefusedError) as refused:
        plan_cluster(desired_cluster(**changes), resources, NO_NOTES)
    assert expected_text in str(refused.value)
    assert "\n" not in str(refused.value)


def test_network_id_selects_between_networks_of_the_same_name() -> None:
    resources = account(networks=[network("muster-bert", "nw1"), network("muster-bert", "nw2")])
    result = plan_cluster(desired_cluster(network_id="nw2"), resources, NO_NOTES)
    assert result["network"] == network("muster-bert", "nw2")


def test_clusters_are_recognized_by_network_name() -> None:
    result = [network(name) for name in ("muster-bert", "muster-bert-2", "muster-", "muster-Bert", "mustering", "net")]
    assert [name for item in result if (name := parse_cluster_name(item["name"]))] == ["bert", "bert-2"]


# --- Money


def test_cost_covers_existing_and_planned_machines() -> None:
    resources = account(machine("bert-0", per_hour=4.0), networks=[network("muster-bert")])
    want = desired_cluster(nnodes=3)
    result = cost.estimate_cost(want, plan_cluster(want, resources, NO_NOTES), prices.PAPERSPACE)
    assert result["per_hour"] == pytest.approx(4.0 + 2 * 3.78)
    assert result["per_day"] == pytest.approx(24 * (4.0 + 2 * 3.78))
    assert result["disks_per_month"] == 30.0
    assert (result["source"], result["date"], result["unknown"]) == (prices.SOURCE, prices.DATE, [])


def test_unknown_price_is_reported_as_unknown() -> None:
    want = desired_cluster(machine_type="B300x8", disk_gb=4000, drive_gb=250)
    result = cost.estimate_cost(want, plan_cluster(want, account(), NO_NOTES), prices.PAPERSPACE)
    assert (result["per_hour"], result["per_day"], result["disks_per_month"]) == (None, None, None)
    assert result["unknown"] == ["a machine of type B300x8", "a disk of 4000 GB", "the drive"]
    assert "the price of B300x8 is unknown" in cost.budget_error(result, 10.0, "B300x8", prices.PAGE)
    output = cost.estimate_cost(want, plan_cluster(want, account(), NO_NOTES), prices.PAPERSPACE, price_per_hour=2.0)
    assert output["per_hour"] == 6.0
    assert cost.budget_error(output, 6.0, "B300x8", prices.PAGE) == ""


def test_plan_without_budget_or_over_budget_is_reported() -> None:
    want = desired_cluster()
    result = cost.estimate_cost(want, plan_cluster(want, account(), NO_NOTES), prices.PAPERSPACE)
    assert "max_usd_per_hour is not set" in cost.budget_error(result, None, "A6000x2", prices.PAGE)
    assert (
        cost.budget_error(result, 11.33, "A6000x2", prices.PAGE)
        == "with A6000x2, the cluster costs 11.34 USD an hour, but max_usd_per_hour is 11.33"
    )
    assert cost.budget_error(result, 11.34, "A6000x2", prices.PAGE) == ""


def test_price_that_differs_from_the_table_is_reported() -> None:
    assert cost.find_price_differences([machine("bert-0", per_hour=3.80)], prices.PAPERSPACE) == []
    assert cost.find_price_differences(
        [machine("bert-0", per_hour=4.2), machine("bert-1", per_hour=4.2)], prices.PAPERSPACE
    ) == ["a machine of type A6000x2 costs 4.20 USD an hour instead of 3.78 USD as of 2025-12-28"]


def test_plan_is_shown_as_text_and_as_a_diff() -> None:
    resources = account(machine("bert-0"), machine("bert-9", "other", network="nw9"), networks=[network("muster-bert")])
    want = desired_cluster(nnodes=2, script="")
    result = plan_cluster(want, resources, NO_NOTES)
    assert cost.format_plan(want, result) == [
        "exists: network muster-bert (nw-bert) in ny2",
        "exists: machine bert-0 (ps-bert-0) of type A6000x2, ready, 3.78 USD an hour while it is on",
        "create: machine bert-1 of type A6000x2 with 250 GB",
        "ignored (in other networks): bert-9 (other)",
    ]
    costs = cost.estimate_cost(want, result, prices.PAPERSPACE)
    before, after = (cost.cluster_snapshot(want, result, costs, after) for after in (False, True))
    assert before == {"network": "muster-bert", "drive": None, "nodes": {"bert-0": "ready"}}
    assert after["nodes"] == {"bert-0": "ready", "bert-1": "ready"}
    assert cost.format_cost(costs, "present") == (
        "7.56 USD an hour, 181.44 USD a day (Paperspace's console, 2025-12-28); disks, whether machines are on or off: "
        "20.00 USD a month (cloudypad's cost documentation, 2024-09)"
    )
