# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The supported providers. To add one, add a package next to this file and an entry here."""

from __future__ import annotations

import difflib
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._clouds.cloud import AnyCloud
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.cloud import Ec2Cloud
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import PlanRefusedError
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.cloud import PaperspaceCloud
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import single_line

CLOUDS: dict[str, type[AnyCloud]] = {cloud.name: cloud for cloud in (Ec2Cloud, PaperspaceCloud)}
DEFAULT_CLOUD = PaperspaceCloud.name


def find_cloud(name: str) -> type[AnyCloud]:
    """Return the provider with this name. Raise PlanRefusedError if there is none."""
    if name not in CLOUDS:
        similar = difflib.get_close_matches(name, CLOUDS, n=1, cutoff=0.5)
        hint = f" Did you mean {similar[0]}?" if similar else ""
        raise PlanRefusedError(
            f"unknown provider {single_line(name, 40)!r}. Known providers: {', '.join(sorted(CLOUDS))}.{hint}"
        )
    return CLOUDS[name]


def provider_options() -> dict[str, dict[str, Any]]:
    """Return the argument specification of the options that only some providers have."""
    return {name: spec for cloud in CLOUDS.values() for name, spec in cloud.options.items()}


def access_options() -> dict[str, dict[str, Any]]:
    """Return the argument specification of the options that configure access to providers."""
    return {name: spec for cloud in CLOUDS.values() for name, spec in cloud.access_options.items()}


def inventory_plugins() -> dict[str, str]:
    """Return a mapping from each inventory plugin to the provider whose machines it lists."""
    return {plugin: name for name, cloud in CLOUDS.items() for plugin in cloud.inventory_plugins}
