"""Listings of nodes are compared by kind of mount; mounts of other roles are ignored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

TASKS = Path(__file__).resolve().parents[3] / "roles" / "data_mounts" / "tasks"
LISTING = {"/mnt/a": {"count": 2, "digest": "ab"}}
OTHER_LISTING = {"/mnt/a": {"count": 3, "digest": "cd"}}


def check_listings(*listings: dict[str, Any]) -> tuple[bool, str]:
    """Return the result and message of the check for nodes with these listings by kind."""
    tasks = DataLoader().load_from_file(str(TASKS / "mount.yml"), trusted_as_template=True)
    (check,) = (task for task in tasks if "ansible.builtin.assert" in task)
    hosts = {
        f"node{number}": {"__data_mounts_listing": listing} if listing else {}
        for number, listing in enumerate(listings)
    }
    variables = {
        **check["vars"],
        "hostvars": hosts,
        "ansible_play_hosts": list(hosts),
        "data_mounts_kind": "mount-s3",
        "data_mounts_same": "bucket and directory",
        "data_mounts_caller": "mount_s3",
    }
    templar = Templar(loader=DataLoader(), variables=variables)
    arguments = check["ansible.builtin.assert"]
    passed = bool(templar.template(trust_as_template("{{ " + arguments["that"] + " }}")))
    return passed, " ".join(str(templar.template(arguments["fail_msg"])).split())


@pytest.mark.parametrize(
    "listings",
    [
        [{"mount-s3": LISTING}, {"mount-s3": LISTING}],
        [{"mount-s3": LISTING}, {"s3fs": OTHER_LISTING}],
        [{"mount-s3": LISTING}, {}],
        [{"mount-s3": LISTING, "s3fs": OTHER_LISTING}, {"mount-s3": LISTING, "s3fs": LISTING}],
    ],
    ids=["the same", "another role's", "none", "of several roles"],
)
def test_equal_or_unrelated_listings_are_not_reported_as_different(listings: list[dict[str, Any]]) -> None:
    assert check_listings(*listings)[0]


def test_reported_difference_names_the_calling_roles_variable() -> None:
    passed, message = check_listings({"mount-s3": LISTING}, {"mount-s3": OTHER_LISTING})
    assert not passed
    assert "nodes see different files in /mnt/a" in message
    assert "mount the same bucket and directory (mount_s3_mounts of each)" in message
