# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Validation of a cluster's settings on Paperspace: region, SSH key, template, disk."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import PlanRefusedError
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.values import (
    parse_integer,
    region_code,
)
from ansible_collections.muster.training.plugins.plugin_utils._text.name_list import format_list
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import single_line

# https://docs.digitalocean.com/products/paperspace/machines/details/availability/
REGIONS = {"ny2": "East Coast (NY2)", "ca1": "West Coast (CA1)", "ams1": "Europe (AMS1)"}

Template = Mapping[str, Any]


def parse_region(region: str) -> str:
    """Return a region's code. Raise PlanRefusedError if the region does not exist."""
    code = region_code(region)
    if code not in REGIONS:
        known_regions = ", ".join(f"{code} ({name})" for code, name in REGIONS.items())
        raise PlanRefusedError(f"unknown Paperspace region {single_line(region, 40)!r}. Choose one of: {known_regions}")
    return code


# --- Template


def choose_template(
    requested: str, machine_type: str, region: str, team_templates: Iterable[Template], os_templates: Iterable[Template]
) -> Template:
    """Return the requested template; if several templates support the machine type, return the newest.

    Args:
        requested: an id, the name of one of the team's templates, or part of the name or operating system of one of
            Paperspace's templates.

    Raises:
        PlanRefusedError: no template matches
    """
    team_templates, os_templates = list(team_templates), list(os_templates)
    all_templates = [*team_templates, *os_templates]
    matches = [template for template in all_templates if template["id"] == requested] or [
        template for template in team_templates if template.get("name") == requested
    ]
    matches = matches or [template for template in os_templates if _matches_name(template, requested)]
    if not matches:
        names = sorted({single_line(template.get("name") or template["id"], 60) for template in all_templates})
        raise PlanRefusedError(
            f"no template is named {single_line(requested, 60)!r}. Existing ones: {format_list(names, 20) or 'none'}"
        )
    in_region = [
        template for template in matches if not template.get("region") or region_code(str(template["region"])) == region
    ]
    if not in_region:
        regions = ", ".join(sorted({single_line(region_code(str(template["region"])), 20) for template in matches}))
        raise PlanRefusedError(
            f"the template {single_line(requested, 60)} is in {regions}, so it cannot be used in {region}. "
            f"Set region={regions}, or choose another template"
        )
    supported = [template for template in in_region if machine_type in _machine_types(template, available=True)]
    if not supported:
        known_types = {label for template in all_templates for label in _machine_types(template)}
        if known_types and machine_type not in known_types:
            raise PlanRefusedError(unknown_type_message(machine_type, sorted(known_types)))
        raise PlanRefusedError(
            f"the template {single_line(requested, 60)} does not currently support {machine_type} in {region}. Choose "
            "another machine type or template"
        )
    return max(supported, key=lambda template: (str(template.get("dtCreated") or ""), str(template["id"])))


def _matches_name(template: Template, requested: str) -> bool:
    """Return whether a name refers to this Paperspace template.

    operatingSystemLabel abbreviates ML-in-a-Box to MLiaB.
    """
    texts = [str(template.get(field) or "").casefold() for field in ("name", "operatingSystemLabel")]
    if any("windows" in text for text in texts):
        return False
    spellings = {requested.casefold(), requested.casefold().replace("ml-in-a-box", "mliab")}
    return any(spelling and spelling in text for spelling in spellings for text in texts)


def _machine_types(template: Template, available: bool = False) -> list[str]:
    listed = template.get("availableMachineTypes")
    return [
        str(entry.get("machineTypeLabel"))
        for entry in (listed if isinstance(listed, list) else [])
        if isinstance(entry, Mapping) and (entry.get("isAvailable") is True or not available)
    ]


def unknown_type_message(machine_type: str, known_types: Sequence[str]) -> str:
    """Return the message about a nonexistent machine type."""
    similar = difflib.get_close_matches(machine_type, known_types, n=3, cutoff=0.5)
    suggestion = f"did you mean {' or '.join(similar)}?" if similar else f"known types: {', '.join(known_types[:30])}."
    return f"unknown Paperspace machine type {single_line(machine_type, 40)!r}; {suggestion} Names are case-sensitive"


def check_disk(disk_gb: int, template: Template) -> None:
    """Raise PlanRefusedError if the disk is too small for the template."""
    min_gb = parse_integer(template.get("defaultSizeGb"))
    if min_gb and disk_gb < min_gb:
        name = single_line(template.get("name") or template["id"], 60)
        raise PlanRefusedError(f"disk_gb is {disk_gb}, but the template {name} needs at least {min_gb}")
