# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The local origin of a run's job: its job file, code and requirements, for repeating the run later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import clean_text, to_mapping

FILE = "origin.json"  # file in the record; it is not sent to the nodes
MAX_PATH = 500


class JobOrigin(TypedDict):
    """The content of origin.json. An empty text means that the run does not have this part."""

    job_file: str
    source: str  # directory of the code
    commit: str
    dirty: bool | None  # whether a tracked file has been changed since then; None if unknown
    requirements: str  # file below source
    requirements_digest: str


def make_origin(job_file: str, code: Mapping[str, Any], checkout: Mapping[str, Any] | None) -> JobOrigin:
    """Return the origin of a job. code: from list_code; checkout: its directory's commit and dirty state."""
    texts = {name: str(code.get(name) or "") for name in ("source", "requirements", "required")}
    return {
        "job_file": job_file,
        "source": texts["source"],
        "commit": str(checkout["commit"]) if checkout else "",
        "dirty": checkout["dirty"] if checkout else None,
        "requirements": texts["requirements"],
        "requirements_digest": texts["required"],
    }


def describe_origin(document: Any) -> list[str]:
    """Describe the content of an origin.json, which may be anything, in lines such as "code: /home/me/toy, commit
    1a2b3c4d".
    """
    origin = to_mapping(document)
    texts = {name: clean_text(origin.get(name), MAX_PATH) for name in JobOrigin.__annotations__ if name != "dirty"}
    lines = [f"job file: {texts['job_file']}"] if texts["job_file"] else []
    if texts["source"]:
        commit = f", commit {texts['commit'][:12]}" if texts["commit"] else ", not in a git checkout"
        states = {True: ", with uncommitted changes", None: ", changes unknown" if texts["commit"] else ""}
        dirty = origin.get("dirty")
        state = states.get(dirty, "") if dirty is None or isinstance(dirty, bool) else ""
        lines.append(f"code: {texts['source']}{commit}{state}")
    if texts["requirements"]:
        digest = texts["requirements_digest"][:12]
        lines.append(f"requirements: {texts['requirements']}{f', hash {digest}' if digest else ''}")
    return lines
