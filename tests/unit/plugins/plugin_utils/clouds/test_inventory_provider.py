# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Detection of an inventory's cloud provider."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._clouds.inventory_provider import (
    AmbiguousCloudError,
    detect_cloud,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.registry import CLOUDS

EC2 = "plugin: amazon.aws.aws_ec2\nregions: [eu-west-1]\n"
PAPERSPACE = "plugin: muster.training.paperspace\n"


def written(directory: Path, **files: str) -> list[str]:
    paths = [directory / f"{name}.yml" for name in files]
    for path in paths:
        path.write_text(files[path.stem])
    return [str(path) for path in paths]


@pytest.mark.parametrize(
    ("files", "cloud", "region"),
    [
        ({"a": EC2, "ranks": "plugin: muster.training.ranks\n"}, "ec2", "eu-west-1"),
        ({"a": EC2.replace("[eu-west-1]", "[eu-west-1, us-east-1]")}, "ec2", ""),
        ({"a": EC2.replace("regions: [eu-west-1]", "regions: 7")}, "ec2", ""),
        ({"a": EC2 + "secret_key: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n"}, "ec2", "eu-west-1"),
        ({"a": PAPERSPACE}, "paperspace", ""),
        ({"a": "all: {hosts: {n0: }}\n", "b": "plugin: [", "c": "- plugin\n", "d": "plugin: [x]\n"}, "paperspace", ""),
    ],
)
def test_cloud_and_region_are_read_from_the_inventory(
    tmp_path: Path, files: dict[str, str], cloud: str, region: str
) -> None:
    sources = written(tmp_path, **files)
    assert detect_cloud(sources) == {"cloud": cloud, "region": region}
    assert detect_cloud([str(tmp_path)]) == {"cloud": cloud, "region": region}, "as a directory"


def test_listed_hosts_default_to_paperspace(tmp_path: Path) -> None:
    assert detect_cloud(["n0,n1,", str(tmp_path / "missing.yml")])["cloud"] == "paperspace"


def test_two_clouds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AmbiguousCloudError, match=r"machines of two providers \(.*a.yml, .*b.yml\)"):
        detect_cloud(written(tmp_path, a=EC2, b=PAPERSPACE))


def test_no_playbook_has_a_condition_on_a_provider() -> None:
    playbooks = Path(__file__).resolve().parents[5] / "playbooks"
    conditions = [
        f"{path.name}: {line.strip()}"
        for path in playbooks.glob("*.yml")
        for line in path.read_text().splitlines()
        if "when:" in line and ("muster_cloud" in line or any(f"'{name}'" in line for name in CLOUDS))
    ]
    assert conditions == []
