# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write an archive of a run for sharing when asking for help: the launch, the outcome, and the ends of its logs.

Secrets are removed: tokens of known forms, values of names like PASSWORD, and all values of environment variables.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._run.error_text import tail_lines
from ansible_collections.muster.training.plugins.plugin_utils._failures.catalogue import explain_failure
from ansible_collections.muster.training.plugins.plugin_utils._failures.facts import read_facts
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import clean_text, to_list, to_mapping
from ansible_collections.muster.training.plugins.plugin_utils._record.reader import RecordFiles
from ansible_collections.muster.training.plugins.plugin_utils._report.redact import REMOVED, redact, redact_values
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import strip_control_sequences

DOCUMENTS = ("result.json", "plan.json", "report.json")
MAX_LOGS = 200  # number of logs in the archive: a node has two per rank
MAX_TAIL = 64 << 10  # bytes of each log
MAX_STACKS = 64  # number of files with the ranks' stacks
ENVIRONMENTS = ("environment", "launcher_environment", "launch_environment")
# Prefixes of the variables that muster sets itself, whose values are names and addresses.
OWN_VARIABLES = ("MUSTER_", "NCCL_", "GLOO_", "MASTER_", "TORCH", "OMP_", "CUDA_", "PYTHON", "RANK", "WORLD_", "LOCAL_")
READ_ME = """\
An excerpt of a run of muster, to share when you ask for help. Secrets were removed: tokens of known forms, values of
names such as PASSWORD or API_KEY, and the values of all environment variables. Host names, addresses and paths are
left in: review the files before you share them.

verdict.txt   the first failure, and its cause if known
result.json   how each rank ended
plan.json     the launched job and its nodes
logs/         the last lines of each log that was fetched (./muster logs --fetch gets those that are missing)
"""


def known_secrets(plan: Any) -> set[str]:
    """Return the values of a job's environment variables in a plan, in case they also occur elsewhere."""
    values = {
        value
        for key in ENVIRONMENTS
        for name, value in to_mapping(to_mapping(plan).get(key)).items()
        if isinstance(value, str) and not str(name).startswith(OWN_VARIABLES)
    }
    return {value for value in values if "/" not in value and not value.isalpha() and not value.isdigit()}


def strip_environment(value: Any) -> Any:
    """Return a JSON value without the values of environment variables."""
    if isinstance(value, list):
        return [strip_environment(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: dict.fromkeys(item, REMOVED) if key in ENVIRONMENTS and isinstance(item, dict) else strip_environment(item)
        for key, item in value.items()
    }


def render_reason(result: Mapping[str, Any], plan: Any) -> str:
    """Render the first failure and its cause as text."""
    failure = to_mapping(result.get("first_failure"))
    lines = [f"{clean_text(result.get('run_id'), 200)} {clean_text(result.get('state'), 40)}"]
    if not failure:
        return "\n".join([*lines, clean_text(result.get("reason"), 2000), ""])
    error = failure.get("error") if isinstance(failure.get("error"), str) else ""
    shown = [line for line in to_list(failure.get("last_lines"), 1000) if isinstance(line, str)]
    explanation = explain_failure(str(error), shown, read_facts(plan, failure.get("rank")))
    lines += [f"failed first: {clean_text(failure.get('node'), 100)}, rank {clean_text(failure.get('rank'), 20)}"]
    lines += [f"error:        {line}" for line in str(error).split("\n")]
    if explanation is None:
        lines.append("cause:        unknown")
    else:
        certainty = "cause:        " if explanation["confidence"] == "error" else "possibly:     "
        lines += [f"{certainty}{explanation['cause']} [{explanation['id']}]", f"what to do:   {explanation['remedy']}"]
        lines += [f"because its log says: {explanation['evidence']}"] if explanation["evidence"] else []
    return "\n".join([*lines, "", "its last lines:", *(f"    {line}" for line in shown), ""])


def bundle_files(record: Path) -> Iterator[tuple[str, str]]:
    """Yield the names and texts of the files in an archive, without secrets."""
    files = RecordFiles(record)
    plan = files.read_json("plan.json")
    secrets = known_secrets(plan)

    def clean(text: str) -> str:
        return redact(text, secrets)

    yield "README.txt", READ_ME
    for name in DOCUMENTS:
        document = files.read_json(name)
        if document is not None:
            cleaned = redact_values(strip_environment(document), clean)
            yield name, json.dumps(cleaned, indent=2, ensure_ascii=False) + "\n"
            if name == "result.json":
                yield "verdict.txt", clean(strip_controls(render_reason(to_mapping(document), plan)))
    paths = files.list_files("logs")
    logs = [path for path in paths if path.endswith(".log")]
    stacks = [path for path in paths if "stack" in path.rpartition("/")[2]]
    for path in [*logs[:MAX_LOGS], *stacks[:MAX_STACKS]]:
        yield path, tail_lines(clean(strip_controls(files.read_tail(path, MAX_TAIL)))) + "\n"


def strip_controls(text: str) -> str:
    """Return lines of text that are safe for a terminal."""
    return "\n".join(strip_control_sequences(line) for line in text.split("\n"))


def write_bundle(record: Path) -> Path:
    """Write a run's archive to its record, with fixed owners and times, and return its path."""
    path = record / f"{record.name}.tar.gz"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in bundle_files(record):
            data = text.encode("utf-8", "replace")
            member = tarfile.TarInfo(f"{record.name}/{name}")
            member.size, member.mode = len(data), 0o644
            archive.addfile(member, io.BytesIO(data))
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    temporary.touch(mode=0o600)
    temporary.write_bytes(buffer.getvalue())
    temporary.replace(path)
    return path
