"""A misspelt variable of a role is refused with the most similar valid name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._command_line.role_variables import (
    describe_overridden_names,
    describe_unknown_variables,
    documented_options,
    find_wrong_values,
    misspelled_prefixes,
    misspelled_short_names,
    nearest_name,
    read_entry_points,
    unknown_variables,
)

CHECKOUT = Path(__file__).resolve().parents[4]
LAUNCH = documented_options(CHECKOUT / "roles" / "launch")
SHORT = ("nnodes", "nproc_per_node", "run_id", "detach", "replace", "nodes")


@pytest.mark.parametrize(
    ("misspelt", "suggestion"),
    [
        ("launch_enviroment", "launch_environment"),
        ("launch_masterport", "launch_master_port"),
        ("launch_nproc", "launch_nproc_per_node"),
        ("launch_rdvz_backend", "launch_rdzv_backend"),
        ("launch_working_dir", "launch_working_directory"),
        ("launch_arguments", "launch_args"),
        ("launch_qqqqqqq", ""),
    ],
)
def test_nearest_variable_name_is_suggested(misspelt: str, suggestion: str) -> None:
    assert nearest_name(misspelt, LAUNCH, "launch_") == suggestion


def test_only_prefixed_variables_are_checked_and_hosts_are_named() -> None:
    unknown = unknown_variables(
        "launch_",
        {"launch_script"},
        {
            "node0": ["launch_script", "launch_scrpt", "__launch_plan", "launcher", "nodes"],
            "node1": ["launch_scrpt", "relaunch_x"],
        },
    )
    assert unknown == {"launch_scrpt": ["node0", "node1"]}


def test_values_are_validated_against_role_argument_spec() -> None:
    values = {"launch_launcher": "torchrn", "launch_master_port": "29500", "launch_rank": "of another entry point"}
    assert find_wrong_values(read_entry_points(CHECKOUT / "roles" / "launch")["main"], values.__getitem__, values) == [
        "value of launch_launcher must be one of: torchrun, env, deepspeed, mpirun, accelerate, got: torchrn"
    ]


def test_wrong_type_is_described_in_the_terms_of_yaml() -> None:
    main = read_entry_points(CHECKOUT / "roles" / "launch")["main"]
    values = {"launch_environment": ["A=1"]}
    assert find_wrong_values(main, values.__getitem__, values) == [
        "launch_environment is a list, but must be a dictionary"
    ]


def test_string_for_a_dict_variable_is_refused_without_showing_it() -> None:
    values = {"launch_environment": "TOKEN=s3cr3t", "launch_accelerate_config": {}}
    (output,) = find_wrong_values(read_entry_points(CHECKOUT / "roles" / "launch")["main"], values.__getitem__, values)
    assert output.startswith("launch_environment is a string")
    assert """-e '{"launch_environment": {"NAME": "value"}}'""" in output
    assert "s3cr3t" not in output


def test_ec2_host_variable_launch_time_is_accepted() -> None:
    assert unknown_variables("launch_", LAUNCH, {"node0": ["launch_time", "launch_tine"]}) == {"launch_tine": ["node0"]}


@pytest.mark.parametrize("name", ["nnode", "nnnodes", "runid", "run_di", "nprocs_per_node", "detatch", "repalce"])
def test_misspelt_short_name_is_refused(name: str) -> None:
    assert misspelled_short_names(SHORT, [name])[name] in SHORT


@pytest.mark.parametrize("name", [*SHORT, "rank", "node_count", "epochs", "run", "ansible_user", "json"])
def test_unrelated_extra_variable_is_accepted(name: str) -> None:
    assert misspelled_short_names(SHORT, [name]) == {}


def test_error_names_the_source_of_the_variable() -> None:
    output = describe_unknown_variables(
        "launch_", {"launch_script"}, {"a": ["launch_scrip", "launch_x"]}, ["nnodes"], ["launch_x", "nnode"]
    )
    assert output == [
        "launch_scrip is set (for a), but the role has no such variable; did you mean launch_script?",
        "launch_x is set (with -e), but the role has no such variable",
        "nnode is set (with -e), but nothing reads it; did you mean nnodes?",
    ]


@pytest.mark.parametrize("name", ["lanch_script", "launchscript", "laucnh_environment", "lauch_run_id"])
def test_an_extra_variable_with_a_misspelt_prefix_is_refused(name: str) -> None:
    suggestion = misspelled_prefixes("launch_", LAUNCH, [name])[name]
    assert suggestion in LAUNCH
    assert describe_unknown_variables("launch_", LAUNCH, {}, [], [name]) == [
        f"{name} is set (with -e), but nothing reads it; did you mean {suggestion}?"
    ]
    assert describe_unknown_variables("launch_", LAUNCH, {}, [], [name], lambda: {name}) == [], "another role knows it"


@pytest.mark.parametrize(
    ("short", "value", "effective", "message"),
    [
        ("nnodes", "4", 4, ""),
        ("nnodes", "4", None, ""),
        ("detach", "yes", True, ""),
        ("detach", "false", True, "detach is false (with -e), but launch_detach is set to True"),
        ("nproc_per_node", "2", 8, "nproc_per_node is 2 (with -e), but launch_nproc_per_node is set to 8"),
        ("nodes", "a,b", "c", ""),  # not a variable of the role
    ],
)
def test_short_name_without_effect_is_refused(short: str, value: str, effective: object, message: str) -> None:
    result = describe_overridden_names(
        CHECKOUT / "roles" / "launch", SHORT, {short: value, "other": "1"}, lambda _name: effective
    )
    assert bool(result) == bool(message) and all(message in item for item in result)


def test_variables_of_one_role_are_not_misspellings_of_another() -> None:
    """The same applies to names that users commonly give their own variables."""
    roles = {
        path.parents[1]: documented_options(path.parents[1])
        for path in CHECKOUT.glob("roles/*/meta/argument_specs.yml")
    }
    everything = set().union(*roles.values())
    common_names = [
        *SHORT,
        "script",
        "python",
        "user",
        "group",
        "port",
        "code_dir",
        "torch_home",
        "batch_size",
        "site_group",
    ]
    for role, options in roles.items():
        names = [*(everything - options), *common_names]
        assert describe_unknown_variables(f"{role.name}_", options, {}, [], names, lambda: everything) == [], role.name


@given(st.sets(st.sampled_from(sorted(LAUNCH))))
def test_documented_variables_are_never_refused(names: set[str]) -> None:
    assert describe_unknown_variables("launch_", LAUNCH, {"a": names}, SHORT, names) == []


@pytest.mark.parametrize("role", sorted(path.parent.name for path in (CHECKOUT / "roles").glob("*/defaults")))
def test_each_role_default_is_in_its_argument_spec(role: str) -> None:
    defaults = yaml.safe_load((CHECKOUT / "roles" / role / "defaults" / "main.yml").read_text())
    assert set(defaults) <= documented_options(CHECKOUT / "roles" / role)


PLAYBOOK = f"""
- hosts: training
  gather_facts: false
  tasks:
    - muster.training.known_variables:
        role_path: {CHECKOUT}/roles/launch
        short_names: [nnodes]
      run_once: true
    - ansible.builtin.debug:
        msg: the names are right
"""
INVENTORY = """
training:
  hosts:
    node0: {launch_python: python3, my_launch_pad: 1}
    node1: {%s: python3}
  vars:
    ansible_connection: local
    launch_nnodes: 2
"""


@pytest.mark.parametrize(
    ("node1_variable", "extra", "message"),
    [
        ("launch_python", "nnodes=2", ""),
        ("launch_pyton", "nnodes=2", "launch_pyton is set (for node1), but the role has no such variable"),
        ("launch_python", "nnode=2", "nnode is set (with -e), but nothing reads it; did you mean nnodes?"),
        (
            "launch_python",
            "launhc_nnodes=2",
            "launhc_nnodes is set (with -e), but nothing reads it; did you mean launch_nnodes?",
        ),
        ("launch_python", "launch_nnode=2", "launch_nnode is set (with -e), but the role has no such variable"),
        (
            "launch_python",
            "nnodes=4",
            "nnodes is 4 (with -e), but launch_nnodes is set to 2, which takes precedence: use -e launch_nnodes=4",
        ),
    ],
)
def test_ansible_stops_at_a_misspelt_variable_of_any_host(
    tmp_path: Path, node1_variable: str, extra: str, message: str
) -> None:
    namespace = tmp_path / "ansible_collections" / "muster"
    namespace.mkdir(parents=True)
    (namespace / "training").symlink_to(CHECKOUT)
    (tmp_path / "play.yml").write_text(PLAYBOOK)
    (tmp_path / "hosts.yml").write_text(INVENTORY % node1_variable)
    completed = subprocess.run(
        [Path(sys.executable).with_name("ansible-playbook"), "-i", "hosts.yml", "play.yml", "-e", extra],
        check=False,
        cwd=tmp_path,
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(tmp_path), "ANSIBLE_NOCOLOR": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert (completed.returncode != 0) == bool(message), completed.stdout + completed.stderr
    assert message in completed.stdout + completed.stderr
    assert ("the names are right" in completed.stdout) == (not message)
