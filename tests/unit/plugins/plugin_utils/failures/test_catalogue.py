"""The error catalogue: recorded texts match their entries, harmless ones none, hostile ones are cheap."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._failures.catalogue import (
    MAX_LINE,
    MAX_TEXT,
    explain,
    explain_failure,
    find_causes,
    subjects,
)
from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.registry import CATALOGUE
from tests.explain.offline import explain_offline

RECORDED = Path(__file__).resolve().parents[3] / "fixtures" / "errors"
TEXTS = {path.stem: path.read_text().partition("\n")[2] for path in RECORDED.glob("*.txt")}
ENTRIES = {entry.id: entry for entry in CATALOGUE}
# Texts from threads other than those in RECORDED: (entry, source, text).
ELSEWHERE = [
    (*head.split(), text)
    for head, text in (
        record.split("\n", 1) for record in (RECORDED.parent / "errors_elsewhere.txt").read_text().split("\n# ")[1:]
    )
]
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 56.00 MiB."
CLOSED = (
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.10]:41234"
)


def ids(text: str) -> list[str]:
    return [match.entry.id for match in explain(text)]


def test_each_entry_has_a_recorded_text_with_its_source() -> None:
    assert len(ENTRIES) == len(CATALOGUE) >= 40
    assert sorted(TEXTS) == sorted(ENTRIES)
    for path in RECORDED.glob("*.txt"):
        source = r"[\w.-]+/[\w.-]+#\d+|https://\S+|the guide to \w[\w ]+|a run on one H200|torch 2\.13\.0 on a CPU"
        match = re.match(rf"# source: ({source})\n.", path.read_text())
        assert match and match[1] == ENTRIES[path.stem].source, path.name


@pytest.mark.parametrize("name", ENTRIES)
def test_a_recorded_text_matches_its_own_entry_first(name: str) -> None:
    assert ids(TEXTS[name])[0] == name


@pytest.mark.parametrize(
    ("name", "source", "text"), ELSEWHERE, ids=[f"{name}-{source}" for name, source, _ in ELSEWHERE]
)
def test_a_text_from_a_different_thread_matches_its_entry_first(name: str, source: str, text: str) -> None:
    assert ids(text)[:1] == [name]
    assert source != ENTRIES[name].source


def test_texts_from_other_threads_cover_most_entries() -> None:
    assert len({name for name, _source, _text in ELSEWHERE}) >= 60
    assert len({source for _name, source, _text in ELSEWHERE}) >= 100


def test_entry_is_complete_and_matches_the_text_on_its_page() -> None:
    for name, entry in ENTRIES.items():
        assert re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name)
        arguments = entry.example.replace("...", "3")  # the part that differs from case to case
        assert ids("\n".join([arguments] * entry.min_lines))[:1] == [name]
        assert entry.cause.endswith("."), name
        assert entry.title and not entry.title.endswith(".") and not entry.remedy.endswith((".", ";")), name
        assert not re.search(r"\{[A-Z_]+\}", entry.cause + entry.remedy), f"{name}: the f of an f-string is missing"
        assert set(entry.refines) <= set(ENTRIES), name


def test_patterns_have_no_unbounded_repetition() -> None:
    for text in (text for entry in CATALOGUE for text in entry.texts):
        free = re.sub(r"\\.|\[(?:\\.|[^\]])+\]", "x", text)  # no escapes and no sets of characters
        assert not re.search(r"[*+]|\{\d*,\}", free), text


# --- Harmless messages ------------------------------------------------------------------------------------------------

HARMLESS = {
    "torchrun's banner": """\
W0325 21:16:42.796000 578 site-packages/torch/distributed/run.py:792]
W0325 21:16:42.796000 578 site-packages/torch/distributed/run.py:792] *****************************************
W0325 21:16:42.796000 578 site-packages/torch/distributed/run.py:792] Setting OMP_NUM_THREADS environment variable for \
each process to be 1 in default, to avoid your system being overloaded, please further tune the variable for optimal \
performance in your application as needed.
[W socket.cpp:601] [c10d] The client socket has failed to connect to [node1]:29500 (errno: 97 - Address family not \
supported by protocol).
[W socket.cpp:426] [c10d] The server socket has failed to bind to [::]:29500 (errno: 97 - Address family not supported).
WARNING:torch.distributed.elastic.multiprocessing.api:Sending process 812914 closing signal SIGTERM
""",
    "warnings": """\
/opt/env/lib/python3.12/site-packages/torch/cuda/amp/grad_scaler.py:126: FutureWarning: `torch.cuda.amp.GradScaler(args\
...)` is deprecated. Please use `torch.amp.GradScaler('cuda', args...)` instead.
huggingface/tokenizers: The current process just got forked, after parallelism has already been used. Disabling \
parallelism to avoid deadlocks...
To disable this warning, you can either: - Explicitly set the environment variable TOKENIZERS_PARALLELISM=(true | false)
UserWarning: Failed to initialize NumPy: No module named 'numpy' (Triggered internally at tensor_numpy.cpp:81.)
[rank0]:[W1124 ProcessGroupNCCL.cpp:1250] Warning: WARNING: process group has NOT been destroyed before we destruct \
ProcessGroupNCCL. On normal program exit, the application should call destroy_process_group
W tensorflow/stream_executor/platform/default/dso_loader.cc:64] Could not load dynamic library 'libcudart.so.11.0'; \
dlerror: libcudart.so.11.0: cannot open shared object file: No such file or directory
DistributedDataParallel: find_unused_parameters=True was specified, but did not find any unused parameters
""",
    "NCCL's ordinary words": """\
node1:275975:275975 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>
node1:275975:275975 [0] NCCL INFO NET/Plugin : Plugin load (libnccl-net.so) returned 2 : libnccl-net.so: cannot open \
shared object file: No such file or directory
node1:275975:275975 [0] NCCL INFO NET/IB : No device found.
node1:275975:275975 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to =eth0
node1:275975:275975 [0] NCCL INFO Call to connect returned Connection refused, retrying
NCCL version 2.21.5+cuda12.4
""",
    "packages that complain and work": """\
<frozen importlib._bootstrap>:219: RuntimeWarning: numpy.ndarray size changed, may indicate binary incompatibility. \
Expected 80 from C header, got 88 from PyObject
bitsandbytes/cextension.py:34: UserWarning: The installed version of bitsandbytes was compiled without GPU support. \
8-bit \
optimizers, 8-bit multiplication, and GPU quantization are unavailable.
libbitsandbytes_cpu.so: undefined symbol: cadam32bit_grad_fp32
 [WARNING]  async_io requires the dev libaio .so object and headers but these were not found.
async_io ............... [NO] ....... [NO]
OSError: [Errno 16] Device or resource busy: '.nfs00000000000f464500000da8'
[2020-12-05 17:42:22,315] [WARNING] [runner.py:122:fetch_hostfile] Unable to find hostfile, will proceed with training \
with local resources only.
localhost: Warning: Permanently added '[localhost]:3411' (RSA) to the list of known hosts.
""",
    "a training": "".join(
        f" {step}%|███▍      | {step}/100 [00:20<02:00, 1.22s/it, loss={3 / step:.3f}, mem=7.1G]\r"
        for step in range(1, 99)
    ),
    "a loss scale that settles": "\n".join(
        f"[INFO] [loss_scaler.py:183:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: "
        f"{2**power}, reducing to {2 ** (power - 1)}"
        for power in (16, 15, 14)
    ),
    "words of a text that is trained on": "In memory of the killed: the bus was full, and the error denied.\n",
    "an error that nobody knows": "Traceback (most recent call last):\n  File 'train.py'\nValueError: boom at step 5\n",
    "nothing": "",
}


RETRIED = """\
'(ProtocolError('Connection aborted.', RemoteDisconnected('Remote end closed connection without response')), '(Request \
ID: 36a7cc72-4605-416a-8742-59488d719150)')' thrown while requesting GET https://huggingface.co/datasets/org/data.zst
Retrying in 1s [Retry 1/5].
'(ReadTimeoutError("HTTPSConnectionPool(host='huggingface.co', port=443): Read timed out. (read timeout=10)"), \
'(Request \
ID: 7d76f590)')' thrown while requesting HEAD https://huggingface.co/org/model/resolve/main/adapter_config.json
WARNING:datasets.download.streaming_download_manager:Got disconnected from remote data host. Retrying in 5sec [1/20]
wandb: Network error (ConnectTimeout), entering retry loop.
[W socket.cpp:601] [c10d] The IPv6 network addresses of (localhost, 51595) cannot be retrieved (gai error: -2 - Name \
or \
service not known).
[W522 06:29:34.248915854 socket.cpp:204] [c10d] The hostname of the client socket cannot be retrieved. err=-3
[W socket.cpp:436] [c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).
"""


@pytest.mark.parametrize("text", HARMLESS.values(), ids=HARMLESS)
def test_harmless_output_is_not_an_error(text: str) -> None:
    assert ids(text) == []


def test_retried_request_in_a_log_is_not_a_cause() -> None:
    assert find_causes(RETRIED.splitlines(), "ValueError: boom") == []


def test_harmless_output_does_not_hide_an_error() -> None:
    noise = "\n".join(HARMLESS.values())
    for name, text in TEXTS.items():
        assert ids(f"{noise}\n{text}")[0] == name


# --- Order, lines -----------------------------------------------------------------------------------------------------


def test_causes_come_before_confirmations_hints_and_consequences() -> None:
    text = "\n".join(
        TEXTS[name] for name in ("nccl-time-out", "cudnn-no-algorithm", "kernel-out-of-memory", "disk-full")
    )
    assert ids(text) == ["disk-full", "kernel-out-of-memory", "cudnn-no-algorithm", "nccl-time-out"]


def test_line_is_explained_once_and_by_the_most_specific_entry() -> None:
    assert ids(
        "misc/shmutils.cc:88 NCCL WARN Error: failed to extend /dev/shm/nccl-WU88OE: No space left on device"
    ) == ["nccl-shared-memory"]
    error = "was killed by SIGKILL (the kernel killed processes for lack of memory on this node during the run)"
    assert ids(error) == ["kernel-out-of-memory"]
    assert ids("was killed by SIGKILL") == ["killed"]


def test_shown_line_has_no_control_characters_and_is_shortened() -> None:
    line = "\x1b[31mRuntimeError:\x1b[0m CUDA out of\x1b[1m memory\x1b[0m.\x07 \u202etxt\x9b2J"
    assert [match.line for match in explain(f"first\r{line}\rlast")] == ["RuntimeError: CUDA out of memory. txt 2J"]
    (match,) = explain("x" * 5000 + OOM + "y" * 5000)
    assert len(match.line) == MAX_LINE and OOM in match.line


# --- A failure --------------------------------------------------------------------------------------------------------


def test_known_error_takes_precedence_over_the_last_lines() -> None:
    explanation = explain_failure(OOM, [TEXTS["disk-full"]])
    assert explanation is not None
    entry = ENTRIES["cuda-out-of-memory"]
    assert explanation == {
        "id": entry.id,
        "cause": entry.cause,
        "remedy": entry.remedy,
        "evidence": "",
        "confidence": "error",
    }


def test_lost_node_is_explained_regardless_of_its_last_lines() -> None:
    error = "gpu2 is lost: no sign of life for 10 s (powered off, or cut off from the network)"
    explanation = explain_failure(error, TEXTS["disk-full"].splitlines())
    assert explanation is not None and explanation["id"] == "node-lost"
    assert "ansible-playbook ping.yml" in explanation["remedy"]
    assert explain_failure("RuntimeError: all is lost: no node", []) is None


@pytest.mark.parametrize(
    "error",
    [
        "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:275, invalid usage",
        "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:275, unhandled system error",
        CLOSED,
    ],
)
def test_vague_error_is_explained_by_the_last_lines(error: str) -> None:
    explanation = explain_failure(error, TEXTS["nccl-duplicate-gpu"].splitlines())
    assert explanation is not None
    assert explanation["id"] == "nccl-duplicate-gpu"
    assert explanation["evidence"] == "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 10"


def test_hints_and_consequences_do_not_explain_another_error() -> None:
    lines = [CLOSED, *TEXTS["cudnn-no-algorithm"].splitlines()]
    assert explain_failure("ValueError: boom", lines) is None
    explanation = explain_failure(CLOSED, [])
    assert explanation is not None and explanation["id"] == "gloo-peer-gone"
    hint = explain_failure(TEXTS["cudnn-no-algorithm"], [])
    assert hint is not None and hint["id"] == "cudnn-no-algorithm"


WATCHDOG = TEXTS["nccl-time-out"]


@pytest.mark.parametrize("name", [entry.id for entry in CATALOGUE if entry.weak])
def test_hint_is_only_a_possible_cause(name: str) -> None:
    explanation = explain_failure(TEXTS[name].strip(), [])
    assert explanation is not None and explanation["id"] == name
    assert explanation["confidence"] == "log"


SYSTEM_ERROR = (
    "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:275, unhandled system error\nLast error:\n"
)


@pytest.mark.parametrize(
    ("error", "lines", "evidence"),
    [
        (f"{SYSTEM_ERROR}Failed to frobnicate device mlx5_0", [], "Failed to frobnicate device mlx5_0"),
        (
            SYSTEM_ERROR,
            ["n1:1:2 [0] x.cc:9 NCCL WARN NET/New : first", "n1:1:2 [0] x.cc:9 NCCL WARN NET/New : \x1b[1mlast"],
            "NCCL WARN NET/New : last",
        ),
        (SYSTEM_ERROR, ["nothing"], ""),
    ],
    ids=["last error", "last warning", "nothing"],
)
def test_line_that_matches_no_entry_is_shown_with_a_possible_cause(error: str, lines: list[str], evidence: str) -> None:
    explanation = explain_failure(error, lines)
    assert explanation is not None
    assert (explanation["id"], explanation["confidence"], explanation["evidence"]) == (
        "nccl-system-error",
        "log",
        evidence,
    )


UNRESOLVED = (
    "[W402 socket.cpp:755] [c10d] The IPv4 network addresses of (node-0, 39227) cannot be retrieved (gai error: -2)"
)
TIMED_OUT = "DistNetworkError: The client socket has timed out after 600000ms while trying to connect to ({}, 39227)."


@pytest.mark.parametrize(
    ("error", "lines", "entry"),
    [
        (TIMED_OUT.format("node-0"), [UNRESOLVED], "name-unknown"),
        (TIMED_OUT.format("node-1"), [UNRESOLVED], "rendezvous-unreached"),
        ("ValueError: no answer from (node-0, 39227)", [UNRESOLVED], "name-unknown"),
        ("ValueError: no answer", [UNRESOLVED], ""),
        (
            "ORTE does not know how to route a message to the specified daemon\n  my node:   launcher-0-0",
            ["ssh: Could not resolve hostname launcher-0-0.jobs: Name or service not known"],
            "name-unknown",
        ),
        ("OSError: [Errno 28] No space left on device: '/data/a.pt'", [UNRESOLVED], "disk-full"),
        ("RuntimeError: Could not infer dtype of numpy.int64", [], "numpy-mismatch"),
        (
            "TypeError: expected numpy.ndarray",
            ["A module that was compiled using NumPy 1.x cannot be run in"],
            "numpy-mismatch",
        ),
        ("TypeError: expected a list", ["A module that was compiled using NumPy 1.x cannot be run in"], ""),
    ],
)
def test_line_about_the_same_host_file_or_package_is_more_specific_than_the_error(
    error: str, lines: list[str], entry: str
) -> None:
    explanation = explain_failure(error, lines)
    assert (explanation["id"] if explanation else "") == entry


def test_source_files_and_code_addresses_are_not_subjects() -> None:
    error = "RuntimeError: File \"/job/train.py\", line 3, in '/opt/env/lib/python3.11/site-packages/torch/x': boom"
    assert subjects(error) == set()
    assert subjects("FileNotFoundError: '/data/a.npy' on (gpu-1, 29500) and 10.0.0.2") == {
        "/data/a.npy", "gpu-1", "10.0.0.2"
    }  # fmt: skip


def test_cause_named_only_in_the_log_is_a_possible_cause() -> None:
    certain, possible = (
        explain_failure(TEXTS["mount-died"], []),
        explain_failure("ValueError: boom", ["", *TEXTS["mount-died"].splitlines()]),
    )
    assert certain is not None and (certain["confidence"], certain["evidence"]) == ("error", "")
    assert possible is not None and possible["confidence"] == "log" and "Transport endpoint" in possible["evidence"]
    assert explain_failure("ValueError: boom", ["Traceback", "ValueError: boom"]) is None


@pytest.mark.parametrize("error", ["was killed by SIGABRT", "ended with exit code 1, its last output: bye", ""])
def test_end_without_an_error_message_is_explained_by_consequences_in_the_log(error: str) -> None:
    explanation = explain_failure(error, WATCHDOG.splitlines())
    assert explanation is not None and (explanation["id"], explanation["confidence"]) == ("nccl-time-out", "log")


@pytest.mark.parametrize(
    ("error", "entry"),
    [
        ("was killed by SIGBUS", "bus-error"),
        ("was killed by SIGBUS (exit code 135)", "bus-error"),
        ("ended with exit code 139 (SIGSEGV), its last output: bye", "native-crash"),
        ("was killed by SIGILL", "illegal-instruction"),
        ("was killed by SIGABRT", "aborted"),
        ("was killed by SIGSEGV", "native-crash"),
        ("was killed by SIGKILL", "killed"),
    ],
)
def test_signals_are_ordinary_entries(error: str, entry: str) -> None:
    explanation = explain_failure(error, [])
    assert explanation is not None and explanation["id"] == entry


@pytest.mark.parametrize(
    ("error", "lines", "entry"),
    [
        ("OSError: [Errno 28] No space left on device: '/data/model.pt'", [], "disk-full"),
        (
            "OSError: [Errno 28] No space left on device",
            TEXTS["shared-memory-semaphores"].splitlines(),
            "shared-memory-semaphores",
        ),
        (
            "OSError: [Errno 28] No space left on device",
            TEXTS["dataloader-shared-memory"].splitlines(),
            "dataloader-shared-memory",
        ),
        ("RuntimeError: unable to write to file </torch_3_1>: No space left on device (28)", [], "shared-memory-full"),
    ],
)
def test_full_shared_memory_is_not_reported_as_a_full_disk(error: str, lines: list[str], entry: str) -> None:
    explanation = explain_failure(error, lines)
    assert explanation is not None and explanation["id"] == entry


def test_message_followed_by_progress_is_not_a_cause() -> None:
    lines = [*TEXTS["mount-died"].splitlines(), *(f"step {number} loss 0.3" for number in range(3))]
    assert explain_failure("ValueError: boom", lines) is None
    assert explain_failure("ValueError: boom", lines[:-1]) is not None


def test_lines_of_all_errors_and_of_the_window_are_matched() -> None:
    explanation = explain_failure("RuntimeError: NCCL\nLast error:\nCould not find NET with id 0", [])
    assert explanation is not None and explanation["id"] == "nccl-network-card"
    window = [*TEXTS["mpi-slots"].splitlines(), *["further help"] * 60]
    explanation = explain_failure("ended with exit code 1, its last output: help", window)
    assert explanation is not None and explanation["id"] == "mpi-slots"
    assert explain_failure("ended with exit code 1, its last output: help", [*window, *["help"] * 120]) is None


# --- Errors with little information -----------------------------------------------------------------------------------

SUMMARY = "ended with exit code 1, its last output: " + TEXTS["rank-failed"].splitlines()[0]
SYSTEM_ERROR = "ncclSystemError: System call (socket, malloc, munmap, etc) failed."


@pytest.mark.parametrize(
    ("error", "lines", "entry"),
    [
        (SUMMARY, [SYSTEM_ERROR], "nccl-system-error"),
        (SUMMARY, [*TEXTS["nccl-container-interfaces"].splitlines(), SYSTEM_ERROR], "nccl-container-interfaces"),
        (SUMMARY, ["ValueError: boom"], "rank-failed"),
        ("torch.distributed.elastic.multiprocessing.errors.ChildFailedError:", [SYSTEM_ERROR], "nccl-system-error"),
        ("was killed by SIGKILL", ["ERROR:api:failed (exitcode: -9) local_rank: 0 (pid: 178)"], "killed"),
        ("was killed by SIGKILL", [TEXTS["rank-failed"]], "killed"),
    ],
    ids=["weak", "refined", "nothing else", "exception", "line of a signal", "summary"],
)
def test_launcher_summary_is_less_specific_than_any_other_line(error: str, lines: list[str], entry: str) -> None:
    explanation = explain_failure(error, lines)
    assert explanation is not None and explanation["id"] == entry


@pytest.mark.parametrize(
    "prefix", ["", "c000001: ", "3: ", "[1,3]<stderr>:", "[rank3]: ", "node1: [rank3]: ", "(worker6, rank=6, pid=8) "]
)
def test_exception_with_a_launcher_prefix_explains_an_exit_code(prefix: str) -> None:
    line = TEXTS["dataset-cache-missing"].splitlines()[-1].partition("FileNotFoundError")
    lines = [prefix + line[1] + line[2], f"{prefix}    train_dataset = build(0)"]
    explanation = explain_failure(f"ended with exit code 1, its last output: {lines[-1]}", lines)
    assert explanation is not None and explanation["id"] == "dataset-cache-missing"


@pytest.mark.parametrize("prefix", ["WARNING: ", "[WARNING 3]: ", "wandb: ", "retry 3 after "])
def test_exception_that_is_only_quoted_in_a_line_explains_nothing(prefix: str) -> None:
    lines = [f"{prefix}FileNotFoundError: [Errno 2] No such file or directory: '/data/a'", "bye"]
    assert explain_failure("ended with exit code 1, its last output: bye", lines) is None


def test_lasting_state_explains_only_an_end_without_a_message() -> None:
    lines = ["[W CUDAFunctions.cpp:108] Warning: CUDA initialization: The NVIDIA driver on your system is too old", "x"]
    explanation = explain_failure("ended with exit code 1, its last output: x", lines)
    assert explanation is not None and (explanation["id"], explanation["confidence"]) == ("driver-too-old", "log")
    assert explain_failure("ValueError: boom", lines) is None


def test_spawn_exception_without_its_process_exception_does_not_hide_the_cause() -> None:
    error = "Exception:\n-- Process 0 terminated with the following error:"
    explanation = explain_failure(error, TEXTS["nccl-invalid-argument"].splitlines())
    assert explanation is not None and explanation["id"] == "nccl-invalid-argument"
    assert explain_failure(f"{error}\nValueError: boom", TEXTS["nccl-invalid-argument"].splitlines()) is None


def test_store_that_counts_more_workers_than_ranks_is_explained() -> None:
    (pattern,) = map(re.compile, ENTRIES["store-reused"].texts)
    for ranks in range(1, 140):
        for workers in range(1, 300):
            text = f"store based barrier on rank: 0 (world_size={ranks}, worker_count={workers}, timeout=0:30:00)"
            more = (len(str(workers)), str(workers)[0]) > (len(str(ranks)), str(ranks)[0])
            assert bool(pattern.search(text)) == (more and str(ranks)[0] != "9"), text


# --- Healthy logs -----------------------------------------------------------------------------------------------------

HEALTHY = {path.stem: path.read_text() for path in (RECORDED.parent / "healthy_logs").glob("*.txt")}
UNKNOWN = "Traceback (most recent call last):\n  File 'train.py', line 3, in <module>\nValueError: boom at 5\n"


def test_corpus_has_many_healthy_logs() -> None:
    assert len(HEALTHY) >= 60


@pytest.mark.parametrize("name", HEALTHY)
@pytest.mark.parametrize("end", [UNKNOWN, "", "bye\n"], ids=["exception", "exit code", "last words"])
def test_healthy_log_does_not_explain_an_unknown_failure(name: str, end: str) -> None:
    explanation = explain_offline({"ranks": {"0": HEALTHY[name] + end}, "exit": {"0": 3}})
    assert explanation.confidence != "error", explanation
    assert not explanation.id or end != UNKNOWN, explanation


# --- Hostile text -----------------------------------------------------------------------------------------------------


@given(
    st.lists(st.sampled_from([*TEXTS.values(), "\x1b[", "\x1b]", "\r", "\n", "\x00", "(", " "]) | st.text(), max_size=6)
)
@example(["\x1b[31", "m" * 40])
def test_any_output_of_a_job_is_handled_without_error(pieces: list[str]) -> None:
    matches = explain("".join(pieces))
    names = [match.entry.id for match in matches]
    assert len(names) == len(set(names))
    for match in matches:
        assert 0 < len(match.line) <= MAX_LINE and match.line.isprintable()


def beginnings() -> str:
    """Return one line of prefixes of entries without their continuations."""
    return "".join(text[: len(text) // 2] + " " for text in TEXTS.values() if "OVERFLOW" not in text).replace("\n", " ")


@pytest.mark.parametrize(
    "piece",
    [
        beginnings(),
        "NCCL WARN " + "c" * 50,
        "NCCL WARN connect to ",
        "CUDA out of memory ",
        "unrecognized arguments: ",
        "flash_attn flash_attn_",
        "\x1b[" + "0;" * 20,
        "\x1b]",
        "OVERFLOW! Attempted loss scale\n",
    ],
)
def test_run_time_grows_linearly_with_the_length_of_the_text(piece: str) -> None:
    def duration(size: int) -> float:
        text = (piece * (size // len(piece) + 1))[:size]
        times = []
        for _round in range(3):
            begun = time.process_time()
            explain(text)
            times.append(time.process_time() - begun)
        return min(times)

    duration(100)  # compiles
    assert duration(120_000) < 12 * max(duration(30_000), 0.001)


def test_only_the_last_part_of_a_very_long_text_is_searched() -> None:
    assert ids(OOM + "\n" + "x" * MAX_TEXT) == []
    assert ids("x" * MAX_TEXT + "\n" + OOM) == ["cuda-out-of-memory"]


def test_missing_header_in_the_log_explains_a_failed_compilation() -> None:
    error, _newline, log = TEXTS["python-headers-missing"].partition("\n")
    explanation = explain_failure(error, log.splitlines())
    assert explanation is not None and explanation["id"] == "python-headers-missing"
    assert explanation["evidence"].endswith("python_headers.h:13:10: fatal error: Python.h: No such file or directory")


UNSUPPORTED = (
    "NVIDIA GeForce RTX 4090 with CUDA capability sm_89 is not compatible with the current PyTorch installation."
)
NCCL_FAILED = "RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:47, unhandled cuda error, NCCL version 21.0.3"


@pytest.mark.parametrize(
    ("lines", "entry"),
    [
        ([UNSUPPORTED], "no-kernel-image"),
        ([UNSUPPORTED, "NCCL WARN Cuda failure 2 'out of memory'"], "nccl-out-of-memory"),
        ([], "nccl-cuda-error"),
    ],
)
def test_torch_warning_about_a_gpu_explains_a_cuda_error_inside_nccl(lines: list[str], entry: str) -> None:
    explanation = explain_failure(NCCL_FAILED, lines)
    assert explanation is not None and (explanation["id"], explanation["confidence"]) == (entry, "log")


def test_random_rendezvous_id_explains_only_a_failed_rendezvous() -> None:
    warning, error = TEXTS["rendezvous-ids-differ"].splitlines()
    explanation = explain_failure(error, [warning])
    assert explanation is not None and explanation["id"] == "rendezvous-ids-differ"
    assert explain_failure("ValueError: boom", [warning]) is None
