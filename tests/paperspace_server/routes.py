# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The operations: each one's path in the API document, and what it does to the account."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Callable
from typing import Any, NamedTuple

from .account import Account, find, renamed


class Request(NamedTuple):
    """A request as it was received."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


class Route(NamedTuple):
    """An operation. run: from the account, the one variable part of the path ("" without one) and the request."""

    method: str
    template: str
    run: Callable[[Account, str, Request], Any]


ROUTES = (
    Route("GET", "/auth/session", lambda a, p, r: a.session()),
    Route("GET", "/billing/account-standing", lambda a, p, r: a.account_standing()),
    Route("GET", "/machines", lambda a, p, r: a.machine_page(r.query)),
    Route("POST", "/machines", lambda a, p, r: a.create_machine(r.body)),
    Route("GET", "/machines/{id}", lambda a, p, r: a.find_machine(p)),
    Route("PUT", "/machines/{id}", lambda a, p, r: a.update_machine(p, r.body)),
    Route("DELETE", "/machines/{id}", lambda a, p, r: a.delete_machine(p)),
    Route("PATCH", "/machines/{id}/start", lambda a, p, r: a.act(p, "start")),
    Route("PATCH", "/machines/{id}/stop", lambda a, p, r: a.act(p, "stop")),
    Route("PATCH", "/machines/{id}/restart", lambda a, p, r: a.act(p, "restart")),
    Route("GET", "/machine-events", lambda a, p, r: a.event_page(r.query)),
    Route("GET", "/machine-events/{id}", lambda a, p, r: a.find_event(p)),
    Route("GET", "/machine-availability", lambda a, p, r: a.is_available(r.query["machineType"])),
    Route("GET", "/private-networks", lambda a, p, r: a.page(a.networks, r.query)),
    Route("POST", "/private-networks", lambda a, p, r: a.create_network(r.body)),
    Route("GET", "/private-networks/{id}", lambda a, p, r: a.find_network(p)),
    Route("PUT", "/private-networks/{id}", lambda a, p, r: renamed(a.networks, p, r.body)),
    Route("DELETE", "/private-networks/{id}", lambda a, p, r: a.delete_network(p)),
    Route("GET", "/shared-drives", lambda a, p, r: a.page(a.drives, r.query)),
    Route("POST", "/shared-drives", lambda a, p, r: a.create_drive(r.body)),
    Route("GET", "/shared-drives/{id}", lambda a, p, r: find(a.drives, p)),
    Route("PUT", "/shared-drives/{id}", lambda a, p, r: renamed(a.drives, p, r.body)),
    Route("DELETE", "/shared-drives/{id}", lambda a, p, r: a.delete_drive(p)),
    Route("GET", "/os-templates", lambda a, p, r: a.page(a.os_templates, r.query)),
    Route("GET", "/custom-templates", lambda a, p, r: a.template_page(r.query)),
    Route("POST", "/custom-templates", lambda a, p, r: a.create_template(r.body)),
    Route("GET", "/custom-templates/{id}", lambda a, p, r: find(a.templates, p)),
    Route("PUT", "/custom-templates/{id}", lambda a, p, r: renamed(a.templates, p, r.body)),
    Route("DELETE", "/custom-templates/{id}", lambda a, p, r: a.delete_template(p)),
    Route("GET", "/snapshots", lambda a, p, r: a.page(a.snapshots, r.query)),
    Route("POST", "/snapshots", lambda a, p, r: a.create_snapshot(r.body)),
    Route("GET", "/snapshots/{id}", lambda a, p, r: find(a.snapshots, p)),
    Route("PUT", "/snapshots/{id}", lambda a, p, r: renamed(a.snapshots, p, r.body)),
    Route("DELETE", "/snapshots/{id}", lambda a, p, r: a.delete_snapshot(p)),
    Route("GET", "/public-ips", lambda a, p, r: a.page(a.public_ips, r.query, "ip")),
    Route("POST", "/public-ips", lambda a, p, r: a.claim_public_ip(r.body["region"])),
    Route("PUT", "/public-ips/{ip}", lambda a, p, r: a.assign_public_ip(p, r.body["machineId"])),
    Route("DELETE", "/public-ips/{ip}", lambda a, p, r: a.release_public_ip(p)),
    Route("GET", "/startup-scripts", lambda a, p, r: a.page(a.scripts, r.query)),
    Route("POST", "/startup-scripts", lambda a, p, r: a.create_script(r.body)),
    Route("GET", "/startup-scripts/{id}", lambda a, p, r: find(a.scripts, p)),
    Route("PUT", "/startup-scripts/{id}", lambda a, p, r: a.update_script(p, r.body)),
    Route("DELETE", "/startup-scripts/{id}", lambda a, p, r: a.delete_script(p)),
    Route("POST", "/startup-scripts/{id}/assign", lambda a, p, r: a.assign_script(p, r.body["machineId"], wanted=True)),
    Route(
        "POST", "/startup-scripts/{id}/unassign", lambda a, p, r: a.assign_script(p, r.body["machineId"], wanted=False)
    ),
)

_PATTERNS = [(route, re.compile(re.sub(r"\\{\w+\\}", "([^/]+)", re.escape(route.template)))) for route in ROUTES]


def route_of(request: Request) -> tuple[Route | None, str]:
    """The operation that a request asks for, None where there is none, and the variable part of its path."""
    for route, pattern in _PATTERNS:
        match = pattern.fullmatch(request.path)
        if match and route.method == request.method:
            return route, urllib.parse.unquote("".join(match.groups()))
    return None, ""
