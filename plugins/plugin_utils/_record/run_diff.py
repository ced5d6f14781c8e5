# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The differences between two runs, next to their outcomes, as text for a terminal."""

from __future__ import annotations

import difflib
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ansible_collections.muster.training.plugins.module_utils._files.bounded import read_bytes, read_json
from ansible_collections.muster.training.plugins.plugin_utils._record.code_patch import RecordedCode, restore_code
from ansible_collections.muster.training.plugins.plugin_utils._record.code_tree import FILE as CODE_FILE
from ansible_collections.muster.training.plugins.plugin_utils._record.code_tree import read_files
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import clean_line, clean_text, to_mapping
from ansible_collections.muster.training.plugins.plugin_utils._record.plain_settings import strip_secret_values
from ansible_collections.muster.training.plugins.plugin_utils._record.snapshot import (
    FILE,
    PATCH_FILE,
    SETTING,
    Difference,
    compare_snapshots,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.comparison import (
    comparison_sections,
    differing_settings,
    metric_rows,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.documents import Report
from ansible_collections.muster.training.plugins.plugin_utils._report.redact import redact

MAX_DOCUMENT = 32 << 20  # bytes of snapshot.json and of code.json
MAX_SOURCE = 1 << 20  # bytes of a file whose lines are compared
MAX_LINES = 400  # number of lines of changed code
MAX_FILES = 50
CELL_WIDTH = 48  # characters


class RunFiles(NamedTuple):
    """A run's inputs according to its record."""

    record: Path
    snapshot: Mapping[str, Any] | None  # None if the run was launched by an older release
    files: Mapping[str, str] | None  # fingerprints by name; None if the code was not recorded


class CodeChange(NamedTuple):
    """A code file that differs."""

    name: str
    kind: str  # changed | added | removed
    lines: list[str]  # a unified diff; [] if one side cannot be restored or is not text


def read_run(record: Path) -> RunFiles:
    """Read a run's snapshot and its code fingerprints."""
    snapshot = read_json(str(record / FILE), MAX_DOCUMENT)
    files = read_files(read_json(str(record / CODE_FILE), MAX_DOCUMENT))
    return RunFiles(record, snapshot if isinstance(snapshot, dict) else None, files)


def input_differences(runs: Sequence[RunFiles], reports: Sequence[Report]) -> list[Difference]:
    """Return the differences between two runs, except for their code, based on their snapshots or their reports."""
    snapshots = [run.snapshot for run in runs if run.snapshot is not None]
    if len(snapshots) == 2:
        return compare_snapshots(*snapshots)
    rows = differing_settings(reports)
    return [
        Difference(SETTING, name, strip_secret_values(before), strip_secret_values(after))
        for name, before, after in rows
    ]


def differing_names(runs: Sequence[RunFiles]) -> list[str]:
    """Return the names of the code files that differ."""
    before, after = runs[0].files, runs[1].files
    if before is None or after is None:
        return []
    return sorted(name for name in {*before, *after} if before.get(name) != after.get(name))


def restore_files(run: RunFiles, names: Sequence[str], target: Path) -> dict[str, bytes]:
    """Return the contents of a run's code files, omitting those that cannot be restored."""
    code = to_mapping((run.snapshot or {}).get("code"))
    files = {name: value for name, value in (run.files or {}).items() if name in names}
    source = Path(str(code.get("source") or run.record))
    patch = run.record / PATCH_FILE
    target.mkdir()
    has_patch = bool(code.get("patch")) and patch.is_file()
    recorded = RecordedCode(
        files, str(code.get("commit") or ""), patch if has_patch else None, run.record.resolve().parent
    )
    directory, problems = restore_code(source if source.is_dir() else run.record, recorded, target)
    contents = {}
    for name in files:
        if name not in problems and (directory / name).is_file() and not (directory / name).is_symlink():
            try:
                contents[name] = read_bytes(str(directory / name), MAX_SOURCE)
            except OSError:
                continue
    return contents


def code_changes(runs: Sequence[RunFiles]) -> list[CodeChange]:
    """Return the code files that differ, with their changed lines if both versions can be restored."""
    names = differing_names(runs)[:MAX_FILES]
    if not names:
        return []
    with tempfile.TemporaryDirectory(prefix="muster-diff-") as directory:
        contents = [restore_files(run, names, Path(directory) / str(index)) for index, run in enumerate(runs)]
    return [compare_file(name, runs, contents) for name in names]


def compare_file(name: str, runs: Sequence[RunFiles], contents: Sequence[Mapping[str, bytes]]) -> CodeChange:
    """Return the difference between two versions of a file."""
    exists = [name in (run.files or {}) for run in runs]
    kind = "changed" if all(exists) else "removed" if exists[0] else "added"
    if any(exists[side] and name not in contents[side] for side in (0, 1)):
        return CodeChange(name, kind, [])
    sides = [contents[side].get(name, b"") for side in (0, 1)]
    if any(b"\0" in side for side in sides):
        return CodeChange(name, kind, [])
    before, after = (redact(side.decode("utf-8", "replace")).splitlines() for side in sides)
    titles = [f"{run.record.name}/{name}" for run in runs]
    lines = difflib.unified_diff(before, after, titles[0], titles[1], n=2, lineterm="")
    return CodeChange(name, kind, [clean_line(line, 300) for line in lines])


def count_lines(change: CodeChange) -> str:
    """Summarize the changed lines, such as "changed, +3 -1"."""
    added = sum(line.startswith("+") and not line.startswith("+++") for line in change.lines)
    removed = sum(line.startswith("-") and not line.startswith("---") for line in change.lines)
    return f"{change.kind}, +{added} -{removed}" if change.lines else change.kind


def outcome_rows(reports: Sequence[Report]) -> list[list[str]]:
    """Return the outcomes of runs: state, time, cost, metrics and speed."""
    numbers, texts = metric_rows(reports)
    rows = [["state", *(report["state"] for report in reports)]]
    rows += [row for _title, section in comparison_sections(reports, numbers) for row in section]
    return [*rows, *texts]


def render_rows(rows: Sequence[Sequence[str]]) -> list[str]:
    """Render rows of three cells as aligned lines."""
    cells = [[clean_text(cell, CELL_WIDTH) or "-" for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(2)]
    return [f"  {row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]}" for row in cells]


def render_diff(runs: Sequence[RunFiles], reports: Sequence[Report], show_lines: bool) -> str:
    """Render all differences between two runs, followed by their outcomes."""
    names = [report["run_id"] for report in reports]
    differences = input_differences(runs, reports)
    changes = code_changes(runs)
    lines = ["differences:" if differences or changes else "no differences are recorded"]
    rows = [[f"{row.part}: {row.name}", row.before, row.after] for row in differences]
    rows += [[f"code: {change.name}", count_lines(change), ""] for change in changes]
    if rows:
        lines += render_rows([["", *names], *rows])
    missing = [run.record.name for run in runs if run.files is None]
    if missing:
        lines.append(f"the code was not compared: the record of {' and '.join(missing)} has none")
    older = [run.record.name for run in runs if run.snapshot is None]
    if older:
        lines.append(f"packages and data were not compared: the record of {' and '.join(older)} has no {FILE}")
    lines += ["outcomes:", *render_rows([["", *names], *outcome_rows(reports)])]
    if show_lines:
        changed = [line for change in changes for line in change.lines]
        lines += ["", *changed[:MAX_LINES]]
        lines += [f"and {len(changed) - MAX_LINES} more lines"] if len(changed) > MAX_LINES else []
    elif any(change.lines for change in changes):
        first, second = names
        lines.append(
            f"to see the changed lines: ansible-playbook diff.yml -e run_id={first} -e other_run={second} -e lines=true"
        )
    return "\n".join(lines)
