# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of Python environments: whether the job's project has its own on each node, and which others have torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._checks.context import CheckContext
from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import Finding, error, warning
from ansible_collections.muster.training.plugins.plugin_utils._plan.plan import get_launcher
from ansible_collections.muster.training.plugins.plugin_utils._text.name_list import format_list

PROJECT_INTERPRETER = re.compile(r"/(?:.*?/)?(?:envs/(?P<project>[^/]+)/)?env/bin/python")
"""The path of an environment's interpreter, in the format that find_environment() and list_interpreters() return."""


def describe_environment(environment: Mapping[str, Any]) -> str:
    """Describe an environment in a machine's image, such as "torch 2.7.0 (CUDA 12.8) in /opt/pytorch/bin/python"."""
    build = f" (CUDA {environment['cuda']})" if environment["cuda"] else ""
    return f"torch {environment['torch']}{build} in {environment['interpreter']}"


def shared_projects(context: CheckContext, names: list[str]) -> list[str]:
    """Return the projects that have an environment with torch on each of these nodes."""
    projects = [
        {entry["project"] for entry in context.facts[name].get("environments") or [] if entry.get("project")}
        for name in names
    ]
    return sorted(set.intersection(*projects)) if projects else []


def use_project_environment(context: CheckContext, names: list[str]) -> str:
    """Return a remedy that uses a project environment that exists on all of these nodes, or "" if there is none."""
    shared = shared_projects(context, names)
    if not shared:
        return ""
    article = "another" if is_project_job(context) else "a"
    examples = f" (or {format_list(shared[1:], 3)})" if shared[1:] else ""
    return f"use the environment of {article} project: -e python_env_name={shared[0]}{examples}"


def is_project_job(context: CheckContext) -> bool:
    """Return whether the job runs in its project's environment, or another interpreter until that exists."""
    preferred, *fallbacks = context.job.interpreter.split(":")
    return not context.job.image and bool(fallbacks) and bool(PROJECT_INTERPRETER.fullmatch(preferred))


def lacks_environment(context: CheckContext, name: str) -> bool:
    """Return whether a job cannot run on a node because its project has no environment on that node.

    Another interpreter with the job's packages is equally good.
    """
    facts = context.facts[name]
    software = facts.get("software") or {}
    if not is_project_job(context) or not facts["interpreter"] or not software or software["error"]:
        return False
    if facts["interpreter"] == context.job.interpreter.split(":")[0] or "torch" in software["packages"]:
        return False
    failures = (facts.get("imports") or {}).get("failures") or []
    return bool(get_launcher(context.job).modules) or any(
        failure["certain"] and failure["error"].startswith("ModuleNotFoundError") for failure in failures
    )


def nodes_without_environment(context: CheckContext) -> list[str]:
    """Return the nodes on which the job's project has no environment even though the job needs it."""
    return [node.name for node in context.nodes if lacks_environment(context, node.name)]


def facts_without_software(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a node's facts without those about a job's fallback interpreter, which are irrelevant."""
    rest = {name: value for name, value in facts.items() if name != "software"}
    if rest.get("imports"):
        rest["imports"] = {**rest["imports"], "failures": [], "cuda": []}
    if rest.get("code"):
        rest["code"] = {**rest["code"], "required": None}
    return rest


def check_project_environment(context: CheckContext) -> list[Finding]:
    """Report nodes on which the project has no environment, which explains everything else that its job lacks there."""
    lacking = nodes_without_environment(context)
    if not lacking:
        return []
    match = PROJECT_INTERPRETER.fullmatch(context.job.interpreter.split(":")[0])
    project = match["project"] if match else ""
    alternative = use_project_environment(context, lacking)
    return [
        error(
            "environment-missing",
            lacking,
            problem=f"{project} has no Python environment yet" if project else "there is no Python environment yet",
            requirement="an environment with torch and the packages that the project requires",
            remedy="create it: ansible-playbook site.yml" + (f"; or {alternative}" if alternative else ""),
        )
    ]


def check_image_environment(context: CheckContext) -> list[Finding]:
    """Report torch environments that came with the machines, if the job's interpreter does not have torch."""
    if context.job.image:
        return []
    nodes: dict[tuple[str, str], list[str]] = {}
    for node, software in context.nodes_with("software"):
        if software["error"] or "torch" in software["packages"]:
            continue
        environments = [
            environment
            for environment in context.facts[node.name].get("environments") or []
            if not environment.get("project")
        ]
        if environments:
            described = (environments[0]["interpreter"], describe_environment(environments[0]))
            nodes.setdefault(described, []).append(node.name)
    return [
        warning(
            "image-environment",
            names,
            problem=f"the machine's image has {description}, and the job's interpreter has no torch",
            requirement="torch in the environment of the job's interpreter",
            remedy=(
                f"to use the image's torch, set launch_python: {interpreter} in group_vars/training.yml. To install "
                "torch into a separate environment: ansible-playbook site.yml"
            ),
        )
        for (interpreter, description), names in nodes.items()
    ]


def check_environments(context: CheckContext) -> list[Finding]:
    """Return the findings of all checks in this file."""
    return [*check_project_environment(context), *check_image_environment(context)]
