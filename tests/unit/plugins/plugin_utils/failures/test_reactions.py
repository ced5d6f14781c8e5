"""A line with a cause takes precedence over an error that is only a consequence, unless the program continued."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._failures.catalogue import explain_failure
from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.registry import CATALOGUE
from ansible_collections.muster.training.plugins.plugin_utils._failures.reactions import (
    PRECEDENCES,
    explains_reaction,
)
from ansible_collections.muster.training.plugins.plugin_utils._failures.root_rank import find_stated_cause
from tests.explain.offline import explain_offline

RECORDED = Path(__file__).resolve().parents[3] / "fixtures" / "errors"
ENTRIES = {entry.id: entry for entry in CATALOGUE}
CAUSES = {
    "name-unknown": "[c10d] The IPv4 network addresses of (gpu-a, 29500) cannot be retrieved (gai error: -2 - Name or)",
    "address-in-use": "RuntimeError: Address already in use",
    "disk-full": "OSError: [Errno 28] No space left on device",
    "permission-denied": "PermissionError: [Errno 13] Permission denied: '/data/out'",
    "cuda-out-of-memory": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "host-out-of-memory": "MemoryError: Unable to allocate 9.31 GiB for an array",
    "module-missing": "ModuleNotFoundError: No module named 'deepspeed'",
    "arguments-rejected": "train.py: error: unrecognized arguments: --batch-size 16",
    "mount-died": "OSError: [Errno 107] Transport endpoint is not connected: '/data'",
    "ssh-refused": "gpu2: Permission denied (publickey,password).",
}
REACTIONS = {
    "rendezvous-unreached": "RendezvousConnectionError: The connection to the C10d store has failed.",
    "ranks-missing": "DistStoreError: Timed out after 901 seconds waiting for clients. 1/2 clients joined.",
    "store-gone": "[c10d] recvValue failed on SocketImpl(fd=3): Connection reset by peer",
    "nccl-peer-gone": "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting",
    "launcher-terminated": "torch.distributed.elastic.multiprocessing.api.SignalException: Process 29 got signal: 15",
    "rank-failed": "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
}
TRACEBACK = ["Traceback (most recent call last):", '  File "run.py", line 3, in main', "    check_output(command)"]
CONTINUED = ["step 20 loss 0.3", "Epoch 2:  38%|███▊      | 1190/3130", "Retrying in 1 s", "[c10d] Rendezvous complete"]


SITE = "/opt/env/lib/python3.11/site-packages"
# What launchers print after a rank has failed.
EPILOGUES = {
    "torchrun": f"""\
W0323 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 812914 closing signal SIGTERM
E0323 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 0 (pid: 88) of binary: py
Traceback (most recent call last):
  File "/opt/env/bin/torchrun", line 10, in <module>
    sys.exit(main())
  File "{SITE}/torch/distributed/launcher/api.py", line 270, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 88)
============================================================
""",
    "deepspeed": """\
[2023-03-08 23:09:10,901] [INFO] [launch.py:318:sigkill_handler] Killing subprocess 15884
[2023-03-08 23:09:10,911] [ERROR] [launch.py:324:sigkill_handler] ['python', '-u', 'run.py'] exits with return code = 1
""",
    "srun": """\
srun: error: node1: task 3: Exited with exit code 1
slurmstepd: error: *** STEP 12.0 ON node1 CANCELLED AT 2026-05-12T12:43:25 ***
srun: error: node2: tasks 4-7: Terminated
""",
    "mpirun": """\
--------------------------------------------------------------------------
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[52222,1],1]
  Exit code:    1
--------------------------------------------------------------------------
""",
    "torch.distributed.launch": f"""\
Traceback (most recent call last):
  File "{SITE}/torch/distributed/launch.py", line 256, in main
    raise subprocess.CalledProcessError(returncode=process.returncode,
subprocess.CalledProcessError: Command '['python', '-u', 'train.py']' returned non-zero exit status 1.
""",
    "lightning": "[rank: 1] Child process with PID 123 terminated with code 1. Forcefully terminating all others\n",
    "a closed connection": """\
[rank0]: Traceback (most recent call last):
[rank0]:   File "train.py", line 3, in main
[rank0]: torch.distributed.DistBackendError: NCCL error in: x.cpp:1, remote process exited or there was a network error
[rank0]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.
""",
    "SIGTERM": f"""\
Traceback (most recent call last):
  File "{SITE}/torch/distributed/elastic/multiprocessing/api.py", line 87, in _terminate_process_handler
    raise SignalException(f"Process {{os.getpid()}} got signal: {{sigval}}", sigval=sigval)
torch.distributed.elastic.multiprocessing.api.SignalException: Process 293812 got signal: 15
""",
}


def explained_as(error: str, lines: list[str]) -> str:
    explanation = explain_failure(error, lines)
    return explanation["id"] if explanation else ""


@pytest.mark.parametrize("reaction", REACTIONS)
@pytest.mark.parametrize("cause", CAUSES)
def test_earlier_cause_comes_before_the_reaction_that_ended_the_rank(cause: str, reaction: str) -> None:
    lines = ["starting", CAUSES[cause], "waiting", REACTIONS[reaction]]
    assert explained_as(REACTIONS[reaction], lines) == cause


@pytest.mark.parametrize("launcher", EPILOGUES)
def test_each_cause_takes_precedence_over_later_launcher_output(launcher: str) -> None:
    wrong = []
    for entry in (entry for entry in CATALOGUE if entry.kind == "root" and not entry.recoverable and not entry.summary):
        text = (RECORDED / f"{entry.id}.txt").read_text().partition("\n")[2].rstrip("\n") + "\n"
        ids = [explain_offline({"ranks": {"0": text + end}, "exit": {"0": 1}}).id for end in ("", EPILOGUES[launcher])]
        wrong += [(entry.id, ids)] if ids[1] not in (entry.id, ids[0]) else []
    assert wrong == []


@pytest.mark.parametrize("reaction", ["rendezvous-unreached", "ranks-missing", "nccl-peer-gone"])
@pytest.mark.parametrize("cause", [name for name in CAUSES if ENTRIES[name].recoverable])
@pytest.mark.parametrize("continued", CONTINUED)
def test_message_after_which_the_program_continued_is_not_the_cause(cause: str, reaction: str, continued: str) -> None:
    lines = [CAUSES[cause], continued, REACTIONS[reaction]]
    assert explained_as(REACTIONS[reaction], lines) == reaction


def test_name_that_was_eventually_resolved_is_not_the_cause() -> None:
    unresolved = (
        "[c10d] The IPv6 network addresses of (gpu-a, 29500) cannot be retrieved (gai error: -2 - Name or service)"
    )
    refused = "[c10d] The client socket has failed to connect to [gpu-a]:29500 (errno: 111 - Connection refused)."
    error = "DistNetworkError: The client socket has timed out after 600s while trying to connect to (gpu-a, 29500)."
    assert explained_as(error, [unresolved]) == "name-unknown"
    assert explained_as(error, [unresolved, refused]) == "rendezvous-unreached"
    no_ipv6 = "[c10d] The client socket has failed to connect to [gpu-a]:29500 (errno: 97 - Address family)."
    assert explained_as(error, [no_ipv6, unresolved]) == "name-unknown"
    assert explained_as(error.replace("gpu-a", "gpu-b"), [unresolved]) == "rendezvous-unreached"


@pytest.mark.parametrize(
    ("line", "entry"),
    [
        ("ssh: Could not resolve hostname node-0: Name or service not known", "name-unknown"),
        ("train.py: error: unrecognized arguments: --batch-size 16", "arguments-rejected"),
        ("OSError: [Errno 28] No space left on device", "disk-full"),
        ("nothing", ""),
    ],
)
def test_failure_of_another_program_is_explained_by_its_own_message(line: str, entry: str) -> None:
    error = "subprocess.CalledProcessError: Command '['ssh node-0 hostname -I']' returned non-zero exit status 255."
    assert explained_as(error, [line, *TRACEBACK, error]) == (entry or "program-failed")


def test_end_without_a_message_is_explained_by_an_unresolvable_name() -> None:
    assert (
        explained_as("ended with exit code 1, its last output: bye", [CAUSES["name-unknown"], "bye"]) == "name-unknown"
    )
    assert explained_as("ended with exit code 1, its last output: bye", [CAUSES["name-unknown"], "step 3 loss 1"]) == ""


def trace(error: str, line: str = "x = d['key']") -> list[str]:
    return ["Traceback (most recent call last):", '  File "/job/train.py", line 12, in main', f"    {line}", error]


@pytest.mark.parametrize("reaction", ["nccl-peer-gone", "launcher-terminated", "rank-failed", "rendezvous-unreached"])
def test_earlier_exception_of_the_script_is_the_cause_of_a_reaction(reaction: str) -> None:
    ended = trace(REACTIONS[reaction], "dist.barrier()")
    explanation = explain_failure(REACTIONS[reaction], [*trace("KeyError: 'key'"), "cleaning up", *ended])
    assert explanation is not None and "train.py:12" in explanation["cause"] and "KeyError" in explanation["evidence"]
    assert explanation["confidence"] == "log"
    for harmless in (
        [*trace("KeyError: 'key'"), "step 20 loss 0.3", *ended],
        [*trace("KeyError: 'key'"), "Retrying in 1 s", *ended],
        [*trace("ConnectionError: Connection reset by peer"), *ended],
    ):
        assert explained_as(REACTIONS[reaction], harmless) == reaction


def test_hint_is_more_informative_than_a_reaction() -> None:
    lines = [
        "n1:9:19 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.5<51> with error 5, opcode 0, vendor err 249"
    ]
    assert explained_as(REACTIONS["nccl-peer-gone"], lines) == "rdma-transfer-failed"


def test_reactions_and_causes_are_entries_of_the_right_kind() -> None:
    for precedence in PRECEDENCES:
        assert {*precedence.roots, *precedence.reactions} <= set(ENTRIES)
        for name in precedence.roots:
            assert ENTRIES[name].kind == "root" and ENTRIES[name].recoverable, name


def test_a_reaction_is_not_the_cause_of_another_reaction() -> None:
    reaction = ENTRIES["nccl-time-out"]
    assert not explains_reaction(ENTRIES["store-reset"], True, reaction, [])


def failure(rank: int, error: str, lines: list[str]) -> dict[str, Any]:
    return {"rank": rank, "error": error, "last_lines": lines, "since": float(rank), "weight": 2}


def test_rank_whose_log_states_the_cause_is_named_before_one_that_only_waited() -> None:
    waited = failure(0, REACTIONS["ranks-missing"], ["starting"])
    raised = failure(3, REACTIONS["nccl-peer-gone"], [*trace("KeyError: 'key'"), REACTIONS["nccl-peer-gone"]])
    assert find_stated_cause(waited, [waited, raised]) is raised
    lost = failure(1, REACTIONS["rendezvous-unreached"], ["starting"])
    caused = failure(2, REACTIONS["rendezvous-unreached"], [CAUSES["name-unknown"]])
    assert find_stated_cause(waited, [waited, lost, caused]) is caused
    assert find_stated_cause(waited, [waited, lost]) is None
    assert find_stated_cause(caused, [waited, caused]) is None
