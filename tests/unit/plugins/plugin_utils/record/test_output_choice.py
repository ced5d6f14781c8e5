"""Selection of output files to fetch from a run's nodes, and their parts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._record import output_choice
from ansible_collections.muster.training.plugins.plugin_utils._record.output_choice import (
    OutputFile,
    PendingFile,
    batch_parts,
    deduplicate,
    find_missing,
    is_safe,
    names_to_compare,
    parse_outputs,
    partial_path,
)


@pytest.mark.parametrize("name", ["run/last.pt", "work/out/.hidden/a b", "root/scratch/x", "run/..a", "run/\u00e9"])
def test_name_inside_the_directory_is_safe(name: str) -> None:
    assert is_safe(name)


@pytest.mark.parametrize(
    "name",
    [
        *(
            None,
            7,
            "",
            "run",
            "run/",
            "/etc/passwd",
            "run//etc/passwd",
            "run/../x",
            "run/a/../../../x",
            "run/.",
            "run/a/",
        ),
        *("other/x", "../run/x", "run/a\0b", "run/" + "x/" * 3000 + "x", "run/" + "x/" * 300 + "x", "run/\udcff"),
    ],
)
def test_unsafe_name_is_refused(name: object) -> None:
    assert not is_safe(name)
    files, refused = parse_outputs([{"name": name, "size": 1, "mtime": 1}])
    assert files == [] and len(refused) == 1 and refused[0].isascii() and len(refused[0]) <= 200


@pytest.mark.parametrize(
    "entry",
    [
        {"name": "run/a", "size": -1, "mtime": 1},
        {"name": "run/a", "size": True, "mtime": 1},
        {"name": "run/a", "size": "1", "mtime": 1},
        {"name": "run/a", "size": 1, "mtime": 2**63},
        {"name": "run/a", "size": 1},
        "run/a",
        None,
    ],
)
def test_invalid_file_entry_is_refused(entry: Any) -> None:
    assert parse_outputs([entry])[0] == [] and len(parse_outputs([entry])[1]) == 1
    assert parse_outputs(entry if isinstance(entry, dict) else None) == ([], [])


def test_duplicate_name_is_refused() -> None:
    item = {"name": "run/a", "size": 1, "mtime": 1}
    assert parse_outputs([item, {**item, "size": 2}]) == ([OutputFile("run/a", 1, 1)], ["'run/a'"])


A, B, C = OutputFile("run/a", 5, 1), OutputFile("run/a", 6, 1), OutputFile("run/b", 5, 2)


def test_same_file_on_several_nodes_is_fetched_once_from_the_first() -> None:
    files = {"n0": [A, C], "n1": [A], "n2": [B, C]}
    assert names_to_compare(files) == {"n0": ["run/a", "run/b"], "n1": ["run/a"], "n2": ["run/b"]}
    same: dict[str, dict[str, Any]] = {"n0": {"run/a": "x", "run/b": "y"}, "n1": {"run/a": "x"}, "n2": {"run/b": "y"}}
    assert deduplicate(files, same) == {"n0": [A, C], "n1": [], "n2": [B]}
    different: dict[str, dict[str, Any]] = {**same, "n1": {"run/a": "z"}, "n2": {"run/b": None}}
    assert deduplicate(files, different) == files, "other content, or not known"
    assert deduplicate(files, {}) == files


def test_complete_file_is_not_fetched_again_and_partial_file_resumes(tmp_path: Path) -> None:
    assert find_missing(tmp_path, [A, C]) == [PendingFile(A, 0), PendingFile(C, 0)]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "a").write_bytes(b"12345")
    assert find_missing(tmp_path, [A]) == [PendingFile(A, 0)], "changed since"
    os.utime(tmp_path / "run" / "a", ns=(1, 1))
    assert find_missing(tmp_path, [A]) == [] and find_missing(tmp_path, [B]) == [PendingFile(B, 0)]
    partial_path(tmp_path, C).write_bytes(b"123")
    assert find_missing(tmp_path, [C]) == [PendingFile(C, 3)]
    assert find_missing(tmp_path, [C._replace(mtime=3)]) == [PendingFile(C._replace(mtime=3), 0)], (
        "a part of another version"
    )
    partial_path(tmp_path, C).write_bytes(b"123456")
    assert find_missing(tmp_path, [C]) == [PendingFile(C, 0)], "more than there is"


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=20), st.integers(1, 30), st.integers(1, 5))
def test_pieces_cover_all_missing_bytes_within_the_limits_of_a_call(
    sizes: list[tuple[int, int]], most: int, parts: int
) -> None:
    before = output_choice.MAX_PARTS
    output_choice.MAX_PARTS = parts
    try:
        pending = [
            PendingFile(OutputFile(f"run/{n}", size, 0), min(have, size)) for n, (size, have) in enumerate(sizes)
        ]
        calls = batch_parts(pending, most)
    finally:
        output_choice.MAX_PARTS = before
    assert all(call and len(call) <= parts and sum(length for *_file, length in call) <= most for call in calls)
    came: dict[str, int] = {item.output.name: item.fetched for item in pending}
    completed = set()
    for output, offset, length in (part for call in calls for part in call):
        assert offset == came[output.name] and (length > 0 or offset == output.size)
        came[output.name] += length
        if came[output.name] == output.size:
            completed.add(output.name)
    assert completed == set(came) and all(came[item.output.name] == item.output.size for item in pending)
