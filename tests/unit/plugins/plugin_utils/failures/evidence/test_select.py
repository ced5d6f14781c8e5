"""Selection among the causes of an entry, by evidence in the log or facts of the run."""

from __future__ import annotations

import re
import string
import time

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._failures.catalogue import explain_failure
from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.registry import CATALOGUE
from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.registry import RULES
from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.select import match_rule
from ansible_collections.muster.training.plugins.plugin_utils._failures.facts import NOTHING, RunFacts
from ansible_collections.muster.training.plugins.plugin_utils._failures.frames.registry import RULES as FRAME_RULES

SITE = "/opt/env/lib/python3.11/site-packages"
SYSTEM_ERROR = (
    "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1275, unhandled system error\n"
    "ncclSystemError: System call failed.\nLast error:\n"
)
CONNECT = "socketStartConnect: Connect to {}<38847> failed : {}"
STORE = (
    "torch.distributed.DistNetworkError: The client socket has timed out after 60s while trying to connect to "
    "({}, 29500)."
)
TRIED = "[W socket.cpp:663] [c10d] The client socket has failed to connect to [{}]:29500 (errno: {})."
TWO = RunFacts(addresses=("10.0.0.4", "10.0.0.5"), interface="ens5", slots=(2, 2), gpus=(2, 2), port="29500")
START = (
    "DistBackendError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value "
    "store by key '0', but store->get('0') got error: {}"
)
RATIO = (
    "RuntimeError: The size of tensor a (56124554) must match the size of tensor b (14031139) at non-singleton "
    "dimension 0"
)
HANG = "the other ranks waited for it in all_reduce (train.py:88) until they timed out: it was {}"
WORKED = "was still working when rank 1 gave up waiting for it, its last output: {}; rank 1: was killed by SIGABRT"
DUPLICATE = "ncclInvalidUsage: x\nLast error:\nDuplicate GPU detected : rank {} and rank {} both on CUDA device 1000"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {}. "


def frame(path: str, function: str, source: str) -> str:
    return f'  File "{path}", line 9, in {function}\n    {source}\n'


def raised(error: str, *frames: str) -> list[str]:
    return f"Traceback (most recent call last):\n{''.join(frames)}{error}".split("\n")


CASES: list[tuple[str, str, list[str], RunFacts]] = [
    # the id of the rule, the error, the log, the facts of the run
    ("address-of-bridge", SYSTEM_ERROR + CONNECT.format("172.17.0.2", "Software caused connection abort"), [], NOTHING),
    ("peer-unreachable", SYSTEM_ERROR + CONNECT.format("10.0.0.5", "Connection timed out"), [], TWO),
    ("peer-refused", SYSTEM_ERROR + CONNECT.format("10.0.0.5", "Connection refused"), [], TWO),
    ("peer-rejected", SYSTEM_ERROR + CONNECT.format("10.0.0.5", "No route to host"), [], TWO),
    (
        "interface-of-variable",
        SYSTEM_ERROR + CONNECT.format("192.168.3.101", "Connection refused"),
        ["n1:2211:2211 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to eno1"],
        NOTHING,
    ),
    (
        "peer-refused",  # the variable has the value that muster itself set
        SYSTEM_ERROR + CONNECT.format("10.0.0.5", "Connection refused"),
        ["n1:2211:2211 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to =ens5"],
        TWO,
    ),
    (
        "bootstrap-interface",
        SYSTEM_ERROR,
        ["n1:1:1 [0] NCCL INFO Bootstrap : Using enp2:10.10.4.13<0>", "n1:1:1 [0] NCCL INFO misc/socket.cc:567 -> 2"],
        NOTHING,
    ),
    (
        "interface-not-of-node",
        SYSTEM_ERROR,
        ["n1:1:1 [0] NCCL INFO Bootstrap : Using enp2:10.10.4.13<0>", "n1:1:1 [0] NCCL INFO misc/socket.cc:567 -> 2"],
        TWO,
    ),
    (  # nodes that are all this machine
        "bootstrap-interface",
        SYSTEM_ERROR,
        ["n1:1:1 [0] NCCL INFO Bootstrap : Using enp2:10.10.4.13<0>", "n1:1:1 [0] NCCL INFO misc/socket.cc:567 -> 2"],
        RunFacts(addresses=("127.0.0.1", "127.0.0.2")),
    ),
    (
        "interface-virtual",
        SYSTEM_ERROR + CONNECT.format("10.8.0.2", "Connection timed out"),
        ["n1:1:1 [0] NCCL INFO Bootstrap : Using tun0:10.8.0.1<0>"],
        NOTHING,
    ),
    (
        "gid-of-link",
        SYSTEM_ERROR + "Call to ibv_modify_qp failed with error Connection timed out",
        ["n1:1:1 [0] NCCL INFO NCCL_IB_GID_INDEX set by environment to 1."],
        NOTHING,
    ),
    (
        "gid-of-roce",
        SYSTEM_ERROR + "Call to ibv_modify_qp failed with error Connection timed out",
        ["n1:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB bond0:10.0.0.4<0>"],
        TWO,
    ),
    (
        "rendezvous-refused",
        STORE.format("10.0.0.4"),
        [TRIED.format("::ffff:10.0.0.4", "111 - Connection refused")],
        TWO,
    ),
    (
        "rendezvous-no-answer",
        STORE.format("10.0.0.4"),
        [TRIED.format("::ffff:10.0.0.4", "110 - Connection timed out")],
        TWO,
    ),
    ("rendezvous-of-other-address", STORE.format("10.9.0.4"), [], TWO),
    ("rendezvous-on-loopback", STORE.format("127.0.1.1"), [], NOTHING),
    (
        "rendezvous-name-of-digits",
        STORE.format("05"),
        [TRIED.format("::ffff:0.0.0.5", "110 - Connection timed out")],
        NOTHING,
    ),
    (
        "rendezvous-ended",
        "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has "
        "failed.",
        [
            "The node 'n4_388_0' has failed to shutdown the rendezvous 'x' due to an error of type "
            "RendezvousConnectionError."
        ],
        NOTHING,
    ),
    (
        "nodes-missing",
        "RuntimeError: Timed out initializing process group in store based barrier on rank: 0, for key: k:1 "
        "(world_size=16, worker_count=8, timeout=0:30:00)",
        [],
        NOTHING,
    ),
    (
        "nodes-missing",
        "DistStoreError: Timed out after 901 seconds waiting for clients. 1/2 clients joined.",
        [],
        NOTHING,
    ),
    (
        "",  # a single rank may only be early
        "RuntimeError: Timed out initializing process group in store based barrier on rank: 0, for key: k:1 "
        "(world_size=4, worker_count=1, timeout=0:30:00)",
        [],
        NOTHING,
    ),
    ("rendezvous-incomplete", "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError", [], NOTHING),
    (
        "rendezvous-without-host",
        "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has "
        "failed.",
        raised(
            "RuntimeError: connect() timed out.", frame(f"{SITE}/c10d_rendezvous_backend.py", "_create_tcp_store", "x")
        ),
        NOTHING,
    ),
    ("slurm-time-limit", "slurmstepd: error: *** STEP 1.0 ON n1 CANCELLED AT 10:00 DUE TO TIME LIMIT ***", [], NOTHING),
    ("slurm-preempted", "slurmstepd: error: *** JOB 1 ON n1 CANCELLED AT 10:00 DUE TO PREEMPTION ***", [], NOTHING),
    (
        "barrier-on-first-gpu",
        "was killed by SIGABRT",
        [
            "[rank1]:[W1 x.cpp:4] [Rank 1]  using GPU 0 to perform barrier as devices used by this process are "
            "currently "
            "unknown.",
            "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE, NumelIn=1,",
        ],
        NOTHING,
    ),
    (
        "download-cut-off",
        "OSError: Consistency check failed: file should be of size 9976 but has size 3452 (model.safetensors).",
        raised(
            "OSError: Consistency check failed: file should be of size 9976 but has size 3452 (model.safetensors).",
            frame("/job/train.py", "main", "load(name)"),
            frame(f"{SITE}/huggingface_hub/file_download.py", "http_get", "raise EnvironmentError("),
        ),
        NOTHING,
    ),
    (
        "lock-held",
        "filelock._error.Timeout: The file lock '/root/.cache/x.lock' could not be acquired.",
        raised(
            "filelock._error.Timeout: The file lock '/root/.cache/x.lock' could not be acquired.",
            frame("/job/train.py", "main", "load(name)"),
            frame(f"{SITE}/filelock/_api.py", "acquire", "raise Timeout(lock_filename)"),
        ),
        NOTHING,
    ),
    (
        "argument-changed-",
        "TypeError: SFTTrainer.__init__() got an unexpected keyword argument 'tokenizer'",
        [],
        NOTHING,
    ),
    (
        "trained-while-others-ended",
        "did not arrive where 2 other ranks waited for it, its last output: step 80 loss 0.7; rank 3: Watchdog caught "
        "collective operation timeout: WorkNCCL(SeqNum=70426, OpType=ALLREDUCE, NumelIn=1)",
        [],
        NOTHING,
    ),
    (
        "trained-while-others-waited",
        "did not arrive where 2 other ranks waited for it, its last output: step 80 loss 0.7; rank 3: Watchdog caught "
        "collective operation timeout: WorkNCCL(SeqNum=70426, OpType=ALLREDUCE, NumelIn=4096)",
        [],
        NOTHING,
    ),
    ("start-of-ended-rank", START.format("Connection reset by peer"), [], NOTHING),
    ("start-of-busy-rank", START.format("wait timeout after 600000ms"), [], NOTHING),
    (
        "rendezvous-rejected",
        STORE.format("10.0.0.4"),
        [TRIED.format("::ffff:10.0.0.4", "113 - No route to host")],
        TWO,
    ),
    (
        "cuda-call-of-nccl",
        "DistBackendError: NCCL error in: x.cpp:33, unhandled cuda error\nncclUnhandledCudaError: Call failed.",
        ["n1:1:1 [0] init.cc:3 NCCL WARN Cuda failure 'invalid argument'"],
        NOTHING,
    ),
    (
        "checkpoint-of-placeholders",
        "RuntimeError: Error(s) in loading state_dict for Model:\n\tsize mismatch for layers.0.weight: copying a param "
        "with shape torch.Size([1]) from checkpoint, the shape in current model is torch.Size([8192, 1024]).",
        [],
        NOTHING,
    ),
    (
        "checkpoint-has-prefix-0",
        'RuntimeError: Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "fc.weight". \n\t'
        'Unexpected key(s) in state_dict: "module.fc.weight".',
        [],
        NOTHING,
    ),
    (
        "model-has-prefix-0",
        "RuntimeError: Error(s) in loading state_dict for DistributedDataParallel:\n\tMissing key(s) in state_dict: "
        '"module.fc.weight". \n\tUnexpected key(s) in state_dict: "fc.weight".',
        [],
        NOTHING,
    ),
    (
        "optimizer-of-other-ranks",
        RATIO,
        raised(
            RATIO,
            frame("/job/train.py", "step", "optimizer.step()"),
            frame(f"{SITE}/torch/optim/adam.py", "adam", "exp_avg.mul_(beta1).add_(grad)"),
        ),
        NOTHING,
    ),
    (
        "gloo-loopback",
        "RuntimeError: Gloo connectFullMesh failed with Connection refused, remote=[127.0.1.1]:3344",
        [],
        NOTHING,
    ),
    ("more-ranks-than-gpus", DUPLICATE.format(1, 0), [], RunFacts(slots=(4,), gpus=(1,))),
    ("more-processes-than-gpus", DUPLICATE.format(1, 0), ["Num processes: 4"], NOTHING),
    ("ranks-wrap-around", DUPLICATE.format(15, 7), [], NOTHING),
    ("", DUPLICATE.format(1, 0), [], TWO),
    ("gpus-requested", "You requested GPUs: [0, 1]\n   But your machine only has: [0]", [], NOTHING),
    (
        "gpu-by-global-rank",
        "RuntimeError: CUDA error: invalid device ordinal",
        raised(
            "RuntimeError: CUDA error: invalid device ordinal",
            frame("/job/a.py", "main", "torch.cuda.set_device(rank)"),
        ),
        NOTHING,
    ),
    (
        "gpu-chosen-by-framework",
        "RuntimeError: CUDA error: invalid device ordinal",
        ["LOCAL_RANK: 0 - CUDA_VISIBLE_DEVICES: [0,1]", "    torch.cuda.set_device(self.root_device)"],
        NOTHING,
    ),
    (
        "memory-gathered-objects",
        OOM.format("9.31 GiB"),
        raised(OOM.format("9.31 GiB"), frame(f"{SITE}/torch/distributed/c10d.py", "all_gather_object", "torch.empty(")),
        NOTHING,
    ),
    (
        "memory-of-others-0",
        OOM.format("2.00 GiB")
        + "GPU 1 has a total capacity of 79.15 GiB of which 2.25 MiB is free. Process 77 has 40.00 GiB memory in use. "
        "Including non-PyTorch memory, this process has 39.10 GiB memory in use. Of the allocated memory 38 GiB",
        [],
        NOTHING,
    ),
    (
        "memory-of-others-1",
        "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 1; 23.69 GiB total capacity; 1.02 GiB "
        "already "
        "allocated; 8.00 MiB free; 1.10 GiB reserved in total by PyTorch)",
        [],
        NOTHING,
    ),
    (
        "memory-of-others-2",
        "RuntimeError: CUDA out of memory. Tried to allocate 73.50 MiB (GPU 0; 11.17 GiB total capacity; 732.35 MiB "
        "already allocated; 60.12 MiB free; 4.90 MiB cached)",
        [],
        NOTHING,
    ),
    (
        "memory-of-logits",
        OOM.format("15.66 GiB"),
        raised(OOM.format("15.66 GiB"), frame(f"{SITE}/transformers/llama.py", "forward", "logits = logits.float()")),
        NOTHING,
    ),
    (
        "memory-fragmented",
        OOM.format("1.00 GiB")
        + "GPU 1 has a total capacity of 79.15 GiB of which 600.25 MiB is free. Including non-PyTorch memory, this "
        "process has 78.50 GiB memory in use. Of the allocated memory 60.00 GiB is allocated by PyTorch, and 17.20 GiB "
        "is reserved by PyTorch but unallocated.",
        [],
        NOTHING,
    ),
    (
        "memory-of-wrong-gpu",
        OOM.format("1.00 GiB") + "GPU 0 has a total capacity of 79.15 GiB",
        [],
        RunFacts(slots=(2, 2), rank=3),
    ),
    ("", OOM.format("1.00 GiB") + "GPU 0 has a total capacity of 79.15 GiB", [], RunFacts(slots=(2, 2), rank=2)),
    (
        "memory-of-optimizer",
        OOM.format("1.00 GiB"),
        raised(
            OOM.format("1.00 GiB"),
            frame(f"{SITE}/torch/optim/adamw.py", "step", "state['exp_avg'] = torch.zeros_like(p)"),
        ),
        NOTHING,
    ),
    (
        "memory-at-evaluation",
        OOM.format("1.00 GiB"),
        raised(OOM.format("1.00 GiB"), frame("/job/train.py", "evaluate", "logits = torch.cat(all_logits)")),
        NOTHING,
    ),
    (
        "memory-at-save",
        OOM.format("1.00 GiB"),
        raised(OOM.format("1.00 GiB"), frame("/job/train.py", "save_checkpoint", "state = model.state_dict()")),
        NOTHING,
    ),
    (
        "triton-cache-raced",
        "FileNotFoundError: [Errno 2] No such file or directory: '/home/me/.triton/cache/ab/k.ttir.tmp.pid_1' -> "
        "'/home/me/.triton/cache/ab/k.ttir'",
        [],
        NOTHING,
    ),
    (
        "download-raced",
        "RuntimeError: Dataset not found or corrupted. You can use download=True to download it",
        raised(
            "RuntimeError: Dataset not found or corrupted. You can use download=True to download it",
            frame("/job/train.py", "main", "CIFAR10(root, download=True)"),
            frame(f"{SITE}/torchvision/datasets/cifar.py", "__init__", "raise RuntimeError("),
        ),
        NOTHING,
    ),
    (
        "index-of-rank-0",
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/text_train_indexmap_57ns_doc_idx.npy'",
        [],
        NOTHING,
    ),
    (
        "upload-throttled",
        "botocore.exceptions.ClientError: An error occurred (SlowDown) when calling the UploadPart operation: Please "
        "reduce your request rate.",
        [],
        NOTHING,
    ),
    (
        "checkpoint-written-by-all",
        "RuntimeError: [enforce fail at inline_container.cc:209] . file not found: archive/data/3259494704",
        [],
        NOTHING,
    ),
    (
        "name-changed-",
        "ImportError: cannot import name 'log' from 'torch.distributed.elastic.agent.server.api' (/x.py)",
        [],
        NOTHING,
    ),
    ("waited-while-evaluating", WORKED.format("Running predictions on clic, 812/3977"), [], NOTHING),
    ("waited-while-saving", WORKED.format("Consolidating: 1/3 files written"), [], NOTHING),
    ("waited-while-downloading", WORKED.format("Downloading shards:  40%"), [], NOTHING),
    ("waited-while-compiling", WORKED.format("Building extension module cpu_adam"), [], NOTHING),
    ("waited-while-preparing", WORKED.format("Running tokenizer on dataset:   9%"), [], NOTHING),
    ("hang-stopped", HANG.format("stopped (process state T: by SIGSTOP or a debugger)"), [], NOTHING),
    ("hang-while-evaluating", HANG.format("in validate (train.py:41)"), [], NOTHING),
    ("hang-while-preparing", HANG.format("in load (data.py:41)"), [], NOTHING),
    ("hang-at-input", HANG.format("in __next__ (data.py:41), and its worker process in read (data.py:7)"), [], NOTHING),
    ("hang-on-drive", HANG.format("in open (a.py:4), in uninterruptible sleep (process state D: a disk)"), [], NOTHING),
    ("", HANG.format("in spin (train.py:41)"), [], NOTHING),
    (
        "sharded-sizes-differ",
        "ranks pass different sizes to _ALLGATHER_BASE 412: rank 0 passes 1573056 elements, rank 3 passes 19447808 "
        "elements",
        [],
        NOTHING,
    ),
    (
        "single-number-differs",
        "ranks pass different sizes to ALLREDUCE 315: rank 2 passes 1 elements, rank 0 passes 2048 elements",
        [],
        NOTHING,
    ),
    (
        "gathered-sizes-differ",
        "ranks pass different sizes to BROADCAST 9: rank 2 passes 8 elements, rank 0 passes 9",
        [],
        NOTHING,
    ),
]


def selected(error: str, lines: list[str], facts: RunFacts) -> str:
    """Return the id of the rule whose cause explains a failure, or ""."""
    explanation = explain_failure(error, lines, facts)
    assert explanation is not None, error
    text = "\n".join([*lines, error])
    for rule in RULES:
        matches = match_rule(rule, text, facts) if explanation["id"] in rule.entries else None
        if matches is not None:
            pattern = re.escape(re.sub(r"\{\w+\}", "\0", rule.cause)).replace("\0", ".{0,200}")
            assert re.fullmatch(pattern, explanation["cause"].replace("{", "").replace("}", "")), rule.id
            return rule.id
    return ""


@pytest.mark.parametrize(
    ("rule", "error", "lines", "facts"), CASES, ids=[f"{number}-{case[0]}" for number, case in enumerate(CASES)]
)
def test_evidence_selects_the_cause(rule: str, error: str, lines: list[str], facts: RunFacts) -> None:
    assert selected(error, lines, facts).startswith(rule) and (rule or not selected(error, lines, facts))


def test_remedy_names_the_interface_and_the_address_of_the_run() -> None:
    lines = ["n1:1:1 [0] NCCL INFO Bootstrap : Using enp2:10.10.4.13<0>"]
    explanation = explain_failure(SYSTEM_ERROR + "socket.cc:1 -> 2", lines, TWO)
    assert explanation is not None and '"NCCL_SOCKET_IFNAME": "ens5"' in explanation["remedy"]
    assert "10.10.4.13" in explanation["cause"]
    explanation = explain_failure(STORE.format("10.9.0.4"), [], TWO)
    assert explanation is not None and "sets it to 10.0.0.4" in explanation["remedy"]
    assert explanation["confidence"] == "error" and explanation["evidence"] == ""


def test_texts_of_rules_are_complete() -> None:
    ids = {entry.id for entry in CATALOGUE} | {rule.id for rule in FRAME_RULES} | {"hang"}
    names = [rule.id for rule in RULES]
    assert len(set(names)) == len(names) >= 60
    for rule in RULES:
        assert set(rule.entries) <= ids, rule.id
        groups = {part.split(">")[0] for text in rule.shows for part in text.split("(?P<")[1:]}
        for text in (rule.cause, rule.remedy):
            fields = {name for _text, name, _format, _conversion in string.Formatter().parse(text) if name}
            assert fields <= groups | set(NOTHING.fields), rule.id
        assert rule.cause.endswith("."), rule.id
        assert not rule.remedy.endswith((".", ";")), rule.id
        remedy = rule.remedy.format_map(dict.fromkeys([*groups, *NOTHING.fields], "x"))
        assert "{{" not in remedy and remedy.count("{") == remedy.count("}"), rule.id


def test_patterns_have_no_unbounded_repetition() -> None:
    for rule in RULES:
        for text in (*rule.shows, rule.unless):
            free = re.sub(r"\\.|\[(?:\\.|[^\]])+\]", "x", text)  # no escapes and no character sets
            assert not re.search(r"[*+]|\{\d*,\}", free), (rule.id, text)


@pytest.mark.parametrize(
    "piece",
    ["Connect to 10.", '  File "a.py", line 3, in f\n', "GPU 0 has a total capacity of 1 GiB ", "a/", "Using x:1."],
)
def test_time_is_linear_in_the_size_of_the_log(piece: str) -> None:
    lines = (piece * (200_000 // len(piece))).split("\n")
    begun = time.process_time()
    for entry in (
        "nccl-system-error",
        "cuda-out-of-memory",
        "file-missing",
        "rendezvous-unreached",
        "rank-still-worked",
    ):
        for rule in (rule for rule in RULES if entry in rule.entries):
            match_rule(rule, "\n".join(lines)[-60_000:], NOTHING)
    assert time.process_time() - begun < 10
