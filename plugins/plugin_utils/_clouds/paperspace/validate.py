# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Choices for a cluster at Paperspace: region, authorized key, template. Private, pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import PlanRefused
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.values import integer, region_code
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import one_line

#: https://docs.digitalocean.com/products/paperspace/machines/details/availability/
REGIONS = {"ny2": "East Coast (NY2)", "ca1": "West Coast (CA1)", "ams1": "Europe (AMS1)"}
PUBLIC_KEY = re.compile(
    r"(ssh-ed25519|ssh-rsa|(?:sk-)?ecdsa-[\w@.-]+|sk-ssh-[\w@.-]+) (AAAA[0-9A-Za-z+/]+={0,3})(?: .*)?"
)

Template = Mapping[str, Any]


def known_region(region: str) -> str:
    """The code of a region. Raises PlanRefused if there is no such region."""
    code = region_code(region)
    if code not in REGIONS:
        known = ", ".join(f"{code} ({name})" for code, name in REGIONS.items())
        raise PlanRefused(f"Paperspace has no region {one_line(region, 40)!r}. There are: {known}")
    return code


# --- Key


def public_key(text: str) -> str:
    """The key without its comment. text: the line of a file such as id_ed25519.pub. Raises PlanRefused."""
    if "PRIVATE KEY" in text:
        raise PlanRefused("ssh_public_key holds a private key. Give the public one, whose file ends with .pub")
    found = PUBLIC_KEY.fullmatch(text.strip())
    if not found:
        raise PlanRefused(
            "ssh_public_key is not an SSH public key. Needed: the line in a file such as ~/.ssh/id_ed25519.pub, or the "
            "path of that file"
        )
    return f"{found[1]} {found[2]}"


# --- Template


def choose_template(
    wanted: str, machine_type: str, region: str, ours: Iterable[Template], theirs: Iterable[Template]
) -> Template:
    """The requested template; of several that support the machine type, the newest.

    wanted: an id, the name of one of the team's own templates (ours), or part of the name or operating system of one of
    Paperspace's (theirs). Raises PlanRefused.
    """
    ours, theirs = list(ours), list(theirs)
    found = [one for one in [*ours, *theirs] if one["id"] == wanted] or [
        one for one in ours if one.get("name") == wanted
    ]
    found = found or [one for one in theirs if _is_called(one, wanted)]
    if not found:
        names = sorted({one_line(one.get("name") or one["id"], 60) for one in [*ours, *theirs]})
        raise PlanRefused(
            f"no template is called {one_line(wanted, 60)!r}. There are: {', '.join(names[:20]) or 'none'}"
            f"{f' and {len(names) - 20} more' if len(names) > 20 else ''}"
        )
    here = [one for one in found if not one.get("region") or region_code(str(one["region"])) == region]
    if not here:
        where = ", ".join(sorted({one_line(region_code(str(one["region"])), 20) for one in found}))
        raise PlanRefused(
            f"the template {one_line(wanted, 60)} is in {where}, so machines in {region} cannot be made from it. "
            f"Give region={where}, or another template"
        )
    fit = [one for one in here if machine_type in _types(one, available=True)]
    if not fit:
        known = {label for one in [*ours, *theirs] for label in _types(one)}
        if known and machine_type not in known:
            raise PlanRefused(unknown_type(machine_type, sorted(known)))
        raise PlanRefused(f"no {machine_type} can be made from the template {one_line(wanted, 60)} in {region} now")
    return max(fit, key=lambda one: (str(one.get("dtCreated") or ""), str(one["id"])))


def _is_called(template: Template, wanted: str) -> bool:
    """Whether wanted names this template of Paperspace's; operatingSystemLabel abbreviates ML-in-a-Box to MLiaB."""
    texts = [str(template.get(field) or "").casefold() for field in ("name", "operatingSystemLabel")]
    if any("windows" in text for text in texts):
        return False
    words = {wanted.casefold(), wanted.casefold().replace("ml-in-a-box", "mliab")}
    return any(word and word in text for word in words for text in texts)


def _types(template: Template, available: bool = False) -> list[str]:
    listed = template.get("availableMachineTypes")
    return [
        str(one.get("machineTypeLabel"))
        for one in (listed if isinstance(listed, list) else [])
        if isinstance(one, Mapping) and (one.get("isAvailable") is True or not available)
    ]


def unknown_type(machine_type: str, known: Sequence[str]) -> str:
    """The message about a type that does not exist."""
    alike = difflib.get_close_matches(machine_type, known, n=3, cutoff=0.5)
    like = f"did you mean {' or '.join(alike)}?" if alike else f"there are: {', '.join(known[:30])}"
    return f"Paperspace has no machine type {one_line(machine_type, 40)!r}; {like} Case matters"


def check_disk(disk_gb: int, template: Template) -> None:
    """Raise PlanRefused if the disk is too small for the template."""
    least = integer(template.get("defaultSizeGb"))
    if least and disk_gb < least:
        name = one_line(template.get("name") or template["id"], 60)
        raise PlanRefused(f"disk_gb is {disk_gb}, but the template {name} needs {least}")
