# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Network interfaces of EC2 instances, with instance types from moto, validated by boto3."""

from __future__ import annotations

from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator
from moto.ec2.models.instance_types import INSTANCE_TYPES

from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2 import offers, settings
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.network_interfaces import (
    build_interfaces,
    describe_unused_cards,
    find_efa_cards,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import PlanRefusedError


@pytest.mark.parametrize(
    ("name", "count"),
    [("p4d.24xlarge", 4), ("p5.48xlarge", 32), ("trn1.32xlarge", 8), ("g5.8xlarge", 1), ("g4dn.xlarge", 0)],
)
def test_network_cards_are_read_from_aws(name: str, count: int) -> None:
    assert find_efa_cards(INSTANCE_TYPES[name]["NetworkInfo"]) == tuple(range(count))


def test_card_without_efa_is_omitted() -> None:
    cards: list[dict[str, Any]] = [{"NetworkCardIndex": index} for index in range(17)]
    network: dict[str, Any] = {"EfaSupported": True, "NetworkCards": cards, "EfaInfo": {"MaximumEfaInterfaces": 16}}
    assert find_efa_cards(network) == tuple(range(1, 17))
    for card in cards[2:5]:
        card["InterfaceTypes"] = ["interface", "efa-only"]
    assert find_efa_cards(network) == (2, 3, 4)
    assert find_efa_cards({"EfaSupported": True}) == (0,)
    assert find_efa_cards({"EfaSupported": True, "NetworkCards": cards[:2]}) == (0,)
    assert find_efa_cards({}) == ()


def test_each_card_gets_an_adapter_in_addition_to_the_interface_with_the_address() -> None:
    interfaces = build_interfaces("subnet-1", "sg-1", True, (0, 1, 2, 3))
    indexes = [(entry["NetworkCardIndex"], entry["DeviceIndex"], entry["InterfaceType"]) for entry in interfaces]
    assert indexes == [
        (0, 0, "interface"),
        (0, 1, "efa-only"),
        (1, 0, "efa-only"),
        (2, 0, "efa-only"),
        (3, 0, "efa-only"),
    ]
    assert len({index[:2] for index in indexes}) == 5
    assert all("AssociatePublicIpAddress" not in entry for entry in interfaces), "AWS would refuse the request"
    assert all(entry["Groups"] == ["sg-1"] and entry["DeleteOnTermination"] for entry in interfaces)
    assert build_interfaces("subnet-1", "sg-1", True, (1, 2))[1]["DeviceIndex"] == 0


@pytest.mark.parametrize("cards", [(), (0,), tuple(range(32))])
@pytest.mark.parametrize("efa", [True, False])
def test_boto3_accepts_the_interfaces(cards: tuple[int, ...], efa: bool) -> None:
    operation = botocore.session.get_session().get_service_model("ec2").operation_model("RunInstances")
    request = {"MinCount": 1, "MaxCount": 1, "NetworkInterfaces": build_interfaces("subnet-1", "sg-1", efa, cards)}
    assert not ParamValidator().validate(request, operation.input_shape).has_errors()


def test_single_interface_has_a_public_address() -> None:
    (plain,), (efa,) = build_interfaces("subnet-1", "sg-1", False, ()), build_interfaces("subnet-1", "sg-1", True, ())
    assert plain["AssociatePublicIpAddress"] and "InterfaceType" not in plain
    assert efa == {**plain, "InterfaceType": "efa"}


def test_cards_are_used_only_on_request() -> None:
    assert offers.choose_cards("all", (0, 1)) == (True, (0, 1))
    assert offers.choose_cards("auto", (0, 1)) == offers.choose_cards("required", (0, 1)) == (True, ())
    assert offers.choose_cards("none", (0, 1)) == offers.choose_cards("auto", ()) == (False, ())
    assert "p4d.24xlarge has 4 network cards with EFA, but only one" in describe_unused_cards(
        "p4d.24xlarge", (0, 1, 2, 3)
    )
    assert describe_unused_cards("g5.8xlarge", (0,)) == ""


def test_added_nodes_use_all_cards_if_existing_nodes_do() -> None:
    existing = {"NetworkInterfaces": [{"InterfaceType": "interface"}, {"InterfaceType": "efa-only"}]}
    assert offers.choose_efa("bert", "auto", [existing]) == "all"
    assert offers.choose_efa("bert", "all", [existing]) == "all"
    with pytest.raises(PlanRefusedError, match="have EFA on one network card only, but provision_efa=all"):
        offers.choose_efa("bert", "all", [{"NetworkInterfaces": [{"InterfaceType": "efa"}]}])


def test_all_cards_need_a_subnet() -> None:
    options = {name: spec.get("default") for name, spec in settings.OPTIONS.items()}
    common = {"nnodes": 1, "machine_types": ["p4d.24xlarge"], "disk_gb": None, "price_per_hour": None}
    limits = {"max_usd_per_hour": None, "wait_minutes": 20.0}
    with pytest.raises(PlanRefusedError, match="no public address. Set a subnet that has a NAT gateway"):
        settings.build_request({**options, **common, **limits, "efa": "all"}, True, lambda _key, _watch: "")
