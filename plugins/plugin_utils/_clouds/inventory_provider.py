# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which cloud the machines of an inventory come from. Private to this collection, controller only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypedDict

import yaml

CLOUDS = {
    "amazon.aws.aws_ec2": "ec2",
    "aws_ec2": "ec2",
    "muster.training.paperspace": "paperspace",
}


class Cloud(TypedDict):
    """cloud: ec2 or paperspace. region: of EC2, where the source names exactly one, else empty."""

    cloud: str
    region: str


class CloudUnclear(Exception):
    """The sources name more than one cloud. str() is one line for a person."""


def cloud_of(sources: Iterable[str]) -> Cloud:
    """The cloud that the sources name; without one it is Paperspace. Raises CloudUnclear."""
    found = {path: content for path in _files(sources) if str((content := _content(path)).get("plugin")) in CLOUDS}
    clouds = sorted({CLOUDS[content["plugin"]] for content in found.values()})
    if len(clouds) > 1:
        raise CloudUnclear(
            f"the inventory has machines of two clouds ({', '.join(sorted(map(str, found)))}). Give the one that is "
            "meant with -i, or say it: -e provision_provider=ec2"
        )
    regions = {str(one) for content in found.values() for one in _listed(content.get("regions"))}
    return {
        "cloud": clouds[0] if clouds else "paperspace",
        "region": regions.pop() if clouds == ["ec2"] and len(regions) == 1 else "",
    }


class _Plain(yaml.SafeLoader):
    """Reads what has Ansible's own tags, such as !vault, without what they are for."""


_Plain.add_multi_constructor("!", lambda _loader, _tag, _node: None)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value] if isinstance(value, str) else []


def _files(sources: Iterable[str]) -> Iterator[Path]:
    for source in sources:
        path = Path(source)
        if "," not in source and path.is_dir():
            yield from sorted(one for one in path.iterdir() if one.is_file())
        elif "," not in source and path.is_file():
            yield path


def _content(path: Path) -> dict[str, Any]:
    """What a plugin's source file holds; empty if it is not one. It may have secrets, which go nowhere from here."""
    if path.suffix not in (".yml", ".yaml"):
        return {}
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_Plain)  # noqa: S506 - it is a safe one
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return content if isinstance(content, dict) else {}
