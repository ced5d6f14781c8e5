# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of the code: do the nodes have the same code as the controller? Pure. Private to this collection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._checks.context import Case
from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import Finding, error, warning

WORDS = {
    "missing": ("is missing there", "are missing there"),
    "older": ("is older there", "are older there"),
    "newer": ("was changed there later than here", "were changed there later than here"),
    "other": ("differs there", "differ there"),
    "extra": ("is no longer here", "are no longer here"),
}
BRING = "copy it with: ansible-playbook site.yml --tags code"
# Why differing code was not copied, and what to do about it, by launch_plan's code_left.
LEFT = {
    "": ("and still does after copying", f"check whether code_ignore_existing keeps it; {BRING}"),
    "as_is": ("left so by code: as_is", f"remove that, and the launch copies it; or {BRING}"),
    "later": ("left unchanged for now", f"nothing: a launch copies it before the start. To copy it now, {BRING}"),
    "refused": ("left unchanged, because nothing can start", "nothing: the next launch that can start copies it first"),
}


def difference(code: Mapping[str, Any]) -> str:
    """How a node's copy differs, in words."""
    said = []
    for kind, count in code["counts"].items():
        names = code["names"][kind]
        more = f" and {count - len(names)} more" if count > len(names) else ""
        said.append(f"{', '.join(names)}{more} {WORDS[kind][count > 1]}")
    return "; ".join(said) or "it is not the same as here"


def as_brought(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    """A node's facts as they will be after the code is copied, as far as known now."""
    code = facts.get("code")
    if not code or code["same"]:
        return facts
    found = dict(facts)

    def is_inside(path: str) -> bool:
        return path == code["path"] or path.startswith(code["path"] + "/")

    if code["script"]:
        found["script"] = None
    if is_inside(facts["working_directory"]["path"]):
        found["working_directory"] = {**facts["working_directory"], "exists": True, "is_directory": True}
    config = facts.get("deepspeed_config")
    if config and is_inside(config["path"]):
        del found["deepspeed_config"]
    return found


def check_requirements(case: Case) -> list[Finding]:
    """The requirements installed in an environment of ours must be the project's current ones."""
    code = case.code
    if not code.required or case.job.image:
        return []
    parts = case.part("code")
    others = {node.name: part["required"] for node, part in parts if part["required"] not in (None, code.required)}
    return [
        warning(
            "requirements-changed",
            names,
            f"{code.source}/{code.requirements} {what}",
            "the packages the project requires",
            "ansible-playbook site.yml --tags python_env",
        )
        for what, names in (
            ("has changed since it was installed there", [name for name, required in others.items() if required]),
            ("was not installed there", [name for name, required in others.items() if not required]),
        )
        if names
    ]


def check_code(case: Case) -> list[Finding]:
    """The nodes must have the controller's code, unless the user prefers theirs."""
    code = case.code
    if code.problem:
        wanted = code.left != "as_is"
        return [
            error(
                "code-unread",
                [],
                code.problem,
                "the job's code, to compare with the nodes'",
                "correct code_source, or run the code on the nodes as it is with -e code=as_is",
            )
        ] * wanted
    why, todo = LEFT[code.left]
    found = [
        warning(
            "code-older",
            [node.name],
            f"the code in {part['path']} differs from {code.source}, {why}: {difference(part)}",
            "the same code as here",
            todo,
        )
        for node, part in case.part("code")
        if not part["same"]
    ]
    return [*found, *check_requirements(case)]
