# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check a script for code that fails, or gives wrong results, on several nodes. Nothing is executed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from ansible_collections.muster.training.plugins.plugin_utils._script_check.module import Module
from ansible_collections.muster.training.plugins.plugin_utils._script_check.program import Program
from ansible_collections.muster.training.plugins.plugin_utils._script_check.project import read_project
from ansible_collections.muster.training.plugins.plugin_utils._script_check.registry import RULES
from ansible_collections.muster.training.plugins.plugin_utils._script_check.rule import SEVERITIES, ScriptFinding


def check_modules(
    modules: Sequence[Module], launcher: str = "torchrun", skip: Collection[str] = ()
) -> list[ScriptFinding]:
    """Return the findings for a program, errors first, then in line order."""
    program = Program(modules, launcher)
    if not program.imports_torch:
        return []
    findings = {
        ScriptFinding(rule.severity, rule.id, match.file, match.line, match.problem, match.change)
        for rule in RULES
        if rule.id not in skip and rule.applies_to(program)
        for match in rule.check(program)
    }
    order = {module.path: index for index, module in enumerate(modules)}
    return sorted(
        findings,
        key=lambda finding: (SEVERITIES.index(finding.severity), order[finding.file], finding.line, finding.id),
    )


def check_script(
    script: Path, directories: Sequence[Path] = (), launcher: str = "torchrun", skip: Collection[str] = ()
) -> tuple[list[Module], list[ScriptFinding]]:
    """Read a script and the modules of its project; return them and the findings. Raise ScriptError."""
    modules = read_project(script, directories)
    return modules, check_modules(modules, launcher, skip)


def uses_torch(modules: Sequence[Module]) -> bool:
    """Return whether a program uses torch, directly or through a framework."""
    return Program(modules).imports_torch
