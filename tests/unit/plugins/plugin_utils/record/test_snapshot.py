"""Snapshots of runs, and their differences."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._record.repeat import (
    choose_restoration,
    incomplete_settings,
    layers_to_restore,
    nodes_to_use,
    seed_note,
    setting_names,
    settings_to_use,
    unknown_variables,
)
from ansible_collections.muster.training.plugins.plugin_utils._record.snapshot import (
    NO_CODE,
    JobInputs,
    compare_snapshots,
    environment_digest,
    make_snapshot,
    read_environment,
)

LOCK: dict[str, Any] = {
    "layer": "requirements",
    "key": "c" * 64,
    "order": 20,
    "python": "3.11.7",
    "packages": [{"name": "six", "version": "1.0"}],
    "files": [
        {"kind": "wheel", "file": "six-1.0-py3-none-any.whl", "sha256": "a" * 64},
        {"kind": "python", "file": "cpython-3.11.tar", "sha256": "b" * 64},
    ],
}
SECRET = "sekret-value"


def node_facts(**changes: Any) -> dict[str, Any]:
    """Return the facts of a node, with changes to its provenance."""
    environment = {
        "python": "3.11.7",
        "packages": {"six": "1.0"},
        "home": "/opt/muster/envs/toy",
        "manager": "uv",
        "locks": [LOCK],
    }
    data = {"path": "/data", "files": 2, "bytes": 10, "digest": "d1"}
    provenance = {"environment": environment, "inputs": {"data": data}, "repositories": {"org/model": "c" * 40}}
    return {"glibc": "2.36", "provenance": copy.deepcopy({**provenance, **changes})}


def planned(names: tuple[str, ...] = ("gpu0", "gpu1"), driver: str = "550") -> dict[str, Any]:
    hardware = {"gpu": "H100", "gpus": 8, "memory_mib": 81559, "driver": driver}
    nodes = [{"name": name, "slots": 8, "hardware": hardware} for name in names]
    return {"nodes": nodes, "world_size": 16, "arguments": ["--seed", "7", "--model", "org/model"], "checkpoint": ""}


def snapshot(**more: Any) -> Any:
    arguments: dict[str, Any] = {
        "settings": {"launch_args": ["--seed", "7"], "launch_script": "train.py"},
        "environment": {"API_TOKEN": SECRET, "NCCL_DEBUG": "INFO", "PYTHONHASHSEED": 3},
        "code": NO_CODE,
    }
    plan = more.pop("plan", planned())
    facts = more.pop("facts", {"gpu0": node_facts(), "gpu1": node_facts()})
    return make_snapshot(plan, facts, JobInputs(**{**arguments, **more}))


def rows(before: Any, after: Any) -> list[tuple[str, str]]:
    return [(row.part, row.name) for row in compare_snapshots(before, after)]


def test_snapshot_has_seeds_and_models_and_no_secret() -> None:
    recorded = snapshot()
    assert SECRET not in json.dumps(recorded)
    assert recorded["variables"] == ["API_TOKEN", "NCCL_DEBUG", "PYTHONHASHSEED"]
    assert recorded["seeds"] == {"PYTHONHASHSEED": "3", "--seed": "7"}
    assert recorded["repositories"] == {"org/model": "c" * 40}
    assert seed_note(recorded) == "seeds: PYTHONHASHSEED 3, --seed 7"
    assert seed_note({}).startswith("no seed")


def test_settings_and_seeds_are_kept_without_secrets() -> None:
    arguments = ["--api-key", SECRET, f"--wandb_api_key={SECRET}", "--tokenizer-path", "/data/tok", "--max-tokens", "9"]
    settings = {
        "launch_args": [*arguments, f"model.password={SECRET}", "--url", f"https://me:{SECRET}@host", "a\nb"],
        "launch_container_options": ["-e", f"API_TOKEN={SECRET}", "-v", "/data/tokenized:/data"],
        "launch_setup": f"export DB_PASSWORD={SECRET}; run",
        "launch_extra": {"api_key": SECRET, "list": [{"secret": SECRET}], "steps": 3},
    }
    seeds = {"WALLET_SEED": "abandon abandon", "DATA_SEED": "5", "NCCL_X_TOKEN": SECRET}
    recorded = snapshot(
        settings=settings, environment=seeds, plan={**planned(), "arguments": ["--wallet-seed", "abandon"]}
    )
    assert SECRET not in json.dumps(recorded) and "abandon" not in json.dumps(recorded)
    args = recorded["settings"]["launch_args"]
    assert args[3:7] == arguments[3:] and args[-1] == "a\nb" and len(args) == len(settings["launch_args"])
    assert recorded["settings"]["launch_container_options"][2:] == ["-v", "/data/tokenized:/data"]
    assert recorded["seeds"] == {"DATA_SEED": "5"}
    assert incomplete_settings(recorded["settings"]) == [*settings], "they cannot be used again"
    assert incomplete_settings(snapshot()["settings"]) == []
    older = {**recorded, "settings": settings}
    changed = {**older, "settings": {**settings, "launch_args": [*arguments, "x"]}}
    assert compare_snapshots(older, recorded) == []
    assert SECRET not in str(compare_snapshots(older, changed)) and compare_snapshots(older, changed)


@pytest.mark.parametrize(
    ("name", "before", "after", "is_same"),
    [
        ("launch_nnodes", "2", 2, True),
        ("launch_nnodes", "2", 3, False),
        ("launch_time_limit", 0, 0.0, True),
        ("python_env_python", "3.10", 3.1, False),
        ("launch_debug", True, "yes", True),
        ("launch_debug", False, "yes", False),
        ("launch_debug", True, "train.py", False),
        ("launch_debug", True, [], False),
        ("launch_gpus", [0, 1], "0,1", True),
        ("launch_gpus", [0], 0, True),
        ("launch_gpus", [0, 1], "0,2", False),
        ("launch_outputs", [], "", True),
        ("launch_args", ["--epochs", "3"], ["--epochs", 3], True),
        ("launch_args", ["--note", "a b"], "--note 'a b'", True),
        ("launch_args", ["--note"], "--note '", False),
        ("launch_args", ["--flag", "yes"], ["--flag", "true"], False),
        ("launch_accelerate_config", {"zero_stage": 2}, {"zero_stage": "2"}, True),
    ],
)
def test_settings_are_compared_by_their_meaning(name: str, before: Any, after: Any, is_same: bool) -> None:
    expected = [] if is_same else [("setting", name)]
    assert rows(snapshot(settings={name: before}), snapshot(settings={name: after})) == expected
    assert rows(snapshot(settings={name: after}), snapshot(settings={name: before})) == expected


def test_equal_runs_have_no_differences() -> None:
    assert compare_snapshots(snapshot(), snapshot()) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"settings": {"launch_args": ["--seed", "8"], "launch_script": "train.py"}}, ("setting", "launch_args")),
        ({"environment": {"API_TOKEN": SECRET, "NCCL_DEBUG": "WARN", "PYTHONHASHSEED": 3}}, ("setting", "NCCL_DEBUG")),
        ({"environment": {"NCCL_DEBUG": "INFO", "PYTHONHASHSEED": 3}}, ("setting", "API_TOKEN")),
        ({"plan": planned(driver="570")}, ("node", "node 0: driver")),
        ({"plan": {**planned(), "checkpoint": "/c/step-5"}}, ("checkpoint", "path")),
    ],
)
def test_difference_is_reported(changes: dict[str, Any], expected: tuple[str, str]) -> None:
    assert expected in rows(snapshot(), snapshot(**changes))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"inputs": {"data": {"path": "/data", "files": 3, "bytes": 11, "digest": "d2"}}}, ("data", "data")),
        ({"repositories": {"org/model": "e" * 40}}, ("data", "org/model")),
        ({"inputs": {}}, ("data", "data")),
    ],
)
def test_differing_inputs_are_named(changes: dict[str, Any], expected: tuple[str, str]) -> None:
    facts = {"gpu0": node_facts(**changes), "gpu1": node_facts(**changes)}
    assert rows(snapshot(), snapshot(facts=facts)) == [expected]
    one_node = {"gpu0": node_facts(), "gpu1": node_facts(inputs={"data": {"path": "/data", "digest": "d3"}})}
    assert rows(snapshot(), snapshot(facts=one_node)) == [("data", "data")], "on the second node alone"


def test_different_machines_of_the_same_kind_are_not_a_relevant_difference() -> None:
    differences = compare_snapshots(snapshot(), snapshot(plan=planned(("new0", "new1")), facts={}))
    names = [row for row in differences if row.name.endswith(": name")]
    assert len(names) == 2 and not any(row.is_material for row in names)


def test_package_with_the_same_version_from_a_different_file_is_a_difference() -> None:
    facts = node_facts()
    facts["provenance"]["environment"]["locks"][0]["files"][0]["sha256"] = "f" * 64
    assert rows(snapshot(), snapshot(facts={"gpu0": facts, "gpu1": facts})) == [("package", "six-1.0-py3-none-any.whl")]
    packed_again = node_facts()
    packed_again["provenance"]["environment"]["locks"][0]["files"][1]["sha256"] = "f" * 64
    facts_by_node = {"gpu0": packed_again, "gpu1": packed_again}
    assert rows(snapshot(), snapshot(facts=facts_by_node)) == [], "an interpreter's archive has times in it"


def test_differing_environment_on_a_second_node_is_named() -> None:
    second = node_facts()
    second["provenance"]["environment"]["packages"] = {"six": "2.0"}
    assert rows(snapshot(), snapshot(facts={"gpu0": node_facts(), "gpu1": second})) == [
        ("package", "gpu1: environment")
    ]


@pytest.mark.parametrize("hostile", [None, [], "x", {"environment": {"packages": [1], "locks": "no"}, "inputs": [2]}])
def test_hostile_facts_do_not_prevent_a_snapshot(hostile: Any) -> None:
    recorded = snapshot(facts={"gpu0": {"provenance": hostile}, "gpu1": node_facts()})
    assert recorded["environment"]["packages"] == {}
    compare_snapshots(snapshot(), recorded)
    compare_snapshots({"settings": [], "nodes": "x", "inputs": 3}, recorded)


# --- Repeating a run --------------------------------------------------------------------------------------------------


def test_settings_set_on_the_command_line_take_precedence() -> None:
    recorded = {"settings": {"launch_nnodes": 2, "launch_script": "train.py", "launch_args": ["a"], "other": 1}}
    assert settings_to_use(recorded, ["nnodes", "launch_args"]) == {"launch_script": "train.py", "launch_fitted": ""}
    assert {"launch_args", "launch_python", "launch_user"} <= {*setting_names().values()}
    assert "launch_environment" not in setting_names().values()
    assert "launch_debug_rank" not in setting_names().values(), "a repeated run waits for no debugger"


def test_nodes_must_be_the_same_or_equal_in_number() -> None:
    recorded = snapshot(settings={"launch_spares": "1", "launch_nnodes": ""})
    assert nodes_to_use(recorded, ["gpu1", "gpu0", "x"]) == {"nnodes": 1, "spares": 1, "names": ["gpu0", "gpu1"]}
    assert nodes_to_use(recorded, ["gpu0", "x"]) == {"nnodes": 1, "spares": 1, "names": []}
    assert nodes_to_use(snapshot(settings={"launch_nnodes": "1:2"}), [])["nnodes"] == "1:2"


def test_variables_without_a_value_are_named() -> None:
    assert unknown_variables(snapshot(), {}) == ["API_TOKEN"]
    assert unknown_variables(snapshot(), {"API_TOKEN": SECRET}) == []


def replies(**facts: Any) -> dict[str, Any]:
    return {name: {"facts": node} for name, node in facts.items()}


def without_environment() -> dict[str, Any]:
    return node_facts(environment={"python": "3.11.7", "packages": {}, "home": "", "manager": "", "locks": []})


def test_environment_is_restored_to_its_former_path_if_that_is_free() -> None:
    assert not choose_restoration(snapshot(), replies(a=node_facts(), b=node_facts()), "/opt/muster").needed
    restoration = choose_restoration(snapshot(), replies(a=node_facts(), b=without_environment()), "/opt/muster")
    assert restoration.needed and restoration.home == "/opt/muster/envs/toy"


def test_node_whose_lock_lists_fewer_wheels_has_the_same_environment() -> None:
    second = node_facts()
    second["provenance"]["environment"]["locks"] = []
    recorded = snapshot(facts={"gpu0": node_facts(), "gpu1": second})
    assert not choose_restoration(recorded, replies(a=node_facts(), b=second), "/opt/muster").needed
    assert compare_snapshots(recorded, recorded) == []
    assert recorded["nodes"][0]["packages"] == recorded["nodes"][1]["packages"] != ""
    second["provenance"]["environment"]["locks"] = [{**LOCK, "files": [{**LOCK["files"][0], "sha256": "f" * 64}]}]
    assert choose_restoration(recorded, replies(a=node_facts(), b=second), "/opt/muster").needed


def test_other_environments_stay_unchanged() -> None:
    different = node_facts()
    different["provenance"]["environment"]["packages"] = {"six": "2.0"}
    restoration = choose_restoration(snapshot(), replies(a=different, b=without_environment()), "/opt/muster")
    digest = environment_digest(read_environment(node_facts()))
    assert restoration.home == f"/opt/muster/envs/like-{digest[:12]}"


@pytest.mark.parametrize(
    ("home", "expected"),
    [
        ("/root/.ssh", "like"),
        ("/opt/muster/envs", "like"),
        ("/opt/muster/envs/../../x", "like"),
        ("/opt/muster/envs/..", "like"),
        ("/opt/muster/envs/a/b", "like"),
        ("/opt/muster/../x", "like"),
        ("/data/muster/envs/toy", "like"),
        ("/opt/muster", "/opt/muster"),
        ("/opt/muster/envs/My.project", "/opt/muster/envs/My.project"),
    ],
)
def test_environment_is_restored_only_where_the_role_creates_environments(home: str, expected: str) -> None:
    recorded = snapshot()
    recorded["environment"]["home"] = home
    restored = choose_restoration(recorded, replies(a=without_environment()), "/opt/muster").home
    assert restored == expected if expected != "like" else restored.startswith("/opt/muster/envs/like-")


@pytest.mark.parametrize(("field", "value"), [("home", ""), ("manager", "conda")])
def test_environment_that_cannot_be_restored_is_a_problem(field: str, value: str) -> None:
    recorded = snapshot()
    recorded["environment"][field] = value
    assert choose_restoration(recorded, replies(a=without_environment()), "/opt/muster").problem


@pytest.mark.parametrize(
    "change",
    [
        {"layer": "../base"},
        {"key": ""},
        {"python": "3.11\n"},
        {"files": [{"kind": "wheel", "file": "../../six-1.0.whl", "sha256": "a" * 64}]},
        {"files": [{"kind": "wheel", "file": "six-1.0.whl\n--index-url=x", "sha256": "a" * 64}]},
        {"files": [{"kind": "wheel", "file": "six-1.0.whl", "sha256": None}]},
        *(
            {"files": [{"kind": kind, "file": name, "sha256": "a" * 64}]}
            for kind, name in [
                ("wheel", "six-1.0%0A%2D%2Dindex%2Durl%20https%3A%2F%2Fx.example%0Ax-py3-none-any.whl"),
                ("wheel", "six%0A-1.0-py3-none-any.whl"),
                ("wheel", "six-1.0"),
                ("wheel", "six"),
                ("wheel", "six-1.1-py3-none-any.whl"),
                ("wheel", "other-1.0-py3-none-any.whl"),
                ("tool", "six-1.0-py3-none-any.whl"),
            ]
        ),
        {"editable": ["--target=/x"]},
        {"packages": [{"name": "-r", "version": "1"}]},
    ],
)
def test_lock_that_the_role_did_not_write_is_not_restored(change: dict[str, Any]) -> None:
    recorded = snapshot()
    recorded["environment"]["locks"][0].update(change)
    assert choose_restoration(recorded, replies(a=without_environment()), "/opt/muster").problem
    assert layers_to_restore(recorded, "/opt/muster") == []


def test_layers_include_their_lock() -> None:
    layers = layers_to_restore(snapshot(), "/opt/muster/envs/toy")
    assert [(layer["layer"], layer["python"], layer["lock"]["files"]) for layer in layers] == [
        ("requirements", "3.11.7", LOCK["files"])
    ]
