# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options for a cluster on Paperspace, and the request that they describe."""

from __future__ import annotations

import os
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._clouds.cloud import Options, Show
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import PlanRefusedError
from ansible_collections.muster.training.plugins.plugin_utils._clouds.options import (
    FirstBoot,
    read_common_settings,
    read_first_boot,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.api_key import find_api_key
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.errors import DEFAULT_URL
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.offers import PaperspaceRequest
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.validate import parse_region

DEFAULT_TEMPLATE = "ML-in-a-Box"
DEFAULT_DISK_GB = 250

ACCESS_OPTIONS: dict[str, dict[str, Any]] = {
    "api_key": {"type": "str", "no_log": True},
    "api_url": {"type": "str", "default": ""},
    "timeout": {"type": "float", "default": 30.0},
    "retries": {"type": "int", "default": 4},
}
OPTIONS: dict[str, dict[str, Any]] = {
    "drive_gb": {"type": "int", "default": 0},
    "public_ip": {"type": "str", "choices": ["dynamic", "static", "none"], "default": "dynamic"},
}


def connect(options: Options, warn: Show) -> Client:
    """Return a client. warn: reports retried requests. Raise PaperspaceError."""
    return Client(
        find_api_key(options["api_key"], os.environ, os.path.expanduser("~")),
        options["api_url"] or os.environ.get("PAPERSPACE_API_URL") or DEFAULT_URL,
        timeout=options["timeout"],
        retries=options["retries"],
        notify=warn,
    )


def build_request(options: Options, check: bool, first_boot: FirstBoot) -> PaperspaceRequest:
    """Return the request. Raise PlanRefusedError if it is invalid."""
    settings = read_common_settings(options, check, example_type="A6000x2", disk_gb=DEFAULT_DISK_GB)
    if not options["region"]:
        raise PlanRefusedError("no region is set. Choose one: -e region=ny2, ca1 or ams1")
    if options["drive_gb"] < 0:
        raise PlanRefusedError(f"drive_gb cannot be {options['drive_gb']}")
    return PaperspaceRequest(
        **settings,
        region=parse_region(options["region"]),
        template=options["template"] or DEFAULT_TEMPLATE,
        drive_gb=options["drive_gb"],
        public_ip=options["public_ip"],
        on_shortage=options["on_shortage"],
        wait_minutes=options["wait_minutes"],
        first_boot=read_first_boot(
            options, first_boot, ", or omit ssh_public_key if the Paperspace account has your key"
        ),
    )
