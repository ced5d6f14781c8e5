# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of the code: whether the nodes have the same code as the controller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._checks.context import CheckContext
from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import Finding, error, warning

DIFFERENCE_TEXTS = {
    "missing": ("is missing on the node", "are missing on the node"),
    "older": ("is older on the node", "are older on the node"),
    "newer": ("is newer on the node", "are newer on the node"),
    "other": ("differs", "differ"),
    "extra": ("exists only on the node", "exist only on the node"),
}
COPY_HINT = "copy it with: ansible-playbook site.yml --tags code"
# Reasons why modified code was not copied, and how to fix each, keyed by launch_plan's code_skip_reason.
NOT_COPIED_TEXTS = {
    "": (
        "even after copying",
        f"check whether code_ignore_existing is true, which keeps files that exist on the node; {COPY_HINT}",
    ),
    "as_is": ("not copied because code is as_is", f"remove code: as_is to have the launch copy it, or {COPY_HINT}"),
    "later": ("not copied yet", f"no action needed: a launch copies it before it starts. To copy it now, {COPY_HINT}"),
    "in_use": (
        "not copied because a run on other GPUs of the node is using it",
        "wait for that run, or add -e code=as_is to start with the existing code on the nodes",
    ),
    "refused": (
        "not copied because the run cannot start",
        "no action needed: the next launch that can start copies it first",
    ),
}


def describe_difference(code: Mapping[str, Any]) -> str:
    """Describe how the code on a node differs."""
    descriptions = []
    for kind, count in code["counts"].items():
        names = code["names"][kind]
        suffix = f" and {count - len(names)} more" if count > len(names) else ""
        descriptions.append(f"{', '.join(names)}{suffix} {DIFFERENCE_TEXTS[kind][count > 1]}")
    return "; ".join(descriptions) or "it differs from the code on this machine"


def facts_after_copy(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a node's facts as they will be after the code is copied, as far as is currently known."""
    code = facts.get("code")
    if not code or code["same"]:
        return facts
    updated = dict(facts)

    def is_inside(path: str) -> bool:
        return path == code["path"] or path.startswith(code["path"] + "/")

    if code["script"]:
        updated["script"] = None
        updated.pop("imports", None)
    if is_inside(facts["working_directory"]["path"]):
        updated["working_directory"] = {**facts["working_directory"], "exists": True, "is_directory": True}
    config = facts.get("deepspeed_config")
    if config and is_inside(config["path"]):
        del updated["deepspeed_config"]
    return updated


def check_requirements(context: CheckContext) -> list[Finding]:
    """Check that an environment created by python_env meets the project's current requirements."""
    code = context.code
    if not code.required or context.job.image or context.user_python:
        return []
    parts = context.nodes_with("code")
    outdated = {node.name: part for node, part in parts if part["required"] not in (None, code.required)}
    reasons: dict[str, list[str]] = {}
    for name, part in outdated.items():
        if part["required_by"]:
            reason = f"was not installed; the environment on the node is that of {part['required_by']}"
        else:
            reason = "has changed since it was installed" if part["required"] else "was not installed"
        reasons.setdefault(reason, []).append(name)
    return [
        warning(
            "requirements-changed",
            names,
            problem=f"{code.source}/{code.requirements} {reason}",
            requirement="the packages the project requires",
            remedy="ansible-playbook site.yml --tags pytorch,python_env",
        )
        for reason, names in reasons.items()
    ]


def check_code(context: CheckContext) -> list[Finding]:
    """Check that the nodes have the controller's code, unless the user wants to use the code on the nodes."""
    code = context.code
    if code.problem:
        is_required = code.skip_reason != "as_is"
        return [
            error(
                "code-unread",
                [],
                problem=code.problem,
                requirement="the job's code, to compare it with the code on the nodes",
                remedy="correct code_source, or use the existing code on the nodes with -e code=as_is",
            )
        ] * is_required
    reason, todo = NOT_COPIED_TEXTS[code.skip_reason]
    findings = [
        warning(
            "code-older",
            [node.name],
            problem=f"the code in {part['path']} differs from {code.source}, {reason}: {describe_difference(part)}",
            requirement="the same code as on this machine",
            remedy=todo,
        )
        for node, part in context.nodes_with("code")
        if not part["same"]
    ]
    if code.skip_reason == "in_use":
        findings = [replace(finding, severity="error") for finding in findings]
    return [*findings, *check_requirements(context)]
