# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Templates: images of a cluster's machine on Paperspace, from which other machines are created.

Paperspace creates a template from a machine that is off, and lists it once it is complete, which may take an hour.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._clouds.cloud import LISTING_TIMEOUT, POLL_INTERVAL
from ansible_collections.muster.training.plugins.plugin_utils._clouds.cost import format_usd
from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import Machine
from ansible_collections.muster.training.plugins.plugin_utils._clouds.engine.teardown import Confirm
from ansible_collections.muster.training.plugins.plugin_utils._clouds.errors import ClusterError
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import (
    PlanRefusedError,
    find_machines,
    find_network,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace import operations
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.client import FINAL_EVENT_STATES
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.context import PaperspaceContext
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.errors import (
    LostReplyError,
    PaperspaceError,
    RequestError,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.prices import template_price
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.resources import (
    parse_name,
    read_account,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.templates import (
    Template,
    cluster_templates,
    delete_template,
    format_template,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.wait import (
    STATE_INTERVAL,
    latest_failure,
    stop_and_wait,
    wait_until_ready,
)
from ansible_collections.muster.training.plugins.plugin_utils._text.duration import format_duration
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import single_line

# Seconds. Paperspace publishes no limit; this is enough to copy a 2 TB disk.
TEMPLATE_TIMEOUT = 3600.0


class TemplateResult(NamedTuple):
    """The result of creating or removing a template. template_id: "" if the template is only planned or was removed."""

    changed: bool
    template_id: str
    message: str


def ensure_template(  # noqa: PLR0913
    context: PaperspaceContext,
    node: str,
    name: str,
    start: bool = True,
    check: bool = False,
    confirm: Confirm = lambda machines: None,
) -> TemplateResult:
    """Ensure that a template of one of the cluster's machines exists. An existing one is left unchanged.

    Args:
        node: name of the machine.
        start: whether to start the machine afterwards.
        check: only plan, with read-only requests.
        confirm: raises PlanRefusedError if the machine must not be stopped.

    Raises:
        PlanRefusedError, ClusterError, PaperspaceError
    """
    operations.get_session(context.client)
    machine = _find_machine(context, node)
    template_id = _find_template(context, name, machine["id"])
    entry = context.journal.find_entry("template", name)
    if template_id and (entry is None or entry["settled"]):
        return TemplateResult(
            False, template_id, (f"the template {name} ({template_id}) from {node} already exists. Choose another name")
        )
    price = template_price(machine["disk_gb"])
    cost = f"{format_usd(price.usd)} a month ({price.source}, {price.date})" if price else "an unknown amount a month"
    context.show(
        f"create: template {name} from {node}, which will be off in the meantime; the template costs {cost} until "
        "it is removed"
    )
    confirm([machine] if machine["state"] != "off" else [])
    if check:
        return TemplateResult(True, "", "")
    try:
        if not template_id:
            _stop_machine(context, machine)
            template_id = _create_template(context, name, machine)
        if start:
            _start_machine(context, machine)
    except PaperspaceError as error:
        raise ClusterError(f"{error.summary}. {node} may be off. Run the command again to continue") from None
    context.journal.settle_entry("template", name)
    message = f"created template {name} ({template_id}) from {node}; use it with provision_template={name}"
    context.show(message)
    return TemplateResult(True, template_id, message)


def remove_template(context: PaperspaceContext, name: str, check: bool = False) -> TemplateResult:
    """Remove the templates with this name created from the cluster's machines. Raise ensure_template()'s errors."""
    operations.get_session(context.client)
    templates = [
        template for template in cluster_templates(context, _cluster_machine_ids(context)) if template.name == name
    ]
    if not templates:
        namesakes = [template for template in operations.list_templates(context.client) if parse_name(template) == name]
        _refuse_foreign_templates(namesakes)
        context.journal.forget_any("template", name)
        return TemplateResult(False, "", f"no template is named {name}")
    for template in templates:
        context.show(f"remove: template {template.label}")
        if not check:
            delete_template(context, template)
    return TemplateResult(True, "", f"removed template {name}")


# --- A template's owner


def _cluster_machine_ids(context: PaperspaceContext) -> list[str]:
    resources = read_account(context.client)
    network = find_network(context.cluster, resources["networks"], context.network_id)
    return [machine["id"] for machine in find_machines(context.cluster, network, resources)]


def _find_machine(context: PaperspaceContext, node: str) -> Machine:
    resources = read_account(context.client)
    network = find_network(context.cluster, resources["networks"], context.network_id)
    machines = find_machines(context.cluster, network, resources)
    matches = [machine for machine in machines if machine["name"] == node]
    if len(matches) != 1:
        names = ", ".join(machine["name"] for machine in machines) or "none"
        subject = f"{len(matches)} machines called" if matches else "no machine"
        raise PlanRefusedError(f"{context.cluster} has {subject} {single_line(node, 80)!r}. Its machines: {names}")
    return matches[0]


def _find_template(context: PaperspaceContext, name: str, machine_id: str) -> str:
    """Return the id of the machine's template with this name, or "". Raise PlanRefusedError for another machine's."""
    matches = [template for template in operations.list_templates(context.client) if parse_name(template) == name]
    for template in matches:
        if template.get("parentMachineId") == machine_id:
            return str(template["id"])
    _refuse_foreign_templates(matches)
    return ""


def _refuse_foreign_templates(templates: Sequence[Template]) -> None:
    for template in templates:
        parent = single_line(template.get("parentMachineId") or "unknown", 80)
        raise PlanRefusedError(
            f"the template {format_template(template)} was created from another machine ({parent}), and is left alone. "
            "Choose another name"
        )


# --- The steps


def _stop_machine(context: PaperspaceContext, machine: Machine) -> None:
    _wait_for_events(context, machine["id"])
    if stop_and_wait(context, {machine["id"]: machine["name"]}):
        raise ClusterError(f"{machine['name']} could not be stopped, so no template was created. Run the command again")


def _create_template(context: PaperspaceContext, name: str, machine: Machine) -> str:
    """Create the template, and return its id once it is listed.

    Requests the template, unless an earlier request whose reply was lost has created it.
    """
    for attempt in range(3):
        _wait_for_events(context, machine["id"])
        entry = context.journal.find_entry("template", name)
        template_id = (
            _wait_until_listed(context, name, machine["id"]) if entry else _find_template(context, name, machine["id"])
        )
        if template_id:
            context.journal.record_created("template", name, template_id)
            return template_id
        failure = latest_failure(
            [event for event in _list_events(context, machine["id"]) if event.get("name") == "template-create"]
        )
        if entry and failure:
            context.journal.forget_any("template", name)
            raise ClusterError(
                f"no template was created from {machine['name']}: {failure}. The machine is off. Run the command again"
            )
        if attempt < 2:
            _request_template(context, name, machine)
    raise ClusterError(f"the template {name} was requested twice, but is not listed. {machine['name']} is off")


def _request_template(context: PaperspaceContext, name: str, machine: Machine) -> None:
    started = context.clock()
    while True:
        context.journal.record_request("template", name, context.clock())
        try:
            operations.create_template(context.client, name=name, machine_id=machine["id"])
        except LostReplyError:
            return
        except PaperspaceError as error:
            if error.refused:
                context.journal.forget_any("template", name)
            # the API may still refuse for a while after the machine is off
            if not isinstance(error, RequestError) or context.clock() - started > LISTING_TIMEOUT:
                raise
            context.sleep(POLL_INTERVAL)
            continue
        context.show(f"creating template {name} from {machine['name']}")
        return


def _wait_until_listed(context: PaperspaceContext, name: str, machine_id: str) -> str:
    """Return the template's id, or "" if it is not listed within a minute: the list may be outdated."""
    started = context.clock()
    while True:
        template_id = _find_template(context, name, machine_id)
        if template_id or context.clock() - started > LISTING_TIMEOUT:
            return template_id
        context.sleep(POLL_INTERVAL)


def _list_events(context: PaperspaceContext, machine_id: str) -> list[Mapping[str, Any]]:
    return list(operations.list_machine_events(context.client, machine_id))


def _wait_for_events(context: PaperspaceContext, machine_id: str) -> None:
    """Wait until no operation is in progress on the machine."""
    started = context.clock()
    while any(event.get("state") not in FINAL_EVENT_STATES for event in _list_events(context, machine_id)):
        if context.clock() - started > TEMPLATE_TIMEOUT:
            raise ClusterError(
                f"an operation on the machine {machine_id} has not finished after "
                f"{format_duration(TEMPLATE_TIMEOUT)}. See https://console.paperspace.com"
            )
        context.sleep(STATE_INTERVAL)


def _start_machine(context: PaperspaceContext, machine: Machine) -> None:
    with contextlib.suppress(RequestError, LostReplyError):  # it is already on, or its state will show the failure
        operations.start_machine(context.client, machine["id"])
    failures = wait_until_ready(context, {machine["id"]: machine["name"]})
    if failures:
        details = "; ".join(f"{name} {reason}" for name, reason in failures.items())
        raise ClusterError(
            f"the template was created, but {details}. Start the machine: ansible-playbook provision.yml -e "
            f"cluster={context.cluster}"
        )
