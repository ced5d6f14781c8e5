# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Print a rank's operations from a torch flight recorder dump: flight_reader.py FILE.

The file is a pickle from the job's directory, so it is read in a separate process with limits that accepts only plain
containers, numbers and texts: no class or function is looked up. torch's own reader accepts any pickle, and importing
torch takes seconds. The output is a JSON list with the operation of each process group that is not complete, or the
newest operation of a group that has none.
"""

from __future__ import annotations

import os
import sys

MAX_FILE = 67_108_864  # bytes
MAX_MEMORY = 2_147_483_648  # bytes of address space
MAX_GROUPS = 4  # number of a rank's process groups: those with the newest operations
MAX_TEXT = 100  # characters
COMPLETED = "completed"


def read_file(path):  # type: ignore[no-untyped-def]
    """Return the contents of a regular file."""
    import stat

    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as stream:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_FILE:
            raise ValueError(path)
        return stream.read(MAX_FILE)


def load(data):  # type: ignore[no-untyped-def]
    """Return the value of a pickle that contains only plain containers, numbers and texts. Raise UnpicklingError."""
    import io
    import pickle

    class PlainUnpickler(pickle.Unpickler):
        """Rejects every class or function name."""

        def find_class(self, module, name):  # type: ignore[no-untyped-def]
            raise pickle.UnpicklingError(module + "." + name)

        def persistent_load(self, pid):  # type: ignore[no-untyped-def]
            raise pickle.UnpicklingError("persistent id")

    return PlainUnpickler(io.BytesIO(data)).load()


def text_of(value):  # type: ignore[no-untyped-def]
    """Return a text from a dump, limited in length."""
    return value[:MAX_TEXT] if isinstance(value, str) else ""


def describe(entry):  # type: ignore[no-untyped-def]
    """Convert a dump entry to an output row, or return None if it is not a collective operation in a process group."""
    group, number = entry.get("process_group"), entry.get("collective_seq_id")
    if not isinstance(group, (list, tuple)) or len(group) < 2 or not isinstance(number, int) or entry.get("is_p2p"):
        return None
    sizes = entry.get("input_sizes")
    is_complete = entry.get("state") == COMPLETED or entry.get("retired") is True  # gloo's only retire
    return {
        "group": text_of(group[0]),
        "description": text_of(group[1]),
        "number": number,
        "operation": text_of(entry.get("profiling_name")).rpartition(":")[2],
        "state": COMPLETED if is_complete else "waiting",
        "sizes": repr(sizes)[:MAX_TEXT] if isinstance(sizes, (list, tuple)) and len(sizes) < MAX_TEXT else "",
    }


def operations(dump):  # type: ignore[no-untyped-def]
    """Return the operation that the rank had reached in each process group."""
    rows = {}  # type: ignore[var-annotated]
    for entry in dump["entries"]:
        row = describe(entry)
        if row is None:
            continue
        current = rows.pop(row["group"], None)
        if current is not None and current["state"] != COMPLETED:  # the first incomplete operation
            row = current
        rows[row["group"]] = row
    return list(rows.values())[-MAX_GROUPS:]


def main():  # type: ignore[no-untyped-def]
    """Print the operations in a dump."""
    import json
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    sys.stdout.write(json.dumps(operations(load(read_file(sys.argv[1])))))


if __name__ == "__main__":
    main()
