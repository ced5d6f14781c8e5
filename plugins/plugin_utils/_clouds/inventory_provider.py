# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Detect which provider an inventory's machines come from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypedDict

import yaml

from ansible_collections.muster.training.plugins.plugin_utils._clouds.registry import (
    CLOUDS,
    DEFAULT_CLOUD,
    inventory_plugins,
)


class InventoryCloud(TypedDict):
    """The provider of the machines in an inventory."""

    cloud: str  # name of a provider
    region: str  # region for new machines; "" if none is set


class AmbiguousCloudError(Exception):
    """The inventory sources name more than one provider. str() is a one-line message for the user."""


def detect_cloud(sources: Iterable[str]) -> InventoryCloud:
    """Return the provider that the sources name, or Paperspace if they name none.

    Raises:
        AmbiguousCloudError: they name several.
    """
    providers = inventory_plugins()
    contents = {
        path: content
        for path in _source_files(sources)
        if str((content := _read_source(path)).get("plugin")) in providers
    }
    clouds = sorted({providers[content["plugin"]] for content in contents.values()})
    if len(clouds) > 1:
        raise AmbiguousCloudError(
            f"the inventory has machines of two providers ({', '.join(sorted(map(str, contents)))}). Pass only one of "
            "the files with -i, or choose a provider: -e provision_provider=ec2"
        )
    cloud = clouds[0] if clouds else DEFAULT_CLOUD
    regions = {str(region) for content in contents.values() for region in _as_list(content.get("regions"))}
    single = CLOUDS[cloud].inventory_region and len(regions) == 1
    return {"cloud": cloud, "region": regions.pop() if single else ""}


class _UntaggedLoader(yaml.SafeLoader):
    """Loader that reads values with Ansible tags, such as !vault, as null."""


_UntaggedLoader.add_multi_constructor("!", lambda _loader, _tag, _node: None)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value] if isinstance(value, str) else []


def _source_files(sources: Iterable[str]) -> Iterator[Path]:
    for source in sources:
        path = Path(source)
        if "," not in source and path.is_dir():
            yield from sorted(file for file in path.iterdir() if file.is_file())
        elif "," not in source and path.is_file():
            yield path


def _read_source(path: Path) -> dict[str, Any]:
    """Return the contents of an inventory source, empty if it is not YAML. It may contain secrets, so never show it."""
    if path.suffix not in (".yml", ".yaml"):
        return {}
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_UntaggedLoader)
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return content if isinstance(content, dict) else {}


def has_provider(sources: Iterable[str]) -> bool:
    """Return whether an inventory source lists machines from a provider that can create machines."""
    providers = inventory_plugins()
    return any(str(_read_source(path).get("plugin")) in providers for path in _source_files(sources))
