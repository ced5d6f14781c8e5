# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Templates created from a cluster's machines. They outlive the machines, and are billed monthly."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._clouds.cloud import CloudTemplate
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace import operations
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.context import PaperspaceContext
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.errors import (
    LostReplyError,
    NotFoundError,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.resources import parse_name
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import single_line

Template = Mapping[str, Any]


def cluster_templates(context: PaperspaceContext, machines: Collection[str]) -> list[CloudTemplate]:
    """Return the templates created from these machines, and the templates in the journal. machines: machine ids."""
    recorded = {entry["id"] for entry in context.journal.content["entries"] if entry["kind"] == "template"}
    return [
        CloudTemplate(str(template["id"]), parse_name(template), format_template(template))
        for template in operations.list_templates(context.client)
        if template["id"] in recorded or template.get("parentMachineId") in machines
    ]


def format_template(template: Template) -> str:
    """Return a template's name and id."""
    return f"{parse_name(template)} ({single_line(template['id'], 80)})"


def delete_template(context: PaperspaceContext, template: CloudTemplate) -> None:
    """Remove a template. Raise PaperspaceError."""
    for last in (False, True):
        try:
            operations.delete_template(context.client, template.id)
        except NotFoundError:
            pass
        except LostReplyError as error:
            if last:
                raise error.cause from None
            continue
        break
    context.show(f"removed template {template.label}")
    context.journal.forget("template", template.name, template.id)
