"""Rules on names, launchers and NCCL, with texts of public threads and the rule that explains each."""

from __future__ import annotations

import time

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._failures.catalogue import explain_failure
from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence import launchers, names, nccl
from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.registry import RULES
from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.select import (
    compile_pattern,
    match_rule,
)
from ansible_collections.muster.training.plugins.plugin_utils._failures.facts import NOTHING, RunFacts

OWN_RULES = (*names.RULES, *launchers.RULES, *nccl.RULES, *nccl.LAST_RULES)
TWO = RunFacts(addresses=("10.0.0.4", "10.0.0.5"), interface="ens5", slots=(2, 2), gpus=(2, 2), port="29500", rank=1)
UNRESOLVED = "[W socket.cpp:558] [c10d] The IPv6 network addresses of ({}, 29500) cannot be retrieved (gai error: {})."
UNKNOWN = "-2 - Name or service not known"
TIMED_OUT = "TimeoutError: The client socket has timed out after {}s while trying to connect to ({}, 29500)."
HOST_UNKNOWN = "ValueError: host not found: Name or service not known"
STORE = "    store = TCPStore(master_addr, master_port, world_size, start_daemon, timeout)"
REMOTE = "torch.distributed.DistBackendError: NCCL error in: x.cpp:1691, remote process exited\nncclRemoteError: A call"
SYSTEM = (
    "torch.distributed.DistBackendError: NCCL error in: x.cpp:1691, unhandled system error\nncclSystemError: System"
)
COMPLETION = "n1:9:19 [0] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.0.0.5<5101> with {}"


ACTOR_DIED = "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task."
RAY_GET = [
    "Traceback (most recent call last):",
    '  File "/job/main.py", line 128, in main',
    "    ray.get(runner.run.remote(config))",
    '  File "/opt/env/lib/python3.11/site-packages/ray/_private/worker.py", line 921, in get_objects',
    "    raise value",
    ACTOR_DIED,
]
KILLED_WORKER = "Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file."


def last(text: str, code: int = 2) -> str:
    """Return the error of a process that printed a line and then ended with an exit code."""
    return f"ended with exit code {code}, its last output: {text}"


def unresolved(name: str, reason: str = UNKNOWN, seconds: int = 60) -> tuple[str, list[str]]:
    return TIMED_OUT.format(seconds, name), [UNRESOLVED.format(name, reason)]


CASES: list[tuple[str, str, list[str], RunFacts]] = [
    # the rule's ID, the error, the log, and the facts of the run
    (
        "launcher-waits-for-nodes",
        "RuntimeError: Socket Timeout",
        ['  File "/opt/env/torch/distributed/elastic/agent/server/api.py", line 621, in _assign_worker_ranks'],
        NOTHING,
    ),
    (
        "mpi-daemon-connects-back",
        "ORTE was unable to reliably start one or more daemons.",
        ["[node2:10032] [[43400,0],2] tcp_peer_send_blocking: send() to socket 9 failed: Broken pipe (32)"],
        TWO,
    ),
    (
        "mpi-address-of-bridge",
        "WARNING: Open MPI failed to TCP connect to a peer MPI process.",
        ["[node2][[9281,1],1][btl_tcp_endpoint.c:796] connect() to 192.168.122.1 failed: No route to host (113)"],
        TWO,
    ),
    (
        "slurm-starts-too-few",
        "RuntimeError: Timed out initializing process group in store based barrier on rank: 0, for key: "
        "store_based_barrier_key:1 (world_size=4, worker_count=1, timeout=0:30:00)",
        [
            "Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/4",
            "srun: error: node1: task 0: Exited with exit code 1",
        ],
        NOTHING,
    ),
    ("ray-worker-died", ACTOR_DIED, [*RAY_GET, KILLED_WORKER], NOTHING),
    (
        "ray-disk-full",
        ACTOR_DIED,
        ["(raylet) /tmp/ray/session_1 is over 95% full, available", *RAY_GET],
        NOTHING,
    ),
    (
        "hip-handle-refused",
        "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:94, unhandled cuda error\n"
        "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 'invalid argument'",
        ["pod-0:402:502 [0] transport/p2p.cc:256 NCCL WARN hipIpcGetMemHandle failed : invalid argument"],
        NOTHING,
    ),
    ("name-of-variable", *unresolved("$MASTER_ADDR"), NOTHING),
    ("name-of-variable", *unresolved("<master_ip>"), NOTHING),
    ("name-of-pod-wrong", *unresolved("pytorch-workers-0-0.pytorch-workers", seconds=1800), NOTHING),
    ("name-of-pod", *unresolved("cifar-cifar-0-0.cifar"), NOTHING),
    ("name-of-pod", *unresolved("job-master-0"), NOTHING),
    ("name-of-host-bare", *unresolved("dlc1-master-0", seconds=600), NOTHING),
    ("name-of-host-bare", TIMED_OUT.format("600000m", "a-0-1"), [UNRESOLVED.format("a-0-1", UNKNOWN)], NOTHING),
    (
        "name-in-message",
        "ORTE does not know how to route a message to the specified daemon",
        ["ssh: Could not resolve hostname j-launcher-0: Name"],
        TWO,
    ),
    ("name-of-pod-hidden", HOST_UNKNOWN, ["rmq_host=rmq.default.svc.cluster.local", STORE], NOTHING),
    ("name-of-lightning", HOST_UNKNOWN, ['  File "core/lightning.py", line 913, in init_ddp_connection'], NOTHING),
    ("dns-no-answer", *unresolved("user", "-3 - Temporary failure in name resolution"), NOTHING),
    ("name-in-message", *unresolved("gpu-a"), TWO),
    ("name-in-variable", HOST_UNKNOWN, [STORE], TWO),
    (
        "name-with-slots",
        last("ORTE was unable to reliably start one or more daemons.", 1),
        ["ssh: Could not resolve hostname localhost:3: Name or service not known"],
        NOTHING,
    ),
    (
        "gloo-list-of-interfaces",
        "RuntimeError: [enforce fail at device.cc:84] ifa != nullptr. Unable to find address for: ^lo",
        [],
        NOTHING,
    ),
    (
        "own-name-elsewhere",
        "RuntimeError: [enforce fail at device.cc:127] rp != nullptr. Unable to find address for: dgx-1.ai",
        [],
        NOTHING,
    ),
    (
        "",
        "RuntimeError: [enforce fail at device.cc:83] ifa != nullptr. Unable to find address for: ib0",
        [],
        NOTHING,
    ),
    (
        "launcher-variable-literal",
        last("torchrun: error: argument --node-rank/--node_rank: invalid int value: '${node_rank_var}'"),
        [],
        NOTHING,
    ),
    (
        "launcher-variable-literal",
        last("torchrun: error: argument --node-rank/--node_rank: invalid int value: '$AWS_BATCH_JOB_NODE_INDEX'"),
        [],
        NOTHING,
    ),
    (
        "launcher-no-address",
        last("pdsh@ddp-0: ddp-1: ssh exited with exit code 2"),
        [
            "[INFO] [runner.py:417:main] Using IP address of  for node ddp-0",
            "ddp-0: launch.py: error: the following arguments are required: training_script, training_script_args",
        ],
        NOTHING,
    ),
    (
        "scontrol-missing",
        last("torchrun: error: argument --master_addr: expected one argument"),
        ["bash: scontrol: command not found"],
        NOTHING,
    ),
    (
        "endpoint-none",
        "ValueError: The port number of the rendezvous endpoint 'None:None' must be an integer between 0 and 65536.",
        [],
        NOTHING,
    ),
    (
        "endpoint-without-host",
        "ValueError: The hostname of the rendezvous endpoint ':8080' must be a dot-separated list of labels",
        [],
        NOTHING,
    ),
    ("variable-unset", last("/job/run.sh: line 12: MASTER_ADDR: unbound variable", 1), [], NOTHING),
    (
        "variable-empty",
        "ValueError: invalid literal for int() with base 10: ''",
        [
            "Traceback (most recent call last):",
            '  File "train.py", line 3, in main',
            "    size = int(os.environ['WORLD_SIZE'])",
            "ValueError: invalid literal for int() with base 10: ''",
        ],
        NOTHING,
    ),
    (
        "launcher-missing",
        "ValueError: Error initializing: environment variable MASTER_PORT expected, but not set",
        [],
        NOTHING,
    ),
    ("", "KeyError: 'LOCAL_RANK'", [], NOTHING),
    (
        "ssh-port-closed",
        last("ssh: connect to host 192.168.2.58 port 22: Connection refused", 255),
        ["pdsh@gpu1: 192.168.2.58: ssh exited with exit code 255"],
        NOTHING,
    ),
    ("ssh-unreachable", last("ssh: connect to host gpu2 port 22: Connection timed out", 255), [], NOTHING),
    ("ssh-host-unknown", last("Host key verification failed.", 255), [], NOTHING),
    (
        "rendezvous-cut-off",
        "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has "
        "failed",
        ["torch.distributed.DistNetworkError: Connection reset by peer"],
        NOTHING,
    ),
    (
        "launcher-address-empty",
        last("torchrun: error: argument --master-addr/--master_addr: expected one argument"),
        [],
        NOTHING,
    ),
    ("launcher-value-empty", last("launch.py: error: argument --nproc_per_node: invalid int value: ''"), [], NOTHING),
    ("launcher-value-invalid", last("torchrun: error: argument --node_rank: invalid int value: '...'"), [], NOTHING),
    (
        "deepspeed-local-rank-first",
        last("[ERROR] [launch.py:325:sigkill_handler] exits with return code = 2"),
        [
            "spawned with command: ['/env/bin/python', '-u', 'src/train.py', '--local_rank=0', 'examples/sft.yaml']",
            "train.py: error: the following arguments are required: --output_dir/--output-dir",
        ],
        NOTHING,
    ),
    (
        "local-rank-hyphen",
        last("main.py: error: unrecognized arguments: --local-rank=0"),
        ["usage: main.py [-h] [--local_rank LOCAL_RANK]"],
        NOTHING,
    ),
    ("local-rank-of-launch", last("main.py: error: unrecognized arguments: --local-rank=0"), [], NOTHING),
    (
        "local-rank-of-launch",
        last("    main()", 1),
        [
            "train.py: error: unrecognized arguments: --local_rank=2",
            '  File "/env/lib/python3.6/site-packages/torch/distributed/launch.py", line 260, in <module>',
        ],
        NOTHING,
    ),
    ("", last("train.py: error: unrecognized arguments: --local_rank=2"), [], NOTHING),  # as deepspeed passes it
    (
        "local-rank-required",
        last("train.py: error: the following arguments are required: --local_rank"),
        [],
        NOTHING,
    ),
    (
        "launcher-script-missing",
        last("torchrun: error: the following arguments are required: training_script, training_script_args"),
        [],
        NOTHING,
    ),
    ("argument-blank", last("train.py: error: unrecognized arguments:  ", 2), [], NOTHING),
    (
        "launcher-arguments-rejected",
        last("torchrun: error: unrecognized arguments: --nproc-per-node=1"),
        [],
        NOTHING,
    ),
    ("", last("train.py: error: unrecognized arguments: --batch-size 16"), [], NOTHING),
    (
        "ssh-to-host",
        "RuntimeError: Using hostfile at /etc/hostfile but host=gpu2 was not reachable via ssh. If you are running",
        [],
        NOTHING,
    ),
    (
        "rank-beyond-world",
        "RuntimeError: connect() timed out.",
        ["initializing ddp: GLOBAL_RANK: 2, MEMBER: 3/2", STORE],
        NOTHING,
    ),
    (
        "rendezvous-refused",  # rank 1 of 2 is correct
        "RuntimeError: connect() timed out.",
        ["initializing ddp: GLOBAL_RANK: 1, MEMBER: 2/2", "[Errno 111] Connection refused"],
        NOTHING,
    ),
    (
        "ranks-twice",
        "RuntimeError: connect() timed out. Original timeout was 1800000 ms.",
        ["initializing ddp: GLOBAL_RANK: 1, MEMBER: 2/8", "LOCAL_RANK: 1", "ddp: GLOBAL_RANK: 1, MEMBER: 2/8"],
        NOTHING,
    ),
    ("several-rank-0", "RuntimeError: Address already in use", [STORE], TWO),
    ("several-rank-0-deepspeed", "RuntimeError: Address already in use", ["deepspeed.init_distributed(", STORE], TWO),
    (
        "deepspeed-without-hostfile",
        "RuntimeError: Address already in use",
        ["Unable to find hostfile, will proceed with training with local resources only.", STORE],
        TWO,
    ),
    (
        "networks-differ",
        "ncclInternalError: Internal check failed.\nLast error:\nsocketFinalizeAccept: wrong type 3 != 4",
        ["n1:1:1 [0] misc/socket.cc:484 NCCL WARN socketFinalizeAccept: wrong type 3 != 4"],
        TWO,
    ),
    ("several-rank-0-mpi", "RuntimeError: Address already in use", ["mpirun -np 2 python", STORE], TWO),
    ("", "RuntimeError: Address already in use", [STORE], RunFacts(rank=0)),
    ("", "OSError: [Errno 98] Address already in use", ["tensorboard"], TWO),
    (
        "torchrun-per-task",
        "torch.distributed.DistNetworkError: The server socket has failed to listen, code: -98, name: EADDRINUSE",
        ['  File "/env/bin/torchrun", line 8, in <module>', "srun: error: node1: task 1: Exited with exit code 1"],
        NOTHING,
    ),
    ("several-rank-0-slurm", "RuntimeError: Address already in use", [STORE, "srun: error: cn105: task 1"], NOTHING),
    ("nproc-unsupported", "ValueError: Unsupported nproc_per_node value: $GPUS", [], NOTHING),
    ("slurm-tasks-missing", "KeyError: 'SLURM_NTASKS'", [], NOTHING),
    ("slurm-option-missing", "KeyError: 'SLURM_NTASKS_PER_NODE'", [], NOTHING),
    (
        "slurm-plugin-of-lightning",
        "KeyError: 'SLURM_NODEID'",
        ['  File "/env/lightning/fabric/plugins/environments/slurm.py", line 155, in node_rank'],
        NOTHING,
    ),
    ("", "KeyError: 'SLURM_PROCID'", [], NOTHING),
    (
        "transfer-lost-later",
        REMOTE,
        ["Train:  32%|███| 200/619 [02:23<04:35,  1.52it/s]", COMPLETION.format("error 12, opcode 0, vendor err 129")],
        NOTHING,
    ),
    ("transfer-of-gpu-memory", REMOTE, [COMPLETION.format("error 4, opcode 0, vendor err 81 (Send)")], NOTHING),
    ("", REMOTE, [COMPLETION.format("status=4 opcode=0 len=0 vendor err 81 (Recv)")], NOTHING),  # or other MTUs
    ("transfer-cancelled", REMOTE, [COMPLETION.format("error 5, opcode 0, len 0, vendor err 249")], NOTHING),
    (
        "adapters-mixed",
        SYSTEM,
        [
            "n1:9:19 [0] NCCL INFO NET/IB : Using [0]mlx5_3:1/IB [1]mlx5_0:1/IB [2]mlx5_2:1/RoCE ; OOB "
            "eth0:10.0.0.4<0>",
            "n1:9:19 [0] misc/ibvwrap.cc:284 NCCL WARN Call to ibv_modify_qp failed with error Invalid argument",
        ],
        TWO,
    ),
    (
        "gid-missing",
        SYSTEM,
        ["n1:9:19 [0] misc/ibvwrap.cc:187 NCCL WARN Call to ibv_modify_qp failed with error No such device"],
        TWO,
    ),
    (
        "container-as-host",
        TIMED_OUT.format(300, "036c56dce41b"),
        [],
        NOTHING,
    ),
    (
        "dmabuf-unsupported",
        SYSTEM,
        ["n1:9:19 [0] x.cc:288 NCCL WARN Call to ibv_reg_dmabuf_mr failed with error Operation not supported"],
        NOTHING,
    ),
    (
        "interface-loopback",
        SYSTEM,
        ["n1:9:19 [0] NCCL INFO NET : Using interface lo:127.0.0.1<0>", "n1:9:19 [0] NCCL INFO bootstrap.cu:19 -> 2"],
        NOTHING,
    ),
    (
        "setting-of-one-node",
        "ncclInvalidUsage: This usually reflects",
        [
            "n1:9:19 [0] NCCL INFO NCCL_BUFFSIZE set by environment to 8388608.",
            "NCCL WARN NET/Socket : message truncated : receiving 524288 bytes instead of 65536",
        ],
        NOTHING,
    ),
    (
        "sizes-at-bootstrap",
        "ncclInternalError: Internal check failed.\nLast error:\nMessage truncated : received 256 bytes instead of 4",
        ["n1:9:19 [0] NCCL INFO bootstrap.cc:554 -> 3"],
        NOTHING,
    ),
    (
        "shm-not-writable",
        SYSTEM,
        ["node08:27106:27302 [0] include/shm.h:27 NCCL WARN Call to shm_open failed : Permission denied"],
        NOTHING,
    ),
    (
        "shm-not-shared",
        SYSTEM,
        [
            "n1:9:19 [0] misc/shmutils.cc:88 NCCL WARN Error while attaching to shared memory segment "
            "/dev/shm/nccl-Ab12 "
            "(size 192814336), error: No such file or directory (2)"
        ],
        NOTHING,
    ),
    ("bootstrap-failed", SYSTEM, ["n1:9:19 [0] NCCL INFO socket.cc:564 -> 2", "bootstrap.cc:270 -> 2"], NOTHING),
    ("address-of-container", SYSTEM, ["rank 0: local address 172.17.0.2"], TWO),
    ("peer-ended", f"{REMOTE}\nsocketProgress: Connection closed by remote peer node2<42830>", [], NOTHING),
    (
        "interface-of-variable",
        f"{REMOTE}\nsocketProgress: Connection closed by remote peer 10.0.0.5<42830>",
        ["n1:2211:2211 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to eno1"],
        NOTHING,
    ),
    (
        "name-of-container",
        f"{SYSTEM}\nsocket.cc:568 -> 2",
        ["c39f5cf046aa:4533:4533 [0] NCCL INFO NET/Socket : Using [0]eth0:10.244.0.3<0>"],
        NOTHING,
    ),
]


def selected(error: str, lines: list[str], facts: RunFacts) -> str:
    """Return the ID of the rule that explains a failure, or ""."""
    explanation = explain_failure(error, lines, facts)
    assert explanation is not None
    text = "\n".join([*lines, error])
    for rule in RULES:
        if explanation["id"] in rule.entries and match_rule(rule, text, facts) is not None:
            return rule.id
    return ""


@pytest.mark.parametrize(
    ("rule", "error", "lines", "facts"), CASES, ids=[f"{number}-{case[0]}" for number, case in enumerate(CASES)]
)
def test_evidence_selects_the_cause(rule: str, error: str, lines: list[str], facts: RunFacts) -> None:
    assert selected(error, lines, facts) == rule


def test_remedy_has_the_name_and_the_address() -> None:
    explanation = explain_failure(*unresolved("gpu-a"), TWO)
    assert explanation is not None and "the name gpu-a" in explanation["cause"] and "10.0.0.4" in explanation["remedy"]
    explanation = explain_failure(*unresolved("job-0-0.job"), NOTHING)
    assert explanation is not None and "until getent hosts job-0-0.job; do" in explanation["remedy"]
    explanation = explain_failure("KeyError: 'SLURM_NTASKS'", [], NOTHING)
    assert explanation is not None and "#SBATCH --ntasks=N" in explanation["remedy"]


def test_all_rules_for_these_topics_are_tested() -> None:
    assert {rule.id for rule in OWN_RULES} <= {case[0] for case in CASES}


@pytest.mark.parametrize(
    "piece",
    [
        "GLOBAL_RANK: 1, MEMBER: 9/8 ",
        "ddp: GLOBAL_RANK: 1, MEMBER: 2/8\n",
        "NET/IB : Using [0]mlx5_0:1/IB ",
        "NCCL WARN Got completion from peer 10.0.0.5<1> with error ",
        "network addresses of (a-1-1-",
        "Could not resolve hostname a",
        "'--local_rank=0', '",
        "unrecognized arguments: --local",
        "torchrun: error: argument --a/",
        "0123456789ab:1:",
        "connect to (0123456789a",
        "attaching to shared memory segment ",
    ],
)
def test_time_is_linear_in_the_size_of_the_log(piece: str) -> None:
    def duration(size: int) -> float:
        text = (piece * (size // len(piece) + 1))[:size]
        times = []
        for _round in range(3):
            begun = time.process_time()
            for rule in OWN_RULES:
                for pattern in (*rule.shows, *filter(None, [rule.unless])):
                    compile_pattern(pattern).search(text)
            times.append(time.process_time() - begun)
        return min(times)

    duration(100)  # compiles
    assert duration(60_000) < 12 * max(duration(15_000), 0.002)
