"""Explanations of exceptions without a catalogue entry, by class, frames and message."""

from __future__ import annotations

import string
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._failures.catalogue import explain_failure
from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.registry import CATALOGUE
from ansible_collections.muster.training.plugins.plugin_utils._failures.frames.explain import explain_raised
from ansible_collections.muster.training.plugins.plugin_utils._failures.frames.registry import RULES
from ansible_collections.muster.training.plugins.plugin_utils._failures.frames.tracebacks import Frame, RaisedError

SITE = "/opt/env/lib/python3.11/site-packages"
HEAD = "Traceback (most recent call last):"


def frame(path: str, source: str, function: str = "main", line: int = 7) -> str:
    return f'  File "{path}", line {line}, in {function}\n    {source}\n'


def log(*frames: str, error: str) -> list[str]:
    return f"{HEAD}\n{''.join(frames)}{error}".splitlines()


def explained(*frames: str, error: str) -> tuple[str, str, str]:
    """Return the ID, cause and confidence of an explanation."""
    explanation = explain_failure(error.partition("\n")[0], log(*frames, error=error))
    assert explanation is not None, error
    return explanation["id"], explanation["cause"], explanation["confidence"]


OS = frame("/usr/lib/python3.11/os.py", "raise KeyError(key) from None", "__getitem__")
CASES = [
    ("environment-variable-missing", "KeyError: 'NODE_RANK'", [("/job/train.py", 'int(os.environ["NODE_RANK"])')], OS),
    ("secret-variable-missing", "KeyError: 'MY_API_KEY'", [("/job/train.py", 'os.environ["MY_API_KEY"]')], OS),
    (
        "launcher-variable-missing",
        "KeyError: 'OMPI_COMM_WORLD_RANK'",
        [("main.py", 'opt.rank = int(os.environ["OMPI_COMM_WORLD_RANK"])')],
        OS,
    ),
    (
        "environment-variable-none",
        "TypeError: int() argument must be a string, a bytes-like object or a real number, not 'NoneType'",
        [("/job/dist.py", 'local = int(os.environ.get("GPU_OF_RANK"))')],
        "",
    ),
    (
        "removal-raced",
        "FileNotFoundError: [Errno 2] No such file or directory: 'checkpoint-30'",
        [("/job/train.py", "rotate()"), ("/usr/lib/python3.11/shutil.py", "os.rmdir(path, dir_fd=dir_fd)")],
        "",
    ),
    (
        "output-directory-missing",
        "FileNotFoundError: [Errno 2] No such file or directory: 'out/log.csv'",
        [("/job/train.py", 'with open(path, "w") as file:')],
        "",
    ),
    (
        "path-not-expanded",
        "FileNotFoundError: [Errno 2] No such file or directory: '~/data/train.json'",
        [("/job/train.py", "with open(path) as file:")],
        "",
    ),
    (
        "file-not-on-node",
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.json'",
        [("/job/train.py", "with open(path) as file:")],
        "",
    ),
    (
        "program-missing",
        "FileNotFoundError: [Errno 2] No such file or directory: 'ffmpeg'",
        [("/job/data.py", "subprocess.run(['ffmpeg', path])"), ("/usr/lib/python3.11/subprocess.py", "raise child")],
        "",
    ),
    (
        "program-failed",
        "subprocess.CalledProcessError: Command '['git', 'rev-parse']' returned non-zero exit status 128.",
        [("/job/data.py", "subprocess.check_output(command)"), ("/usr/lib/python3.11/subprocess.py", "raise Called")],
        "",
    ),
    ("path-is-directory", "IsADirectoryError: [Errno 21] Is a directory: '/data'", [("/job/a.py", "open(path)")], ""),
    (
        "unreadable-encoding",
        "UnicodeDecodeError: 'ascii' codec can't decode byte 0xe2 in position 9: ordinal not in range(128)",
        [("/job/a.py", "text = file.read()")],
        "",
    ),
    (
        "image-not-read",
        "cv2.error: OpenCV(4.8.0) resize.cpp:4062: error: (-215:Assertion failed) !ssize.empty() in function 'resize'",
        [("/job/data.py", "cv2.resize(image, size)")],
        "",
    ),
    (
        "unreadable-file",
        "OSError: Unable to synchronously open file (truncated file: eof = 96, sblock->base_addr = 0)",
        [("/job/data.py", "h5py.File(path)"), (f"{SITE}/h5py/_hl/files.py", "fid = h5f.open(name, flags)")],
        "",
    ),
    (
        "service-refused",
        "requests.exceptions.HTTPError: 401 Client Error: for url: https://example.org/api",
        [("/job/log.py", "client.post(run)"), (f"{SITE}/requests/models.py", "raise HTTPError(http_error_msg)")],
        "",
    ),
    (
        "service-busy",
        "requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: https://example.org",
        [("/job/log.py", "client.post(run)"), (f"{SITE}/requests/models.py", "raise HTTPError(http_error_msg)")],
        "",
    ),
    (
        "attribute-of-wrapped-model",
        "AttributeError: 'DistributedDataParallel' object has no attribute 'config'",
        [("/job/train.py", "model.config.use_cache"), (f"{SITE}/torch/nn/modules/module.py", "raise AttributeError(")],
        "",
    ),
    (
        "shapes-differ",
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (32x512 and 768x10)",
        [("/job/model.py", "x = self.fc(x)"), (f"{SITE}/torch/nn/modules/linear.py", "return F.linear(input)")],
        "",
    ),
    (
        "batch-of-one",
        "ValueError: Expected more than 1 value per channel when training, got input size torch.Size([1, 256])",
        [("/job/model.py", "x = self.bn(x)"), (f"{SITE}/torch/nn/functional.py", "raise ValueError(")],
        "",
    ),
    (
        "device-index-of-node",
        "IndexError: list index out of range",
        [
            ("/job/train.py", "loss = model(batch)"),
            (f"{SITE}/torch/nn/parallel/_functions.py", "if _streams[device.index] is None:"),
        ],
        "",
    ),
    (
        "module-attribute-missing",
        "AttributeError: module 'peft.utils' has no attribute 'frobnicate'",
        [("/job/train.py", "peft.utils.frobnicate()")],
        "",
    ),
    (
        "value-is-none",
        "AttributeError: 'NoneType' object has no attribute 'log'",
        [("/job/train.py", "writer.log(loss)")],
        "",
    ),
    (
        "setting-refused",
        "ValueError: unknown scheduler: cosinus",
        [("/job/train.py", "get_scheduler(name)"), (f"{SITE}/transformers/optimization.py", "raise ValueError(name)")],
        "",
    ),
    (
        "path-asserted",
        "AssertionError",
        [("/job/data/readers.py", "assert os.path.exists(root)")],
        "",
    ),
    (
        "dataset-not-downloaded",
        "RuntimeError: Dataset not found or corrupted. You can use download=True to download it",
        [
            ("/job/train.py", "trainset = torchvision.datasets.CIFAR10("),
            (f"{SITE}/torchvision/datasets/cifar.py", 'raise RuntimeError("Dataset not found or corrupted...")'),
        ],
        "",
    ),
    (
        "dataset-not-downloaded",
        "RuntimeError: The path /data/sc doesn't exist. Please check the ``root`` path or set `download=True` to "
        "download it",
        [("/job/train.py", "SPEECHCOMMANDS(root)"), (f"{SITE}/torchaudio/datasets/speechcommands.py", "raise E(m)")],
        "",
    ),
    (
        "asserted-by-script",
        "AssertionError: unknown mode",
        [("/job/train.py", "assert mode in MODES, 'unknown mode'")],
        "",
    ),
    (
        "raised-by-script",
        "ValueError: File data/mllm.json not found.",
        [("/job/loader.py", 'raise ValueError(f"File {path} not found.")')],
        "",
    ),
    ("error-in-script", "KeyError: 'speaker'", [("/job/train.py", 'target = batch["speaker"]')], ""),
    (
        "package-refused",
        "ValueError: threshold must be positive",
        [("/job/train.py", "tool.run(-1)"), (f"{SITE}/sometool/api.py", "raise ValueError(message)")],
        "",
    ),
]


@pytest.mark.parametrize(("name", "error", "frames", "inner"), CASES, ids=[case[0] for case in CASES])
def test_exception_is_explained_by_where_it_was_raised(
    name: str, error: str, frames: list[tuple[str, str]], inner: str
) -> None:
    entry, cause, _confidence = explained(*(frame(*item) for item in frames), inner, error=error)
    assert entry == name
    assert frames[0][0].rpartition("/")[2] + ":7 in main" in cause or name == "path-is-directory", cause
    without = explain_failure(error, [])
    assert without is None or without["id"] in {entry for rule in RULES for entry in rule.over}


def test_raised_message_and_its_location_are_shown_with_their_certainty() -> None:
    assert explained(
        frame("/job/loader.py", 'raise ValueError("no file")', "load", 75), error="ValueError: no file"
    ) == (
        "raised-by-script",
        'The script itself raised this error: no file (job/loader.py:75 in load (`raise ValueError("no file")`)).',
        "error",
    )
    assert explained(frame("a.py", "x = y[3]"), error="IndexError: list index out of range")[2] == "log"


MODULE = frame(f"{SITE}/torch/nn/modules/module.py", "raise AttributeError(", "__getattr__")
TORCH = frame(f"{SITE}/torch/__init__.py", "raise AttributeError(", "__getattr__")
MISSING = "AttributeError: 'Net' object has no attribute 'fc2'"


@pytest.mark.parametrize(
    ("error", "frames", "name", "cause"),
    [
        (
            f"{MISSING}. Did you mean: 'fc1'?",
            [frame("/s/net.py", "x = self.fc2(x)", "forward"), MODULE],
            "attribute-misspelled",
            "s/net.py:7 in forward (`x = self.fc2(x)`) uses fc2, which Net does not have (did you mean fc1?).",
        ),
        (
            MISSING,
            [frame("/s/net.py", "x = self.fc2(x)", "forward"), MODULE],
            "model-attribute-missing",
            "s/net.py:7 in forward (`x = self.fc2(x)`) uses fc2, which Net does not have.",
        ),
        (
            "AttributeError: 'Linear' object has no attribute 'forwad'",
            [frame("/s/net.py", "y = torch.nn.Linear(2, 2).forwad(x)"), MODULE],
            "model-attribute-missing",
            "s/net.py:7 in main (`y = torch.nn.Linear(2, 2).forwad(x)`) uses forwad, which Linear does not have.",
        ),
        (  # classes of the script and of a package that pass the attribute on
            MISSING,
            [
                frame("/s/net.py", "y = model.fc2(x)"),
                frame(f"{SITE}/wrappers/model.py", "return getattr(self.model, name)", "__getattr__"),
                frame("/s/net.py", "return super().__getattr__(name)", "__getattr__", 30),
                MODULE,
            ],
            "model-attribute-missing",
            "s/net.py:7 in main (`y = model.fc2(x)`) uses fc2, which Net does not have.",
        ),
        (
            "AttributeError: 'Data' object has no attribute 'lenght'. Did you mean: 'length'?",
            [frame("/s/data.py", "return self.lenght")],
            "attribute-misspelled",
            "s/data.py:7 in main (`return self.lenght`) uses lenght, which Data does not have (did you mean length?).",
        ),
        (
            "AttributeError: module 'torch' has no attribute 'zeroes'. Did you mean: 'zeros'?",
            [frame("/s/net.py", "torch.zeroes(2)"), TORCH],
            "attribute-misspelled",
            "s/net.py:7 in main (`torch.zeroes(2)`) uses zeroes, which torch does not have (did you mean zeros?).",
        ),
        (
            "AttributeError: module 'torch' has no attribute 'frobnicate'",
            [frame("/s/net.py", "torch.frobnicate(2)"), TORCH],
            "torch-attribute-unknown",
            "s/net.py:7 in main (`torch.frobnicate(2)`) uses torch.frobnicate, which the installed version does not "
            "have: the name is misspelled, or belongs to an older or newer version.",
        ),
    ],
)
def test_missing_attribute_is_the_mistake_of_the_line_that_reads_it(
    error: str, frames: list[str], name: str, cause: str
) -> None:
    assert explained(*frames, error=error) == (name, cause, "error")
    explanation = explain_failure(error, log(*frames, error=error))
    assert explanation is not None and explanation["remedy"].startswith("correct the name")


def test_missing_attribute_that_a_package_reads_is_a_mismatch_of_versions() -> None:
    package = frame(f"{SITE}/transformers/trainer.py", "self.model.fc2(x)", "train")
    name, cause, confidence = explained(frame("/s/net.py", "trainer.train()"), package, MODULE, error=MISSING)
    assert (name, confidence) == ("packages-do-not-fit", "log")
    assert cause.startswith("transformers, called at s/net.py:7 in main") and "newer or older" in cause
    torch = explained(
        frame("/s/net.py", "trainer.train()"),
        package,
        TORCH,
        error="AttributeError: module 'torch' has no attribute 'x'",
    )
    assert torch[0] == "torch-name-missing"


def test_known_change_of_torch_is_named_instead_of_a_similar_name() -> None:
    error = "AttributeError: module 'torch' has no attribute 'compile'. Did you mean: 'compiled'?"
    cause = explained(frame("/s/net.py", "torch.compile(net)"), TORCH, error=error)[1]
    assert "it needs torch 2" in cause


RAISES = [
    ("RuntimeError: shape mismatch on my rank", 'raise RuntimeError("shape mismatch on my rank")'),
    ("RuntimeError: shape mismatch on my rank", "raise RuntimeError("),
    ("RuntimeError: shape mismatch on my rank", 'if rank == 1: raise RuntimeError("shape mismatch on my rank")'),
    ("RuntimeError: Connection refused by the licence server", 'if full: raise RuntimeError("Connection refused by")'),
    ("KeyError: 'text'", 'raise KeyError("text")'),
    ("RuntimeError: pickling failed", 'raise RuntimeError("pickling failed")'),
    ("ZeroDivisionError: no batches", "else: raise ZeroDivisionError(message)"),
    ("TypeError: missing 1 required positional argument: 'x'", "raise TypeError(message)"),
    ("AttributeError: 'Net' object has no attribute 'x'", "raise AttributeError(name)"),
    ("RecursionError: too deep", "raise RecursionError(message)"),
]


@pytest.mark.parametrize(("error", "source"), RAISES)
def test_raise_statement_of_the_script_is_no_failed_operation(error: str, source: str) -> None:
    name, cause, confidence = explained(frame("/job/train.py", source), error=error)
    assert (name, confidence) == ("raised-by-script", "error")
    assert cause.startswith("The script itself raised this error: ") and source in cause


def test_operation_that_fails_with_such_a_message_is_still_explained() -> None:
    error = "RuntimeError: shape mismatch: value tensor of shape [3] cannot be broadcast"
    assert explained(frame("/job/train.py", "x[mask] = y"), error=error)[0] == "shapes-differ"
    raised = frame("/job/train.py", 'raise FloatingPointError("Loss is nan, stopping training")')
    assert explained(raised, error="FloatingPointError: Loss is nan, stopping training")[0] == "not-a-number"


def raise_from(inner: list[str], error: str) -> tuple[str, str]:
    """Return the ID and cause of an error that the script raised from another one."""
    link = ["", "The above exception was the direct cause of the following exception:", ""]
    outer = log(frame("/job/train.py", "raise RuntimeError(message) from error", "load", 9), error=error)
    explanation = explain_failure(error, [*inner, *link, *outer])
    assert explanation is not None
    return explanation["id"], explanation["cause"]


def test_exception_that_the_script_raised_from_another_one_names_both() -> None:
    inner = log(frame("/job/data.py", 'row["speaker"]'), error="KeyError: 'speaker'")
    assert raise_from(inner, "RuntimeError: shape mismatch on my rank") == (
        "raised-by-script",
        "The script itself raised this error: shape mismatch on my rank (job/train.py:9 in load (`raise "
        "RuntimeError(message) from error`)), because of KeyError: 'speaker', at job/data.py:7 in main "
        '(`row["speaker"]`).',
    )
    inner = log(frame("/job/data.py", "open(path)"), error="FileNotFoundError: [Errno 2] No such file: '/data/a'")
    assert raise_from(inner, "RuntimeError: no data")[0] == "file-not-on-node"


def test_certain_entry_of_the_catalogue_is_not_replaced() -> None:
    frames = frame("/job/train.py", 'raise RuntimeError("CUDA out of memory. Tried to allocate 56.00 MiB.")')
    error = "RuntimeError: CUDA out of memory. Tried to allocate 56.00 MiB."
    assert explained(frames, error=error)[0] == "cuda-out-of-memory"


def test_exception_that_caused_another_is_the_root() -> None:
    """The message of the outer exception matches no entry."""
    inner = log(frame("/job/data.py", "write(shard)"), error="OSError: [Errno 122] Disk quota exceeded: '/data/a'")
    link = ["", "The above exception was the direct cause of the following exception:", ""]
    outer = log(frame("/job/data.py", "raise BuildError(shard) from error"), error="job.BuildError: shard 3 failed")
    explanation = explain_failure("job.BuildError: shard 3 failed", [*inner, *link, *outer])
    assert explanation is not None
    assert (explanation["id"], explanation["confidence"], explanation["evidence"]) == ("disk-quota", "error", "")
    handled = ["", "During handling of the above exception, another exception occurred:", ""]
    explanation = explain_failure("job.BuildError: shard 3 failed", [*inner, *handled, *outer])
    assert explanation is not None and (explanation["id"], explanation["confidence"]) == ("disk-quota", "log")


def test_exception_of_a_dataloader_worker_counts_with_its_own_frames() -> None:
    lines = [
        *log(
            frame(f"{SITE}/torch/_utils.py", "raise exception"), error="KeyError: Caught KeyError in DataLoader worker."
        ),
        "Original Traceback (most recent call last):",
        *frame("/job/data.py", 'return row["speaker"]', "__getitem__", 41).splitlines(),
        "KeyError: 'speaker'",
    ]
    explanation = explain_failure("KeyError: Caught KeyError in DataLoader worker.\nKeyError: 'speaker'", lines)
    assert explanation is not None and explanation["id"] == "error-in-script"
    assert "data.py:41 in __getitem__" in explanation["cause"]


def test_traceback_of_another_rank_or_without_a_head_is_recognized() -> None:
    lines = [f"[rank3]: {line}" for line in log(frame("/job/a.py", "raise ValueError(x)"), error="ValueError: boom")]
    explanation = explain_failure("ValueError: boom", [*lines[1:], "[rank3]:[W1124 x.cpp:1] Warning: not destroyed"])
    assert explanation is not None and explanation["id"] == "raised-by-script"
    explanation = explain_failure("ended with exit code 1, its last output: ValueError: boom", lines[1:])
    assert explanation is not None and explanation["id"] == "raised-by-script"


@pytest.mark.parametrize(
    "error",
    [
        "was killed by SIGSEGV",
        "Signal 11 (SIGSEGV) received by PID 77",
        "Fatal Python error: Segmentation fault",
        "ended with exit code 139 (SIGSEGV)",
        "free(): invalid pointer",
    ],
)
def test_faulthandler_dump_shows_where_a_process_crashed(error: str) -> None:
    lines = [
        "Fatal Python error: Segmentation fault",
        "",
        "Thread 0x00007f21 (most recent call first):",
        '  File "/usr/lib/python3.11/threading.py", line 331 in wait',
        "",
        "Current thread 0x00007f22 (most recent call first):",
        f'  File "{SITE}/decord/video_reader.py", line 175 in get_batch',
        '  File "/job/data.py", line 41 in load',
        '  File "/job/train.py", line 9 in <module>',
    ]
    explanation = explain_failure(error, lines)
    assert explanation is not None and explanation["id"] == "native-crash"
    assert (
        "at job/data.py:41 in load (inside decord/video_reader.py:175 in get_batch): decord was"
        in (explanation["cause"])
    )
    assert explanation["remedy"].startswith("reinstall or upgrade decord;")
    assert "PYTHONFAULTHANDLER" not in explanation["remedy"]


def test_standard_library_is_not_called_a_package_that_crashed() -> None:
    lines = [
        "Fatal Python error: Segmentation fault",
        "",
        "Thread 0x00007f2c (most recent call first):",
        '  File "/usr/lib/python3.10/socket.py", line 705 in readinto',
        '  File "/venv/lib/python3.10/site-packages/torch/hub.py", line 9 in load',
        '  File "/home/me/train.py", line 12 in main',
    ]
    explanation = explain_failure("Signal 11 (SIGSEGV) received by PID 77", lines)
    assert explanation is not None and explanation["remedy"].startswith("reinstall or upgrade torch; ")
    explanation = explain_failure("Signal 11 (SIGSEGV) received by PID 77", [*lines[:4], lines[5]])
    assert explanation is not None and "socket;" not in explanation["remedy"]
    assert "socket was" not in explanation["cause"]


def test_crash_in_a_function_without_a_python_frame_is_in_the_line_that_calls_it() -> None:
    lines = [
        "Fatal Python error: Segmentation fault",
        "",
        "Current thread 0x00007f22 [python] (most recent call first):",
        '  File "/home/me/s/base.py", line 15 in <module>',
        "",
        "Extension modules: numpy._core._multiarray_umath (total: 1)",
    ]
    explanation = explain_failure("Signal 11 (SIGSEGV) received by PID 77", lines)
    assert explanation is not None and "Python was at s/base.py:15: a package was built" in explanation["cause"]
    assert "PYTHONFAULTHANDLER" not in explanation["remedy"]
    explanation = explain_failure("Signal 11 (SIGSEGV) received by PID 77", lines[:1])
    assert explanation is not None and "PYTHONFAULTHANDLER" in explanation["remedy"]


def test_texts_of_rules_are_complete() -> None:
    common = {"where", "message", "package", "path", "exception", "inner", "caller", "callee"}
    names = [rule.id for rule in RULES]
    assert len(set(names)) == len(names) >= 40
    assert not set(names) & {entry.id for entry in CATALOGUE}
    for rule in RULES:
        groups = {part.split(">")[0] for part in f"{rule.message}{rule.source}".split("(?P<")[1:]}
        for text in (rule.cause, rule.remedy):
            fields = {name for _text, name, _format, _conversion in string.Formatter().parse(text) if name}
            assert fields <= common | groups, rule.id
        assert rule.cause.endswith((".", "}")) and not rule.remedy.endswith("."), rule.id
        assert rule.title and not rule.title.endswith(".")
        assert set(rule.over) <= {entry.id for entry in CATALOGUE}


@given(st.text(max_size=300), st.text(max_size=60), st.text(max_size=300))
def test_any_text_of_a_job_is_shown_safely(message: str, name: str, source: str) -> None:
    raised = RaisedError(f"ValueError: {message}", (Frame(f"/job/{name}.py", 3, name, source),))
    for fallback in (False, True):
        explanation = explain_raised(raised, None, fallback)
        if explanation is not None:
            assert explanation["cause"].isprintable() and len(explanation["cause"]) < 2000
            assert explanation["remedy"].isprintable()


@pytest.mark.parametrize(
    "piece", ['  File "a.py", line 3, in f\n    x = y\n', f"{HEAD}\n", "'/a" * 9, "(", "a.b/" * 30]
)
def test_time_is_linear_in_the_size_of_the_log(piece: str) -> None:
    def duration(size: int) -> float:
        lines = [HEAD, *(piece * (size // len(piece))).splitlines(), "ValueError: " + piece * 9]
        begun = time.process_time()
        explain_failure("ValueError: " + piece * 9, lines)
        return time.process_time() - begun

    duration(100)
    assert duration(100_000) < 2
