# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The templates made from a cluster's machines, which outlive them and cost money by the month. Private."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace import operations
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.create import Work
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.errors import (
    LostAnswerError,
    NotFoundError,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.resources import name_of
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import one_line

Template = Mapping[str, Any]


def own_templates(work: Work, machines: Collection[str]) -> list[Template]:
    """Templates made from these machines, given by id, or listed in the record."""
    recorded = {entry["id"] for entry in work.record.content["entries"] if entry["what"] == "template"}
    return [
        one
        for one in operations.list_templates(work.client)
        if one["id"] in recorded or one.get("parentMachineId") in machines
    ]


def template_words(template: Template) -> str:
    """A template in a line."""
    return f"{name_of(template)} ({one_line(template['id'], 80)})"


def delete_template(work: Work, template: Template) -> None:
    """Remove a template. Raises PaperspaceError."""
    for last in (False, True):
        try:
            operations.delete_template(work.client, str(template["id"]))
        except NotFoundError:
            pass
        except LostAnswerError as error:
            if last:
                raise error.cause from None
            continue
        break
    work.say(f"template {template_words(template)} is gone")
    work.record.forget("template", name_of(template), str(template["id"]))
