"""User input for a job: numbers of nodes, run IDs, and environments."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._plan.job import (
    SAFE_RUN_ID,
    Job,
    environment_problems,
    parse_nnodes,
)

JOB = Job(
    run_id="first",
    launcher="torchrun",
    rdzv_backend="static",
    script="train.py",
    module="",
    args=("--lr", "0.1"),
    interpreter="python3",
    working_directory="",
    variables=(),
    master_port=29500,
    lifeline_port=29499,
    min_nnodes=None,
    max_restarts=0,
    start_timeout=120,
    silence_timeout=10,
    stop_grace=5,
)


@pytest.mark.parametrize(
    ("given_text", "expected"),
    [(4, (4, 4, False)), ("4", (4, 4, False)), ("2:4", (2, 4, True)), ("4:4", (4, 4, True)), ("007", (7, 7, False))],
)
def test_nnodes_can_be_a_number_or_a_range(given_text: object, expected: tuple[int, int, bool]) -> None:
    assert parse_nnodes(given_text) == expected


@pytest.mark.parametrize(
    "text", [0, "0", "0:2", "", None, "two", "2:", ":2", "2:3:4", "-1", "1.5", " 2", "2\n", True, "٢", "1" * 7]
)
def test_invalid_nnodes_is_refused_and_quoted(text: object) -> None:
    with pytest.raises(ValueError, match="nnodes is .*; use a number of nodes") as caught:
        parse_nnodes(text)
    assert ascii(text)[:60] in str(caught.value)


@pytest.mark.parametrize(("text", "right"), [("2:1", "1:2"), ("4:2", "2:4"), ("3:0", "1:3")])
def test_reversed_range_is_refused_with_a_correction(text: str, right: str) -> None:
    least, most = text.split(":")
    message = (
        f"nnodes is '{text}'; the minimum {least} is greater than the maximum {most}. Use MIN:MAX, such as {right}"
    )
    with pytest.raises(ValueError, match=message):
        parse_nnodes(text)


@given(st.integers(1, 999999), st.integers(0, 1000))
def test_a_range_is_read_as_written(least: int, more: int) -> None:
    most = min(least + more, 999999)
    assert parse_nnodes(f"{least}:{most}") == (least, most, True)


@pytest.mark.parametrize("name", ["a", "A1", "7", "train-20261121", "a.b_c-d", "x" * 63])
def test_safe_run_ids_are_accepted(name: str) -> None:
    assert SAFE_RUN_ID.match(name)


@pytest.mark.parametrize(
    "name", ["", "-a", ".a", "..", "_a", "a/b", "a b", "a\n", "a\0", "é", "x" * 64, "$(id)", "a;b", "a%b", "a@b", "a'b"]
)
def test_unsafe_run_ids_are_refused(name: str) -> None:
    assert not SAFE_RUN_ID.match(name)


@given(st.text(max_size=80))
def test_safe_run_id_is_safe_as_path_unit_and_shell_word(name: str) -> None:
    if SAFE_RUN_ID.match(name):
        assert name.isascii() and name.isprintable() and len(name) <= 63
        assert not set(name) & set(" /\\'\"$`;&|<>*?[]{}()!~#%@:,=")
        assert name[0] not in "-."


@pytest.mark.parametrize(
    ("environment", "expected_text"),
    [
        ({"1A": "x"}, "'1A' is not a valid name of an environment variable"),
        ({"": "x"}, "'' is not a valid name"),
        ({"A B": "x"}, "'A B' is not a valid name"),
        ({"A=B": "x"}, "'A=B' is not a valid name"),
        ({"A\n": "x"}, "is not a valid name"),
        ({"ÄÖ": "x"}, "is not a valid name"),
        ({"RANK": "0"}, "RANK is set by the launcher from the rank table"),
        ({"LOCAL_RANK": "0"}, "LOCAL_RANK is set by the launcher"),
        ({"MASTER_ADDR": "x"}, "MASTER_ADDR is set by the launcher"),
        ({"PET_NNODES": "2"}, "PET_NNODES is set by the launcher"),
        ({"TORCHELASTIC_RUN_ID": "2"}, "TORCHELASTIC_RUN_ID is set by the launcher"),
        ({"MUSTER_RUN_DIRECTORY": "/"}, "MUSTER_RUN_DIRECTORY is set by the launcher"),
        ({"A": True}, "A is true, false or null"),
        ({"A": None}, "A is true, false or null"),
        ({"A": ["x"]}, "A is a list or dictionary"),
        ({"A": {"x": 1}}, "A is a list or dictionary"),
        ({"A": "x\0y"}, "A contains a NUL character"),
    ],
)
def test_invalid_environment_variables_are_reported(environment: dict[str, object], expected_text: str) -> None:
    (problem,) = environment_problems(environment)
    assert expected_text in problem


def test_ordinary_environment_has_no_problems() -> None:
    assert (
        environment_problems({"NCCL_DEBUG": "INFO", "_X": "a b\nc", "EMPTY": "", "N": 4, "F": 0.5, "RANKS": "x"}) == []
    )


@given(st.dictionaries(st.text(max_size=5), st.text(min_size=9, max_size=20).map("s3cr3t".__add__), max_size=4))
def test_environment_values_are_never_shown(environment: dict[str, Any]) -> None:
    assert not any("s3cr3t" in problem for problem in environment_problems(environment))


def test_program_is_a_script_module_or_executable() -> None:
    assert JOB.program_argv("python") == ["python", "-u", "train.py"]
    fields = {name: getattr(JOB, name) for name in JOB.__dataclass_fields__}
    assert Job(**{**fields, "script": "", "module": "a.b"}).program_argv("python") == ["python", "-u", "-m", "a.b"]
    assert Job(**{**fields, "script": "./hello", "no_python": True}).program_argv("python") == ["./hello"]
    assert not JOB.elastic
    assert Job(**{**fields, "min_nnodes": 2}).elastic
