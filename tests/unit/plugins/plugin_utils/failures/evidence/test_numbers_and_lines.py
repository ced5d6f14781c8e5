# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Causes selected by a number in the error, or by a line before it."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._failures.catalogue import explain_failure
from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.registry import RULES
from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.select import match_rule
from ansible_collections.muster.training.plugins.plugin_utils._failures.facts import NOTHING, RunFacts
from ansible_collections.muster.training.plugins.plugin_utils._failures.first_failure import first_failure
from ansible_collections.muster.training.plugins.plugin_utils._failures.scheduler_end import find_scheduler_end

SITE = "/opt/env/lib/python3.11/site-packages"
ONE_NODE = RunFacts(addresses=("10.0.0.4",), slots=(2,), gpus=(8,))
TWO_NODES = RunFacts(addresses=("10.0.0.4", "10.0.0.5"), slots=(4, 4))
CLIENTS = "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 2/8 clients joined."
ASSERTED = "AssertionError: Megatron requires CUDA."
OLD_DRIVER = (
    "x/torch/cuda/__init__.py:107: UserWarning: CUDA initialization: The NVIDIA driver on your system is too old "
    "(found version 11000)."
)
GLOO = "gloo::IoException: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:724] connect [{}]:17450: {}"
WRONG_TYPE = (
    "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, internal error\nncclInternalError: "
    "Internal check failed.\nLast error:\nsocketFinalizeAccept: wrong type {}"
)
FULL = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 336.00 MiB. GPU 1 has a total capacity of 79.15 GiB "
    "of which 141.25 MiB is free. Including non-PyTorch memory, this process has 79.00 GiB memory in use. Of the "
    "allocated memory {} is allocated by PyTorch, and {} is reserved by PyTorch but unallocated."
)
LAYOUT = (
    "RuntimeError: params[182] in this process with sizes [256, 256, 1, 1] appears not to match {} of the same param"
)
BATCH = (
    "AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * "
    "gradient_acc_step * world_size {} != {} * {} * {}"
)
FIELDS = (
    "pydantic_core._pydantic_core.ValidationError: 2 validation errors for DeepSpeedBF16Config\nloss_scale\n  Extra "
    "inputs are not permitted [type=extra_forbidden, input_value=0, input_type=int]\n    For further information\n"
    "hysteresis\n  Extra inputs are not permitted [type=extra_forbidden]"
)
MODULE = "ModuleNotFoundError: No module named '{}'"
BINARY = "ERROR:api:failed (exitcode: 1) local_rank: 0 (pid: 51871) of binary: {}"
BROADCAST = (
    "std::runtime_error: [Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={}, OpType=BROADCAST, "
    "Timeout(ms)=1800000) ran for 1804407 milliseconds before timing out."
)
MISMATCH = (
    "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: CollectiveFingerPrint("
    "SequenceNumber=7, OpType=ALLGATHER, TensorShape=[1]), but Rank 1 is running collective: CollectiveFingerPrint("
    "SequenceNumber=7, OpType=ALLREDUCE, TensorShape=[1])."
)
IN_USE = "RuntimeError: The server socket has failed to listen on any local network address (Address already in use)."
NO_HOSTFILE = "[WARNING] [runner.py:196] Unable to find hostfile, will proceed with training with local resources only."
SLURM_END = "slurmstepd: error: *** JOB 812331 ON node01 CANCELLED AT 2021-08-04T02:11:09 DUE TO TIME LIMIT ***"
ZARR = "{}.CheckpointingException: Zarr directory not found: /nfs/checkpoints/step=1000/exp_avg"


def frame(path: str, function: str, source: str) -> str:
    return f'  File "{path}", line 9, in {function}\n    {source}\n'


def raised(error: str, *frames: str) -> list[str]:
    return f"Traceback (most recent call last):\n{''.join(frames)}{error}".split("\n")


def cause(error: str, lines: list[str] | None = None, facts: RunFacts = NOTHING) -> str:
    """Return the cause and remedy of a failure."""
    explanation = explain_failure(error, lines or [], facts)
    assert explanation is not None, error
    return f"{explanation['cause']} {explanation['remedy']}"


def test_cuda_check_names_the_warning_before_it() -> None:
    check = raised(
        ASSERTED, frame("/job/train.py", "main", 'assert torch.cuda.is_available(), "Megatron requires CUDA."')
    )
    assert "newer CUDA version than the node's driver" in cause(ASSERTED, [OLD_DRIVER, *check])
    assert "nvidia-smi -L" in cause(ASSERTED, check)
    unrelated = "AssertionError: hidden size must be divisible by the number of GPUs"
    lines = raised(unrelated, frame("/job/train.py", "main", "assert hidden % gpus == 0"))
    assert "driver" not in cause(unrelated, lines)


@pytest.mark.parametrize(("types", "differs"), [("3 != 4", True), ("4 != 3", True), ("1 != 2", False)])
def test_networks_of_two_kinds_are_explained(types: str, differs: bool) -> None:
    lines = [f"n1:1:1 [0] misc/socket.cc:484 NCCL WARN socketFinalizeAccept: wrong type {types}"]
    assert ("NCCL_IB_DISABLE" in cause(WRONG_TYPE.format(types), lines)) is differs


def test_world_size_expected_by_the_script_is_explained() -> None:
    assert "passes its own world_size" in cause(CLIENTS, [], ONE_NODE)
    call = frame("/job/train.py", "main", 'torch.distributed.init_process_group("nccl", world_size=world_size)')
    assert "device_count()" in cause(CLIENTS, raised(CLIENTS, call))
    assert "device_count()" not in cause(CLIENTS, [])
    assert "world_size" not in cause(CLIENTS, raised(CLIENTS, call), TWO_NODES)


def test_memory_is_fragmented_only_if_much_of_it_is_unused() -> None:
    assert "fragmented" not in cause(FULL.format("77.21 GiB", "1.02 GiB"))
    assert "fragmented" in cause(FULL.format("60.21 GiB", "17.02 GiB"))


def test_layouts_that_differ_despite_equal_sizes_are_explained() -> None:
    assert "contiguous" in cause(LAYOUT.format("strides"))
    assert "contiguous" not in cause(LAYOUT.format("sizes"))


def test_indivisible_global_batch_is_explained() -> None:
    assert "multiple of 1 x 3" in cause(BATCH.format(256, 1, 85, 3))
    assert "multiple" not in cause(BATCH.format(256, 2, 4, 16))


def test_fields_that_are_not_permitted_are_named() -> None:
    package = frame(f"{SITE}/deepspeed/runtime/config.py", "_initialize_params", "get_bfloat16_config(param_dict)")
    text = cause(FIELDS, raised(FIELDS, frame("/job/train.py", "main", "deepspeed.initialize()"), package))
    assert "loss_scale is the first of 2 errors for DeepSpeedBF16Config" in text


def test_package_installed_for_a_different_python_is_explained() -> None:
    error = MODULE.format("datasets")
    assert "module in the project" not in cause(error)
    text = cause(error, [error, BINARY.format("/apps/python/3.10/bin/python3.10")])
    assert "/apps/python/3.10/bin/python3.10 -m pip install datasets" in text
    assert "whole system" not in cause(error, [error, BINARY.format("/home/me/.venv/bin/python3")])
    assert "module in the project" in cause(MODULE.format("utils.data"))


def test_rank_0_waiting_in_its_own_broadcast_is_explained() -> None:
    assert "NCCL_IB_DISABLE" in cause(BROADCAST.format(0, 4))
    assert "it is not late" not in cause(BROADCAST.format(1, 4))
    assert "it is not late" not in cause(BROADCAST.format(0, 4000))


def test_all_ranks_waiting_in_the_same_collective_are_explained() -> None:
    nodes = []
    for rank in (0, 1):
        waiting = node(BROADCAST.format(rank, 4))
        report = {**waiting["report"], "exit_code": -signal.SIGABRT}
        report["ranks"] = [{**report["ranks"][0], "rank": rank, "exit_code": -6, "error": BROADCAST.format(rank, 4)}]
        nodes.append({**waiting, "name": f"n{rank}", "node_rank": rank, "since": float(rank), "report": report})
    result = {"state": "failed", "reason": "", "first_node": "n1", "ended": 9.0, "nodes": nodes}
    failure = first_failure(result)
    assert failure is not None and failure["error"].endswith("; all 2 ranks wait in BROADCAST 4")
    assert "none of them is late" in cause(failure["error"], failure["last_lines"])
    nodes[1]["report"]["ranks"][0]["error"] = BROADCAST.format(1, 5)
    nodes[1]["report"]["last_lines"] = BROADCAST.format(1, 5)
    failure = first_failure(result)
    assert failure is not None and "ranks wait in BROADCAST 4" not in failure["error"]


def test_single_stopped_rank_takes_precedence_over_differing_collectives() -> None:
    assert "broadcast(stop, 0)" in cause(MISMATCH, ["INFO: Stopping optimization after 2 epochs without improvement"])
    assert "broadcast(stop, 0)" not in cause(MISMATCH, ["INFO: epoch 3"])


def test_deepspeed_without_a_hostfile_is_explained() -> None:
    store = frame(f"{SITE}/torch/distributed/rendezvous.py", "_env_rendezvous_handler", "store = _create_c10d_store()")
    lines = [NO_HOSTFILE, *raised(IN_USE, store)]
    assert "deepspeed_multinode_launcher: standard" in cause(IN_USE, lines, RunFacts(rank=1))
    assert "deepspeed_multinode_launcher" not in cause(IN_USE, lines, RunFacts(rank=0))


def test_gloo_connecting_to_itself_is_explained() -> None:
    loopback = GLOO.format("127.0.1.1", "Connection refused")
    assert "hosts_file" in cause(loopback, [], TWO_NODES)
    assert "ended earlier" in cause(loopback, [], ONE_NODE)
    assert "own log says why" in cause(GLOO.format("10.0.0.5", "Connection refused"), [], TWO_NODES)


def test_kill_in_a_slurm_job_is_explained() -> None:
    line = "/var/spool/slurmd/job44120/slurm_script: line 14: 2100311 Killed                  python -u train.py"
    assert "sacct -j 44120" in cause("was killed by SIGKILL (exit code 137)", [line])


def test_checkpoint_file_that_is_not_created_is_explained() -> None:
    error = "RuntimeError: File out/checkpoint_0.pt cannot be opened."
    lines = raised(
        error,
        frame("/job/train.py", "train", "torch.save(state, path)"),
        frame(f"{SITE}/torch/serialization.py", "__init__", "torch._C.PyTorchFileWriter(str(name))"),
    )
    assert "df -h" in cause(error, lines)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("root.mkdir(parents=True, exist_ok=True)", "broken link"),
        ('with open(os.path.join(path, name), "a", encoding="utf-8") as file:', "not LOCAL_RANK 0); if the code"),
        ("os.mkdir(path)", "use os.makedirs(path, exist_ok=True)"),
    ],
)
def test_file_or_directory_created_by_two_nodes_is_explained(source: str, text: str) -> None:
    error = "FileExistsError: [Errno 17] File exists: '/shared/out/log'"
    assert text in cause(error, raised(error, frame("/job/train.py", "main", source)))


def test_nccl_peer_with_a_link_local_address_is_explained() -> None:
    line = (
        "n1:1:1 [0] include/socket.h:403 NCCL WARN Connect to fe80::c4eb:49ff:fe04:e32d%6<57335> failed : unreachable"
    )
    error = "RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:957, unhandled system error, NCCL version 21.0.3"
    assert "Another rank announced fe80::c4eb:49ff:fe04:e32d%6" in cause(error, [line])
    assert "Another rank announced" not in cause(error, ["NCCL_SOCKET_IFNAME set to eno1", line])


def test_rank_0_directory_that_is_not_visible_is_explained() -> None:
    error = ZARR.format("megatron.core.dist_checkpointing.core")
    path = f"{SITE}/megatron/core/dist_checkpointing/strategies/zarr.py"
    lines = raised(
        error,
        frame("/job/train.py", "main", "dist_checkpointing.save(state, path)"),
        frame(path, "_create_or_open_zarr_arrays", "raise CheckpointingException("),
    )
    assert "actimeo=0" in cause(error, lines, RunFacts(rank=2))
    assert "actimeo=0" not in cause(error, lines, RunFacts(rank=0))


def node(last_lines: str, ended_by_us: bool = False) -> dict[str, Any]:
    report = {
        "exit_code": -signal.SIGTERM,
        "ranks": [{"rank": 0, "exit_code": -signal.SIGTERM, "error": "", "log": "/l"}],
        "launcher_error": "",
        "launcher_log": "/l",
        "last_log": "/l",
        "last_lines": last_lines,
        "ended_by_us": ended_by_us,
    }
    base = {"name": "a", "node_rank": 0, "state": "ended", "since": 0.0, "launcher_log": "/l"}
    return {**base, "report": report}


def test_run_ended_by_the_scheduler_names_the_scheduler_as_the_cause() -> None:
    log = f"initializing ddp: GLOBAL_RANK: 0, MEMBER: 1/8\n{SLURM_END}"
    result = {"state": "failed", "reason": "", "first_node": "a", "ended": 9.0, "nodes": [node(log)]}
    failure = first_failure(result)
    assert failure is not None and failure["error"] == SLURM_END and failure["rank"] is None
    assert "were never started" in cause(failure["error"], failure["last_lines"])
    assert "reached its time limit" in cause(SLURM_END, ["step 7", SLURM_END])
    assert find_scheduler_end([node(log, ended_by_us=True)]) is None
    assert find_scheduler_end([node("step 7"), {**node(log), "report": None}]) is None


@pytest.mark.parametrize(
    "piece", ["[Rank 0] ", "Error: no GPU requires CUDA ", "[", "x: ", "1 validation errors for A\nb\n", "/a/b", "0: "]
)
def test_time_is_linear_in_the_size_of_the_log(piece: str) -> None:
    text = (piece * (200_000 // len(piece)))[-60_000:]
    begun = time.process_time()
    for rule in RULES:
        match_rule(rule, text, NOTHING)
    find_scheduler_end([node(piece * 20_000)])
    assert time.process_time() - begun < 10
