# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""EC2 resources of a cluster, prices and requests, tested without network access."""

from __future__ import annotations

import base64
import datetime
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2 import (
    offers,
    prices,
    quotas,
    request,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2 import (
    tags as naming,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.client import parse_error
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import PlanRefusedError
from ansible_collections.muster.training.plugins.plugin_utils._clouds.prices import Price
from ansible_collections.muster.training.plugins.plugin_utils._clouds.watch_files import read_watch_files


def instance(**changes: Any) -> dict[str, Any]:
    tags = {"muster:cluster": "bert", "muster:made-by": "muster.training", "muster:numbers": "0-1 4"}
    plain = {"ClientToken": "muster-0", "AmiLaunchIndex": 2, **changes}
    pairs = [{"Key": key, "Value": value} for key, value in {**tags, **plain.pop("tags", {})}.items()]
    return {**plain, "Tags": pairs}


@given(st.sets(st.integers(0, 600), min_size=1))
def test_node_numbers_survive_the_round_trip_through_a_tag(numbers: set[int]) -> None:
    assert naming.parse_numbers(naming.format_numbers(numbers)) == sorted(numbers)


@given(st.text(max_size=40))
def test_numbers_are_read_only_from_canonical_tag_text(text: str) -> None:
    assert naming.parse_numbers(text) == [] or naming.format_numbers(naming.parse_numbers(text)) == text


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "bert-4"),
        ({"AmiLaunchIndex": 0}, "bert-0"),
        ({"AmiLaunchIndex": 3}, None),
        ({"AmiLaunchIndex": None}, None),
        ({"ClientToken": "from-the-console"}, None),
        ({"tags": {"muster:made-by": "somebody"}}, None),
        ({"tags": {"muster:cluster": "../bert"}}, None),
        ({"tags": {"muster:numbers": "0-99999999"}}, None),
        ({"tags": {"Name": "other"}}, "bert-4"),
    ],
)
def test_only_instances_in_the_cluster_have_a_node_name(changes: dict[str, Any], name: str | None) -> None:
    assert naming.instance_node_name(instance(**changes)) == name


def test_name_of_a_foreign_instance_is_shown_in_quotes() -> None:
    assert naming.foreign_name({"Tags": [{"Key": "Name", "Value": "bert-0\n"}]}) == "'bert-0'"


def test_client_token_is_equal_only_for_equal_requests() -> None:
    token = naming.build_client_token("sg-1", ["g5.xlarge", "spot", "subnet-1"], ["bert-1", "bert-0"], 5.0)
    assert token == naming.build_client_token("sg-1", ["g5.xlarge", "spot", "subnet-1"], ["bert-0", "bert-1"], 5.0)
    assert len(token) <= 64
    different = [
        naming.build_client_token("sg-2", ["g5.xlarge", "spot", "subnet-1"], ["bert-0", "bert-1"], 5.0),
        naming.build_client_token("sg-1", ["g5.xlarge", "spot", "subnet-2"], ["bert-0", "bert-1"], 5.0),
        naming.build_client_token("sg-1", ["g5.xlarge", "spot", "subnet-1"], ["bert-0"], 5.0),
        naming.build_client_token("sg-1", ["g5.xlarge", "spot", "subnet-1"], ["bert-0", "bert-1"], 6.0),
    ]
    assert len({token, *different}) == 5


# --- The first boot

ROLE = Path(__file__).resolve().parents[6] / "roles" / "idle_watch"
PROGRAM = Path(__file__).resolve().parents[6] / "plugins" / "module_utils" / "_idle_watch" / "idle_watch.py"


def test_first_boot_authorizes_key_and_starts_idle_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-key-that-nobody-may-read")
    text = request.build_first_boot("ssh-ed25519 AAAA", read_watch_files("2h", "False"))
    assert len(text) < 16 * 1024, "more is refused"
    assert text == request.build_first_boot("ssh-ed25519 AAAA", read_watch_files("2h", "False")), (
        "the token's request is the same"
    )
    head, body = text.split("\n", 1)
    assert head == "#cloud-config"
    content = yaml.safe_load(body)
    assert content["ssh_authorized_keys"] == ["ssh-ed25519 AAAA"]
    files = {
        item["path"]: gzip.decompress(base64.b64decode(item["content"])).decode() for item in content["write_files"]
    }
    assert {(item["owner"], item["permissions"], item["encoding"]) for item in content["write_files"]} == {
        ("root:root", "0644", "gz+b64")
    }
    assert json.loads(files.pop("/etc/muster/idle_watch.json")) == {"after": "2h", "ttl": "off"}
    assert {Path(path).name: text for path, text in files.items()} == {
        path.name: path.read_text() for path in (PROGRAM, *(ROLE / "files").iterdir())
    }
    assert set(files) == {
        "/usr/local/lib/muster/idle_watch.py",
        "/etc/systemd/system/muster_idle_watch.service",
        "/etc/systemd/system/muster_idle_watch.timer",
    }
    assert content["runcmd"][-1] == ["systemctl", "enable", "--now", "muster_idle_watch.timer"]
    assert "a-key-that-nobody-may-read" not in text + "".join(files.values())


def test_first_boot_script_without_tasks_is_empty() -> None:
    assert request.build_first_boot("", {}) == ""
    assert yaml.safe_load(request.build_first_boot("ssh-ed25519 AAAA", {})) == {
        "ssh_authorized_keys": ["ssh-ed25519 AAAA"]
    }


# --- SSH


def test_ssh_sources_are_normalized_and_unsafe_ones_refused() -> None:
    assert request.parse_ssh_sources(["203.0.113.7", " 198.51.100.9/24", "2001:db8::1"]) == [
        "198.51.100.0/24",
        "2001:db8::1/128",
        "203.0.113.7/32",
    ]
    with pytest.raises(PlanRefusedError, match="opens SSH to most of the internet"):
        request.parse_ssh_sources(["0.0.0.0/0"])
    with pytest.raises(PlanRefusedError, match="'home', which is not an address"):
        request.parse_ssh_sources(["home"])


def test_rule_changes_add_missing_rules_and_remove_stale_ones() -> None:
    missing, stale = request.diff_rules("sg-1", [], ["203.0.113.7/32", "2001:db8::1/128"])
    assert [rule["IpProtocol"] for rule in missing] == ["-1", "tcp", "tcp"]
    assert missing[2]["Ipv6Ranges"][0]["CidrIpv6"] == "2001:db8::1/128"
    assert stale == []
    assert request.diff_rules("sg-1", missing, ["203.0.113.7/32", "2001:db8::1/128"]) == ([], [])
    added, removed = request.diff_rules("sg-1", missing, ["198.51.100.9/32"])
    assert [item["IpRanges"][0]["CidrIp"] for item in added] == ["198.51.100.9/32"]
    assert len(removed) == 2


# --- Money


def product(*usd: str) -> str:
    parts = {f"P{number}": {"pricePerUnit": {"USD": item}} for number, item in enumerate(usd)}
    terms = {"OnDemand": {"T": {"priceDimensions": parts}}}
    return json.dumps({"terms": terms, "publicationDate": "2026-11-01T00:00:00Z"})


@pytest.mark.parametrize(
    ("products", "result"),
    [
        ([product("1.006")], Price(1.006, "AWS's price list", "2026-11-01")),
        ([product("0.0000", "1.006")], Price(1.006, "AWS's price list", "2026-11-01")),
        ([product("1.006", "2.0")], None),
        (["no JSON", "{}", product("much")], None),
        ([], None),
    ],
)
def test_price_is_unknown_unless_exactly_one_is_listed(products: list[str], result: Price | None) -> None:
    assert prices.single_price(products) == result


def test_newest_spot_price_is_used() -> None:
    days = [datetime.datetime(2026, 11, day, tzinfo=datetime.UTC) for day in (3, 1, 2)]
    entries: list[dict[str, Any]] = [
        {"AvailabilityZone": "us-east-1a", "Timestamp": day, "SpotPrice": f"0.{day.day}"} for day in days
    ]
    entries.append({"AvailabilityZone": "us-east-1b", "Timestamp": days[0], "SpotPrice": "?"})
    source = "AWS's spot price history and 0.005 for its address"
    earliest = datetime.datetime(2026, 8, 5, tzinfo=datetime.UTC)
    assert prices.newest_by_zone(entries, earliest) == {"us-east-1a": Price(0.305, source, "2026-11-03")}


def test_outdated_spot_price_is_unknown() -> None:
    changed = datetime.datetime(2006, 11, 3, tzinfo=datetime.UTC)
    entries = [{"AvailabilityZone": "us-east-1a", "Timestamp": changed, "SpotPrice": "0.3"}]
    assert prices.newest_by_zone(entries, datetime.datetime(2026, 8, 5, tzinfo=datetime.UTC)) == {}


# --- EFA


def test_added_nodes_use_efa_only_if_existing_nodes_do() -> None:
    with_efa, plain = ({"NetworkInterfaces": [{"InterfaceType": kind}]} for kind in ("efa", "interface"))
    assert [offers.choose_efa("bert", expected, []) for expected in ("auto", "required", "none")] == [
        "auto",
        "required",
        "none",
    ]
    assert offers.choose_efa("bert", "none", [plain, with_efa]) == "required"
    assert offers.choose_efa("bert", "auto", [plain]) == "none"
    with pytest.raises(PlanRefusedError, match="the existing machines of bert have no EFA"):
        offers.choose_efa("bert", "required", [plain])


# --- Quotas


@pytest.mark.parametrize(
    ("market", "machine_type", "code"),
    [
        ("on-demand", "g4dn.xlarge", "L-DB2E81BA"),
        ("spot", "g6e.xlarge", "L-3819A6DF"),
        ("on-demand", "p5.48xlarge", "L-417A185B"),
        ("spot", "p4d.24xlarge", "L-7212CCBC"),
        ("spot", "p5.48xlarge", None),
        ("on-demand", "m7i.large", "L-1216C47A"),
        ("on-demand", "trn1.2xlarge", None),
    ],
)
def test_machine_type_maps_to_its_quota_code(market: str, machine_type: str, code: str | None) -> None:
    assert quotas.quota_code(market, machine_type) == code


def test_exceeded_quota_is_reported_and_unknown_quota_is_not_guessed() -> None:
    reason, more = quotas.check_quota("spot", "g5.xlarge", 4, 4, 16.0, 4)
    assert reason.startswith("4 g5.xlarge on the spot market need 16 vCPUs, but the account's quota for this family")
    assert "of which 4 are in use" in reason
    assert more == ""
    assert quotas.check_quota("spot", "g5.xlarge", 3, 4, 16.0, 4) == ("", "")
    assert (
        "cannot read the quota for g5.xlarge on the spot market, so it may be too small"
        in quotas.check_quota("spot", "g5.xlarge", 3, 4, None, 4)[1]
    )
    assert "cannot determine how much of the quota" in quotas.check_quota("spot", "g5.xlarge", 3, 4, 16.0, None)[1]


# --- Refusals


@pytest.mark.parametrize(
    ("code", "message", "status", "passing", "expected_text"),
    [
        ("InternalError", "oops", 500, True, "run_instances was rejected: oops (InternalError)"),
        ("Strange", "oops", 503, True, "(Unavailable)"),
        ("InsufficientInstanceCapacity", "none\nleft", 500, False, "none left (InsufficientInstanceCapacity)"),
        ("SignatureDoesNotMatch", "Signature expired: 1 is now earlier", 403, False, "this machine's clock is wrong"),
        ("SignatureDoesNotMatch", "The secret is wrong", 403, False, "AWS rejected the credentials"),
    ],
)
def test_api_errors_are_classified_and_explained(
    code: str, message: str, status: int, passing: bool, expected_text: str
) -> None:
    response = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    error = parse_error("run_instances", response)
    assert error.transient is passing
    assert expected_text in str(error)
    assert "\n" not in str(error)
