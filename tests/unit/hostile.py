"""Contents that a hostile job, node or peer may substitute for a document."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from hypothesis import strategies as st

BRACKETS = "[" * 100_000
DIGITS = "9" * 5000
BAD_FILES = (
    *("pipe", "link", "dangling link", "directory", "device", "huge", "brackets", "closed brackets", "another type"),
    *("a list", "digits", "nan", "newlines", "not utf-8", "empty"),
)
TEXTS = {
    "brackets": BRACKETS,
    "closed brackets": BRACKETS + "]" * len(BRACKETS),
    "another type": '{"pid": "1", "state": 7, "node": [], "nodes": {"a": 1}, "timeouts": 5, "run_id": {}, "text": 1}',
    "a list": "[1]",
    "digits": f'{{"pid": {DIGITS}, "since": {DIGITS}, "run_id": 1}}',
    "nan": '{"pid": NaN, "state": "running", "message": "", "since": NaN, "started": Infinity, "nodes": []}',
    "newlines": '{"pid": "1\\n2", "state": "run\\nning", "run_id": "a\\nb", "node": {"name": "a\\nb"}}',
    "empty": "",
}

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


def make_bad_file(path: Path, kind: str) -> None:
    """Make one of BAD_FILES; link: to a file `target` next to it with the text `mine`."""
    if path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        (path.parent / "target").write_text("mine")
        path.symlink_to(path.parent / "target")
    elif kind == "dangling link":
        path.symlink_to(path.parent / "nowhere" / "else")
    elif kind == "directory":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "huge":
        with path.open("wb") as stream:
            stream.truncate(2**30)
    elif kind == "not utf-8":
        path.write_bytes(b'{"state": "\xff"}')
    else:
        path.write_text(TEXTS[kind], encoding="utf-8")


@contextlib.contextmanager
def nested_directories(path: Path, depth: int) -> Iterator[None]:
    """Create nested directories deeper than the maximum length of a path; in the end, rm removes the remaining ones.

    pytest could not: shutil.rmtree recurses.
    """
    path.mkdir()
    current = os.open(path, os.O_RDONLY)
    for _level in range(depth):
        os.mkdir("d", dir_fd=current)
        inner = os.open("d", os.O_RDONLY, dir_fd=current)
        os.close(current)
        current = inner
    os.close(current)
    try:
        yield
    finally:
        subprocess.run(["/bin/rm", "-rf", "--", str(path)], check=True)
