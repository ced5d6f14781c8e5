# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The API's operations: path in the API document, and effect on the account."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Callable
from typing import Any, NamedTuple

from .account import PaperspaceAccount, find_item, update_item


class Request(NamedTuple):
    """A received request."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


class ApiRoute(NamedTuple):
    """An operation. run: called with the account, the variable part of the path (or "") and the request."""

    method: str
    template: str
    run: Callable[[PaperspaceAccount, str, Request], Any]


ROUTES = (
    ApiRoute("GET", "/auth/session", lambda a, p, r: a.session()),
    ApiRoute("GET", "/billing/account-standing", lambda a, p, r: a.account_standing()),
    ApiRoute("GET", "/machines", lambda a, p, r: a.machine_page(r.query)),
    ApiRoute("POST", "/machines", lambda a, p, r: a.create_machine(r.body)),
    ApiRoute("GET", "/machines/{id}", lambda a, p, r: a.find_machine(p)),
    ApiRoute("PUT", "/machines/{id}", lambda a, p, r: a.update_machine(p, r.body)),
    ApiRoute("DELETE", "/machines/{id}", lambda a, p, r: a.delete_machine(p)),
    ApiRoute("PATCH", "/machines/{id}/start", lambda a, p, r: a.change_power(p, "start")),
    ApiRoute("PATCH", "/machines/{id}/stop", lambda a, p, r: a.change_power(p, "stop")),
    ApiRoute("PATCH", "/machines/{id}/restart", lambda a, p, r: a.change_power(p, "restart")),
    ApiRoute("GET", "/machine-events", lambda a, p, r: a.event_page(r.query)),
    ApiRoute("GET", "/machine-events/{id}", lambda a, p, r: a.find_event(p)),
    ApiRoute("GET", "/machine-availability", lambda a, p, r: a.is_available(r.query["machineType"])),
    ApiRoute("GET", "/private-networks", lambda a, p, r: a.page(a.networks, r.query)),
    ApiRoute("POST", "/private-networks", lambda a, p, r: a.create_network(r.body)),
    ApiRoute("GET", "/private-networks/{id}", lambda a, p, r: a.find_network(p)),
    ApiRoute("PUT", "/private-networks/{id}", lambda a, p, r: update_item(a.networks, p, r.body)),
    ApiRoute("DELETE", "/private-networks/{id}", lambda a, p, r: a.delete_network(p)),
    ApiRoute("GET", "/shared-drives", lambda a, p, r: a.page(a.drives, r.query)),
    ApiRoute("POST", "/shared-drives", lambda a, p, r: a.create_drive(r.body)),
    ApiRoute("GET", "/shared-drives/{id}", lambda a, p, r: find_item(a.drives, p)),
    ApiRoute("PUT", "/shared-drives/{id}", lambda a, p, r: update_item(a.drives, p, r.body)),
    ApiRoute("DELETE", "/shared-drives/{id}", lambda a, p, r: a.delete_drive(p)),
    ApiRoute("GET", "/os-templates", lambda a, p, r: a.page(a.os_templates, r.query)),
    ApiRoute("GET", "/custom-templates", lambda a, p, r: a.template_page(r.query)),
    ApiRoute("POST", "/custom-templates", lambda a, p, r: a.create_template(r.body)),
    ApiRoute("GET", "/custom-templates/{id}", lambda a, p, r: find_item(a.templates, p)),
    ApiRoute("PUT", "/custom-templates/{id}", lambda a, p, r: update_item(a.templates, p, r.body)),
    ApiRoute("DELETE", "/custom-templates/{id}", lambda a, p, r: a.delete_template(p)),
    ApiRoute("GET", "/snapshots", lambda a, p, r: a.page(a.snapshots, r.query)),
    ApiRoute("POST", "/snapshots", lambda a, p, r: a.create_snapshot(r.body)),
    ApiRoute("GET", "/snapshots/{id}", lambda a, p, r: find_item(a.snapshots, p)),
    ApiRoute("PUT", "/snapshots/{id}", lambda a, p, r: update_item(a.snapshots, p, r.body)),
    ApiRoute("DELETE", "/snapshots/{id}", lambda a, p, r: a.delete_snapshot(p)),
    ApiRoute("GET", "/public-ips", lambda a, p, r: a.page(a.public_ips, r.query, "ip")),
    ApiRoute("POST", "/public-ips", lambda a, p, r: a.claim_public_ip(r.body["region"])),
    ApiRoute("PUT", "/public-ips/{ip}", lambda a, p, r: a.assign_public_ip(p, r.body["machineId"])),
    ApiRoute("DELETE", "/public-ips/{ip}", lambda a, p, r: a.release_public_ip(p)),
    ApiRoute("GET", "/startup-scripts", lambda a, p, r: a.page(a.scripts, r.query)),
    ApiRoute("POST", "/startup-scripts", lambda a, p, r: a.create_script(r.body)),
    ApiRoute("GET", "/startup-scripts/{id}", lambda a, p, r: find_item(a.scripts, p)),
    ApiRoute("PUT", "/startup-scripts/{id}", lambda a, p, r: a.update_script(p, r.body)),
    ApiRoute("DELETE", "/startup-scripts/{id}", lambda a, p, r: a.delete_script(p)),
    ApiRoute(
        "POST", "/startup-scripts/{id}/assign", lambda a, p, r: a.assign_script(p, r.body["machineId"], assigned=True)
    ),
    ApiRoute(
        "POST",
        "/startup-scripts/{id}/unassign",
        lambda a, p, r: a.assign_script(p, r.body["machineId"], assigned=False),
    ),
)

_PATTERNS = [(route, re.compile(re.sub(r"\\{\w+\\}", "([^/]+)", re.escape(route.template)))) for route in ROUTES]


def find_route(request: Request) -> tuple[ApiRoute | None, str]:
    """Return the operation of a request, or None, and the variable part of its path."""
    for route, pattern in _PATTERNS:
        match = pattern.fullmatch(request.path)
        if match and route.method == request.method:
            return route, urllib.parse.unquote("".join(match.groups()))
    return None, ""
