"""The plan of a node: command, environment and other contents of plan.json, for each launcher."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from ansible_collections.muster.training.plugins.module_utils._run.documents import GitCheckout, RunMachine
from ansible_collections.muster.training.plugins.module_utils._run.gpu_samples import HEADER
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import (
    HostSpec,
    RankTable,
    build_rank_table,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import Job
from ansible_collections.muster.training.plugins.plugin_utils._plan.launchers.torchrun_static import TORCHRUN
from ansible_collections.muster.training.plugins.plugin_utils._plan.machines import UNKNOWN_MACHINE
from ansible_collections.muster.training.plugins.plugin_utils._plan.plan import (
    build_node_plan,
    get_launcher,
    render_hostfiles,
    temporary_directory,
)
from tests.unit.generated import clusters
from tests.unit.supervised import make_job

FACTS = {
    "interpreter": "/opt/venv/bin/python",
    "interface": "ens5",
    "runs_directory": "/home/me/.muster/runs",
    "working_directory": {"path": "/srv/project"},
}
FOUR = build_rank_table([HostSpec("a", "10.0.0.9", 2), HostSpec("b", "10.0.0.10", 2)])
UNEQUAL = build_rank_table([HostSpec("a", "10.0.0.9", 2), HostSpec("b", "10.0.0.10", 1)])
SIX = build_rank_table([HostSpec("a", "fd00::9", 2), HostSpec("b", "fd00::10", 2)])
STATIC = make_job(run_id="first", launcher="torchrun", args=("--lr", "0.1"))
C10D = make_job(run_id="first", launcher="torchrun", rdzv_backend="c10d", module="project.train", script="")
ENV = make_job(run_id="first", launcher="env", args=("--lr", "0.1"))


def planned(job: Job, table: RankTable, rank: int, **facts: Any) -> dict[str, Any]:
    table = get_launcher(job).order(table)
    plan: Any = build_node_plan(job, table, table.nodes[rank], {**FACTS, **facts})
    return dict(plan)


def test_run_in_an_image_uses_the_interpreter_of_the_image() -> None:
    for interpreter, word in (("/opt/muster/env/bin/python:python3", "python3"), ("/opt/conda/bin/python", None)):
        job = make_job(run_id="first", image="torch:1", interpreter=interpreter)
        assert planned(job, FOUR, 0)["command"][0] == (word or interpreter)


def test_script_path_with_a_tilde_is_started_by_its_full_path() -> None:
    script = {"path": "/home/me/train.py"}
    command = planned(make_job(script="~/train.py", launcher="env"), FOUR, 0, script=script)["command"]
    assert "/home/me/train.py" in command and not any("~" in word for word in command)


# --- Commands ---------------------------------------------------------------------------------------------------------

SHARED = ["--rdzv-id=first", "--max-restarts=0", "--monitor-interval=0.1"]


def rendezvous(job: Job, table: RankTable, rank: int) -> list[str]:
    """Return the options between the launcher and the number of processes."""
    command: list[str] = planned(job, table, rank)["command"]
    assert command[:3] == ["/opt/venv/bin/python", "-c", TORCHRUN]
    end = next(index for index, word in enumerate(command) if word.startswith("--nproc-per-node="))
    assert command[end + 1 : end + 4] == SHARED
    assert command[end + 4 : end + 6] == [f"--log-dir=/home/me/.muster/runs/first/node{rank}/ranks", "--redirects=3"]
    return [*command[3 : end + 1]]


def test_garbage_collection_is_off_only_while_torch_is_imported(tmp_path: Path) -> None:
    module = tmp_path / "torch" / "distributed" / "run.py"
    module.parent.mkdir(parents=True)
    for package in (module.parent, module.parent.parent):  # otherwise an installed torch takes precedence
        (package / "__init__.py").touch()
    module.write_text(
        "import gc, sys\nstate = [gc.isenabled()]\n"
        "def main(): print(*state, gc.isenabled(), gc.get_freeze_count() > 0, *sys.argv)\n"
    )
    arguments = [sys.executable, "-c", TORCHRUN, "--nnodes=2", "--", "train.py"]
    completed = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=300)
    assert completed.stdout == "False True True torchrun --nnodes=2 -- train.py\n"


@pytest.mark.parametrize(
    ("table", "rank", "options"),
    [
        (FOUR, 0, ["--node-rank=0", "--rdzv-backend=static", "--master-addr=10.0.0.9", "--nproc-per-node=2"]),
        (FOUR, 1, ["--node-rank=1", "--rdzv-backend=static", "--master-addr=10.0.0.9", "--nproc-per-node=2"]),
        (UNEQUAL, 1, ["--node-rank=1", "--rdzv-backend=static", "--master-addr=10.0.0.9", "--nproc-per-node=1"]),
        (SIX, 1, ["--node-rank=1", "--rdzv-backend=static", "--master-addr=[fd00::9]", "--nproc-per-node=2"]),
    ],
)
def test_static_rendezvous_options_of_torchrun(table: RankTable, rank: int, options: list[str]) -> None:
    *most, processes = options
    assert rendezvous(STATIC, table, rank) == [
        "--nnodes=2",
        *most,
        "--master-port=29500",
        "--rdzv-conf=timeout=120",
        processes,
    ]


@pytest.mark.parametrize(
    ("table", "rank", "least", "nnodes", "endpoint", "local"),
    [
        # 10.0.0.10 sorts before 10.0.0.9, so b is the first
        (FOUR, 0, None, "2:2", "10.0.0.10:29500", "10.0.0.10"),
        (FOUR, 1, None, "2:2", "10.0.0.10:29500", "10.0.0.9"),
        (FOUR, 1, 1, "1:2", "10.0.0.10:29500", "10.0.0.9"),
        (SIX, 0, 2, "2:2", "[fd00::10]:29500", "fd00::10"),
    ],
)
def test_c10d_rendezvous_options_of_torchrun(  # noqa: PLR0913
    table: RankTable, rank: int, least: int | None, nnodes: str, endpoint: str, local: str
) -> None:
    job = make_job(**{**vars(C10D), "min_nnodes": least})
    assert rendezvous(job, table, rank) == [
        f"--nnodes={nnodes}",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={endpoint}",
        f"--rdzv-conf=is_host={int(rank == 0)},join_timeout=120,read_timeout=120",
        f"--local-addr={local}",
        "--nproc-per-node=2",
    ]


def test_c10d_node_order_applies_to_the_whole_plan() -> None:
    plan = planned(C10D, FOUR, 0)
    assert plan["node"] == {"name": "b", "address": "10.0.0.10", "slots": 2, "node_rank": 0, "first_rank": 0}
    assert plan["lifeline"] == {"address": "10.0.0.10", "port": 29499}
    assert [node["name"] for node in plan["nodes"]] == ["b", "a"]


def test_torchrun_command_ends_with_the_program_and_its_arguments() -> None:
    """The program follows "--"; otherwise argparse would consume the first "--" among its arguments."""
    assert planned(STATIC, FOUR, 0)["command"][-5:] == ["--redirects=3", "--", "job.py", "--lr", "0.1"]
    assert planned(C10D, FOUR, 0)["command"][-4:] == ["--redirects=3", "-m", "--", "project.train"]


def test_env_launcher_passes_the_rendezvous_in_the_environment() -> None:
    plan = planned(ENV, FOUR, 1)
    assert plan["command"] == ["/opt/venv/bin/python", "-u", "job.py", "--lr", "0.1"]
    assert plan["environment"] == {
        "MASTER_ADDR": "10.0.0.9",
        "MASTER_PORT": "29500",
        "NODE_RANK": "1",
        "WORLD_SIZE": "4",
        "NCCL_SOCKET_IFNAME": "=ens5",
        "NCCL_SOCKET_FAMILY": "AF_INET",
        "GLOO_SOCKET_IFNAME": "ens5",
        "TP_SOCKET_IFNAME": "ens5",
        "TORCH_FR_DUMP_TEMP_FILE": "/home/me/.muster/runs/first/node1/flight_recorder_rank_",
        "PYTHONUNBUFFERED": "1",
        "MUSTER_RUN_ID": "first",
        "MUSTER_ATTEMPT": "0",
        "MUSTER_NOTICE_FILE": "/home/me/.muster/runs/first/node1/notice.json",
    }


@pytest.mark.parametrize("job", [STATIC, C10D])
def test_torchrun_gets_network_variables_but_none_that_it_sets_itself(job: Job) -> None:
    environment = planned(job, FOUR, 1, interface="ib0")["environment"]
    assert environment["NCCL_SOCKET_IFNAME"] == "=ib0"
    assert environment["NCCL_SOCKET_FAMILY"] == "AF_INET"
    assert planned(job, SIX, 1)["environment"]["NCCL_SOCKET_FAMILY"] == "AF_INET6"
    assert environment["GLOO_SOCKET_IFNAME"] == environment["TP_SOCKET_IFNAME"] == "ib0"
    assert environment["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] == "5"
    assert not {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} & set(environment)


# --- Launcher limits --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "table", "arguments"),
    [
        ({"launcher": "torchrun", "min_nnodes": 1}, FOUR, ["needs launch_rdzv_backend: c10d"]),
        ({"launcher": "env", "min_nnodes": 1}, FOUR, ["needs launch_launcher: torchrun"]),
        ({"launcher": "env", "max_restarts": 1}, FOUR, ["launch_max_restarts needs launch_launcher: torchrun"]),
        ({"launcher": "env"}, UNEQUAL, ["but they are a 2, b 1"]),
        ({"launcher": "env", "max_restarts": 1}, UNEQUAL, ["same number of slots", "launch_max_restarts"]),
        ({"launcher": "torchrun", "max_restarts": 3}, UNEQUAL, []),
        ({"launcher": "torchrun", "rdzv_backend": "c10d", "min_nnodes": 1, "max_restarts": 3}, UNEQUAL, []),
        ({"launcher": "env"}, FOUR, []),
    ],
)
def test_options_that_a_launcher_does_not_support_are_reported(
    job: dict[str, Any], table: RankTable, arguments: list[str]
) -> None:
    launch_job = make_job(**job)
    problems = get_launcher(launch_job).problems(launch_job, table)
    assert len(problems) == len(arguments)
    for problem, word in zip(problems, arguments, strict=True):
        assert word in problem


# --- The rest of the plan ---------------------------------------------------------------------------------------------


def test_plan_of_a_node_is_complete() -> None:
    job = make_job(run_id="first", variables=("WANDB_API_KEY", "A"), start_timeout=60, silence_timeout=20, stop_grace=7)
    job = replace(job, outputs=("out/*.pt",), metrics=("loss (?P<loss>.*)",))
    mounts = [{"point": "/data", "state": "ok"}, {"point": "/stale", "state": "stale"}]
    plan = planned(job, FOUR, 1, storage={"mounts": mounts})
    for key in ("command", "environment"):
        del plan[key]
    assert plan == {
        "run_id": "first",
        "unit": "muster-first",
        "supervision": "auto",
        "launcher": "env",
        "program": "job.py",
        "program_sha256": "",
        "arguments": [],
        "rank_logs": "launcher",
        "node": {"name": "b", "address": "10.0.0.10", "slots": 2, "node_rank": 1, "first_rank": 2},
        "nodes": [
            {"name": "a", "address": "10.0.0.9", "slots": 2, "first_rank": 0, **UNKNOWN_MACHINE},
            {"name": "b", "address": "10.0.0.10", "slots": 2, "first_rank": 2, **UNKNOWN_MACHINE},
        ],
        "code": None,
        "currency": "USD",
        "world_size": 4,
        "elastic": False,
        "max_restarts": 0,
        "min_nnodes": 2,
        "path_prefix": "/opt/venv/bin",
        "remote_start": False,
        "bare_launcher": False,
        "launcher_environment": {},
        "files": {},
        "programs": [],
        "working_directory": "/srv/project",
        "variables": ["A", "WANDB_API_KEY"],
        "temporary_directory": temporary_directory("first", 1),
        "mounts": ["/data"],
        "outputs": ["out/*.pt"],
        "checkpoints": "/home/me/.muster/runs/first/node1/checkpoints",
        "checkpoint": "",
        "resume_args": [],
        "metrics": ["loss (?P<loss>.*)"],
        "gpus": [],
        "gpu_samples": [],
        "log_limit": 10_000_000_000,
        "stacks": True,
        "on_hang": "report",
        "node_exporter_directory": "",
        "debugger": None,
        "lifeline": {"address": "10.0.0.9", "port": 29499},
        "timeouts": {"start": 60, "heartbeat": 2, "sample": 15, "silence": 20, "grace": 7, "hang": 600},
        "notices": {
            "signal": "SIGTERM",
            "grace": 100,
            "time_limit": 0.0,
            "cost_limit": 0.0,
            "stall_limit": 0.0,
            "metadata": {},
        },
    }


def test_plan_contains_machine_prices_code_and_currency() -> None:
    machine: RunMachine = {**UNKNOWN_MACHINE, "price_per_hour": 2.5}
    code: GitCheckout = {"commit": "a" * 40, "dirty": None}
    plan = build_node_plan(ENV, FOUR, FOUR.nodes[1], FACTS, {"nodes": {"a": machine}, "code": code, "currency": "EUR"})
    assert [node["price_per_hour"] for node in plan["nodes"]] == [2.5, None]
    assert (plan["code"], plan["currency"]) == (code, "EUR")


def test_loopback_nodes_are_supervised_as_processes_rather_than_units() -> None:
    here = build_rank_table([HostSpec("a", "127.0.0.1", 1), HostSpec("b", "127.0.0.2", 1)])
    assert planned(ENV, here, 1)["supervision"] == "process"
    assert planned(ENV, build_rank_table([HostSpec("a", "::1", 1)]), 0)["supervision"] == "process"


def test_elastic_plan_holds_the_minimum_number_of_nodes() -> None:
    plan = planned(make_job(launcher="torchrun", rdzv_backend="c10d", min_nnodes=1), FOUR, 0)
    assert (plan["elastic"], plan["min_nnodes"]) == (True, 1)


@given(clusters())
def test_plans_are_plain_json_and_agree_across_nodes(hosts: list[HostSpec]) -> None:
    table = get_launcher(STATIC).order(build_rank_table(hosts))
    plans: list[Any] = [build_node_plan(STATIC, table, node, FACTS) for node in table.nodes]
    assert json.loads(json.dumps(plans)) == plans
    same = ("run_id", "nodes", "world_size", "elastic", "min_nnodes", "lifeline", "timeouts", "launcher")
    assert all({key: plan[key] for key in same} == {key: plans[0][key] for key in same} for plan in plans)
    assert plans[-1]["node"]["first_rank"] + plans[-1]["node"]["slots"] == plans[0]["world_size"]


def test_temporary_directories_are_short_and_unique_per_node() -> None:
    """multiprocessing creates sockets in them, whose paths are limited to 107 characters."""
    paths = {temporary_directory(run_id, rank) for run_id in ("a", "b", "x" * 63) for rank in range(100)}
    assert len(paths) == 300
    assert max(map(len, paths)) <= 24


def test_gpus_are_sampled_only_with_gpus_and_nvidia_smi() -> None:
    gpus = {"count": 8, "smi": {"path": "/usr/bin/nvidia-smi"}}
    plan = planned(STATIC, FOUR, 1, gpus=gpus)
    assert plan["gpu_samples"] == [
        "/usr/bin/nvidia-smi",
        "--query-gpu=timestamp,index,utilization.gpu,memory.used,memory.total,temperature.gpu,power.draw,power.limit",
        "--format=csv,noheader,nounits",
    ]
    assert plan["files"] == {"gpus.csv": HEADER}
    for none in ({**gpus, "count": 0}, {"count": 8, "smi": {"path": ""}}, None):
        plan = planned(STATIC, FOUR, 1, gpus=none)
        assert plan["gpu_samples"] == [] and plan["files"] == {}


def test_hostfile_is_written_in_each_format() -> None:
    assert render_hostfiles(FOUR) == {
        "deepspeed": "a slots=2\nb slots=2\n",
        "openmpi": "a slots=2\nb slots=2\n",
        "mpich": "a:2\nb:2\n",
    }


def test_debug_option_adds_nccl_logging_to_the_run_directory() -> None:
    for launcher in ("torchrun", "env", "deepspeed", "mpirun", "accelerate"):
        plain = planned(make_job(run_id="first", launcher=launcher), FOUR, 1)["environment"]
        more = planned(make_job(run_id="first", launcher=launcher, debug=True), FOUR, 1)["environment"]
        added = {name: value for name, value in more.items() if name not in plain}
        assert added["NCCL_DEBUG"] == "INFO" and added["TORCH_NCCL_TRACE_BUFFER_SIZE"] == "2000"
        assert added["NCCL_DEBUG_FILE"] == "/home/me/.muster/runs/first/node1/nccl.%h.%p.log"
        assert {**more, **plain} == more


def test_flight_recorder_writes_into_the_run_directory_unless_stacks_are_disabled() -> None:
    assert "TORCH_FR_DUMP_TEMP_FILE" in planned(STATIC, FOUR, 0)["environment"]
    assert "TORCH_FR_DUMP_TEMP_FILE" not in planned(replace(STATIC, stacks=False), FOUR, 0)["environment"]


# --- Launchers whose ranks are started by bin/muster-rank -------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "source", "is_passed"),
    [
        ("auto", {"files": 1, "features": ["local-rank"]}, True),
        ("auto", {"files": 1, "features": ["compile"]}, False),
        ("auto", {"files": 0, "features": []}, True),  # the sources could not be read
        ("auto", None, True),
        ("true", {"files": 1, "features": []}, True),
        ("false", {"files": 1, "features": ["local-rank"]}, False),
    ],
)
@pytest.mark.parametrize("starter", ["", "pdsh"])
def test_deepspeed_passes_the_local_rank_to_scripts_that_accept_it(
    starter: str, setting: str, source: dict[str, Any] | None, is_passed: bool
) -> None:
    job = make_job(launcher="deepspeed", deepspeed_launcher=starter, deepspeed_local_rank=setting)
    command = planned(job, FOUR, 0, imports=source)["command"]
    assert ("--no_local_rank" in command) != is_passed


@pytest.mark.parametrize(
    ("settings", "commands", "programs"),
    [
        (
            {"launcher": "deepspeed"},
            [
                "/opt/venv/bin/python -m deepspeed.launcher.runner --hostfile=RUN/hostfile "
                "--no_ssh --node_rank=RANK --master_addr=10.0.0.9 --master_port=29500 --no_python muster-rank"
            ]
            * 2,
            [["muster-rank"]] * 2,
        ),
        (
            {"launcher": "deepspeed", "deepspeed_launcher": "pdsh"},
            [
                "/opt/venv/bin/python -m deepspeed.launcher.runner --hostfile=RUN/hostfile "
                "--launcher=pdsh --force_multi --no_ssh_check --master_addr=10.0.0.9 --master_port=29500 --no_python "
                "muster-rank",
                "",
            ],
            [["muster-rank", "ssh"], ["muster-rank"]],
        ),
        (
            {"launcher": "mpirun"},
            [
                "mpirun --hostfile RUN/hostfile -np 4 --mca btl_tcp_if_include 10.0.0.8/30 "
                "--mca oob_tcp_if_include 10.0.0.8/30 --mca plm rsh --mca plm_rsh_agent ssh:sh "
                "--mca plm_rsh_assume_same_shell 0 --mca plm_rsh_no_tree_spawn 1 --mca plm_rsh_num_concurrent 128 "
                "--leave-session-attached --bind-to none muster-rank",
                "",
            ],
            [["muster-rank", "ssh"], ["muster-rank"]],
        ),
        (
            {"launcher": "accelerate"},
            [
                "/opt/venv/bin/python -m accelerate.commands.launch "
                "--config_file=RUN/accelerate.json --no_python muster-rank"
            ]
            * 2,
            [["muster-rank"]] * 2,
        ),
    ],
)
def test_launcher_commands_contain_no_job_arguments(
    settings: dict[str, Any], commands: list[str], programs: list[Any]
) -> None:
    job = make_job(run_id="first", args=("--secret", "a b"), variables=("TOKEN",), **settings)
    for rank, command in enumerate(commands):
        plan = planned(job, FOUR, rank)
        run_directory = f"/home/me/.muster/runs/first/node{rank}"
        assert " ".join(plan["command"]) == command.replace("RUN", run_directory).replace("RANK", str(rank))
        assert plan["programs"] == programs[rank]
        assert json.loads(plan["files"]["rank.json"])["arguments"] == ["--secret", "a b"]
        assert json.loads(plan["files"]["rank.json"])["command"] == ["/opt/venv/bin/python", "-u", "job.py"]
        assert (plan["environment"]["MASTER_ADDR"], plan["environment"]["MASTER_PORT"]) == ("10.0.0.9", "29500")


@pytest.mark.parametrize(
    ("settings", "table", "arguments"),
    [
        ({"launcher": "mpirun"}, UNEQUAL, []),
        ({"launcher": "deepspeed"}, UNEQUAL, []),
        ({"launcher": "deepspeed"}, SIX, []),
        ({"launcher": "deepspeed", "deepspeed_launcher": "pdsh"}, SIX, []),
        ({"launcher": "accelerate"}, SIX, []),
        ({"launcher": "mpirun"}, SIX, ["needs IPv4 addresses, but a has fd00::9"]),
        ({"launcher": "deepspeed", "deepspeed_launcher": "openmpi"}, SIX, ["needs IPv4 addresses"]),
        ({"launcher": "accelerate"}, UNEQUAL, ["but they are a 2, b 1: it starts 3 // 2 processes on each"]),
        ({"launcher": "mpirun", "max_restarts": 1}, FOUR, ["launch_max_restarts needs launch_launcher: torchrun"]),
        ({"launcher": "deepspeed", "min_nnodes": 1}, FOUR, ["an elastic run"]),
        (
            {"launcher": "accelerate", "accelerate_config": {"num_machines": 3, "mixed_precision": "bf16"}},
            FOUR,
            ["launch_accelerate_config has num_machines, which come from the rank table"],
        ),
    ],
)
def test_options_unsupported_by_rank_launchers_are_reported(
    settings: dict[str, Any], table: RankTable, arguments: list[str]
) -> None:
    job = make_job(**settings)
    problems = get_launcher(job).problems(job, table)
    assert len(problems) == len(arguments)
    for problem, word in zip(problems, arguments, strict=True):
        assert word in problem


def test_accelerate_config_holds_rendezvous_and_user_settings() -> None:
    job = make_job(
        run_id="first",
        launcher="accelerate",
        accelerate_config={"distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": 2}},
    )
    assert json.loads(planned(job, FOUR, 1)["files"]["accelerate.json"]) == {
        "compute_environment": "LOCAL_MACHINE",
        "deepspeed_config": {"deepspeed_multinode_launcher": "standard", "zero_stage": 2},
        "distributed_type": "DEEPSPEED",
        "machine_rank": 1,
        "main_process_ip": "10.0.0.9",
        "main_process_port": 29500,
        "num_machines": 2,
        "num_processes": 4,
        "rdzv_backend": "static",
        "same_network": True,
    }


def test_mpirun_hostfile_lists_addresses_and_deepspeed_hostfile_lists_names() -> None:
    assert (
        planned(make_job(launcher="mpirun"), UNEQUAL, 0)["files"]["hostfile"] == "10.0.0.9 slots=2\n10.0.0.10 slots=1\n"
    )
    assert "hostfile" not in planned(make_job(launcher="mpirun"), UNEQUAL, 1)["files"]
    assert planned(make_job(launcher="deepspeed"), UNEQUAL, 1)["files"]["hostfile"] == "a slots=2\nb slots=1\n"


def test_only_deepspeed_with_pdsh_is_a_bare_launcher() -> None:
    bare = {
        (launcher, deepspeed_launcher): planned(
            make_job(launcher=launcher, deepspeed_launcher=deepspeed_launcher), FOUR, 0
        )["bare_launcher"]
        for launcher, deepspeed_launcher in (("torchrun", ""), ("mpirun", ""), ("deepspeed", ""), ("deepspeed", "pdsh"))
    }
    assert [name for name, is_bare in bare.items() if is_bare] == [("deepspeed", "pdsh")]


def test_no_python_option_runs_the_program_directly() -> None:
    torchrun = planned(make_job(launcher="torchrun", script="./hello", no_python=True), FOUR, 0)["command"]
    assert torchrun[-3:] == ["--no-python", "--", "./hello"]
    assert planned(make_job(launcher="env", script="./hello", no_python=True), FOUR, 0)["command"] == ["./hello"]
    rules = planned(make_job(launcher="mpirun", script="./hello", no_python=True), FOUR, 0)["files"]["rank.json"]
    assert json.loads(rules)["command"] == ["./hello"]
