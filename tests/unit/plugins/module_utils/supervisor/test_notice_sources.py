"""Replies of providers' metadata services, as documented."""

from __future__ import annotations

import calendar
import json
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._supervisor.notices import sources

NOW = calendar.timegm((2026, 3, 1, 12, 0, 0))
TOKEN = "/latest/api/token"
ACTION = "/latest/meta-data/spot/instance-action"
REBALANCE = "/latest/meta-data/events/recommendations/rebalance"
NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"


def poll(source: sources.MetadataSource, replies: dict[str, Any]) -> Any:
    """Poll a source whose service replies by path; 404 for others."""

    def request(method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
        reply = replies.get(path)
        status = reply if isinstance(reply, int) else 404 if reply is None else 200
        return status, reply if isinstance(reply, str) else "" if isinstance(reply, int) else json.dumps(reply)

    return source.poll(request, lambda: NOW)


@pytest.mark.parametrize(
    ("replies", "expected"),
    [
        ({}, None),
        ({TOKEN: "t"}, None),
        ({TOKEN: "t", ACTION: {"action": "terminate", "time": "2026-03-01T12:01:30Z"}}, (90.0, True)),
        ({TOKEN: "t", ACTION: {"action": "hibernate", "time": "soon"}}, (120.0, True)),
        ({TOKEN: "t", ACTION: {"action": "dance"}}, None),
        ({TOKEN: "t", ACTION: "<html>"}, None),
        ({TOKEN: "t", ACTION: [1]}, None),
        ({TOKEN: "t", REBALANCE: {"noticeTime": "2026-03-01T11:59:00Z"}}, (0.0, False)),
        ({TOKEN: 403, ACTION: {"action": "terminate"}}, None),
    ],
)
def test_ec2(replies: dict[str, Any], expected: tuple[float, bool] | None) -> None:
    current = poll(sources.Ec2(), replies)
    assert (current and (current["seconds"], current["ends"])) == expected


def test_ec2_gets_a_new_token_after_it_expired() -> None:
    source = sources.Ec2()
    poll(source, {TOKEN: "first", ACTION: 401})
    poll(source, {TOKEN: "second"})
    assert source.token == "second"


@pytest.mark.parametrize(("reply", "expected"), [("TRUE", True), ("FALSE", False), (404, False)])
def test_gcp(reply: Any, expected: bool) -> None:
    current = poll(sources.Gcp(), {"/computeMetadata/v1/instance/preempted": reply})
    assert bool(current) == expected


@pytest.mark.parametrize(
    ("event", "seconds"),
    [
        ({"EventType": "Preempt", "Resources": ["vm_1"], "NotBefore": "Sun, 01 Mar 2026 12:00:40 GMT"}, 40.0),
        ({"EventType": "Preempt", "Resources": ["vm_1"], "NotBefore": ""}, 30.0),
        ({"EventType": "Preempt", "Resources": ["vm_2"]}, None),
        ({"EventType": "Freeze", "Resources": ["vm_1"]}, None),
        ("nonsense", None),
    ],
)
def test_azure(event: Any, seconds: float | None) -> None:
    current = poll(sources.Azure(), {NAME: "vm_1", EVENTS: {"DocumentIncarnation": 1, "Events": [event]}})
    assert (current and current["seconds"]) == seconds


@pytest.mark.parametrize(
    ("dmi", "name"),
    [
        ({"sys_vendor": "Amazon EC2"}, "ec2"),
        ({"product_name": "Google Compute Engine", "sys_vendor": "Google"}, "gcp"),
        ({"chassis_asset_tag": sources.AZURE_ASSET_TAG, "sys_vendor": "Microsoft Corporation"}, "azure"),
        ({"sys_vendor": "Microsoft Corporation"}, ""),
        ({}, ""),
    ],
)
def test_provider_is_recognized_by_dmi(dmi: dict[str, str], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "read_dmi", lambda file: dmi.get(file, ""))
    assert [source.name for source, _address in sources.sources_here({})] == ([name] if name else [])


def test_refusal_by_the_service_is_not_a_notice() -> None:
    assert sources.poll_once(sources.Gcp(), "127.0.0.1:1") is None
