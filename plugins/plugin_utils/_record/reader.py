# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read a record's directory: this is the only part of a report that reads files. Everything in it may be hostile.

No link is followed out of the record, only regular files are opened, and only a bounded part of each is read.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from ansible_collections.muster.training.plugins.module_utils._files.bounded import FileWalk
from ansible_collections.muster.training.plugins.module_utils._run.gpu_samples import ACCOUNTING_FILE
from ansible_collections.muster.training.plugins.module_utils._run.job_results import encode_report, parse_report
from ansible_collections.muster.training.plugins.plugin_utils._record import code_tree, origin, snapshot
from ansible_collections.muster.training.plugins.plugin_utils._record.code_tree import read_files
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import (
    clean_text,
    parse_json,
    to_int,
    to_list,
    to_mapping,
    to_mappings,
)
from ansible_collections.muster.training.plugins.plugin_utils._record.origin import describe_origin
from ansible_collections.muster.training.plugins.plugin_utils._record.printed import (
    TooSlowError,
    compile_patterns,
    first_nodes,
    limited_time,
    rank_zero_logs,
    split_output,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.attempt_curves import (
    drop_repeated_steps,
    group_by_source,
    join_sources,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.curves import (
    Curve,
    CurveSet,
    curves_from_events,
    curves_from_job_reports,
    curves_from_metrics,
    curves_from_trainer_state,
    find_links,
    find_non_finite,
    merge_curves,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.documents import ProcessNumbers
from ansible_collections.muster.training.plugins.plugin_utils._report.event_files import read_scalars
from ansible_collections.muster.training.plugins.plugin_utils._report.gpu_accounting import read_processes
from ansible_collections.muster.training.plugins.plugin_utils._report.gpu_samples import (
    GpuSamples,
    read_gpus,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.log_excerpt import LAST_LINES
from ansible_collections.muster.training.plugins.plugin_utils._report.printed_metrics import (
    curves_from_patterns,
    curves_from_printed,
    drop_copies,
    merge_printed,
)

MAX_JSON_SIZE = 32 << 20  # bytes of a single JSON file
MAX_SAMPLES_SIZE = 512 << 20  # bytes of a single gpus.csv, which is read line by line
MAX_EVENT_FILE_SIZE = 256 << 20  # bytes of a single event file
MAX_LINES_SIZE = 64 << 20  # bytes of metrics.csv and job_results.jsonl
MAX_LINE = 1 << 16  # bytes; longer lines are skipped
MAX_FILES = 20_000  # number of files listed under logs
MAX_EVENT_FILES = 64
# bytes at the beginning of a log, where W&B prints its address, and at its end
HEAD_SIZE, TAIL_SIZE = 1 << 20, 64 << 10
CSV_NAMES = ("metrics.csv", "summary.csv", "results.csv")  # names used by Lightning, timm and Ultralytics
TABLE_NAMES = ("trainer_state.json", *CSV_NAMES, "job_results.jsonl")
OUTPUT = "the output of rank 0"  # name of the output as a source of curves
MAX_SMI_SIZE = 64 << 10  # bytes of nvidia-smi.txt


@dataclass
class NodeFiles:
    """The data read from one node's fetched files in logs/nodeN."""

    name: str
    gpus: list[GpuSamples] = field(default_factory=list)
    sampled: bool = False  # whether gpus.csv exists
    nvidia_smi: str = ""
    processes: list[ProcessNumbers] = field(default_factory=list)


@dataclass
class Record:
    """All data on a run that a report shows, unchecked: plan and result are the raw contents of their files."""

    run_id: str
    directory: Path
    plan: Any
    result: Any
    nodes: list[NodeFiles] = field(default_factory=list)
    events: list[Any] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    non_finite: dict[str, float] = field(
        default_factory=dict
    )  # metrics that were not finite, with the first step at which this happened
    # metrics that rank 0 printed once, which are not curves
    single_values: dict[str, float] = field(default_factory=dict)
    last_lines: list[str] = field(default_factory=list)  # rank 0's last lines; [] if there are curves
    links: list[str] = field(default_factory=list)
    failure_log: str = ""
    attempts: int = 0  # how many times torchrun restarted the ranks
    fetched: bool = False  # files from at least one node exist
    event_files: bool = False
    profile: Any = None  # content of profile.json
    code: dict[str, str] | None = None  # fingerprint of each file in its code; None if the code was not recorded
    origin: list[str] = field(default_factory=list)  # lines about its job file, code and requirements
    job_file: str = ""  # path on this machine
    has_snapshot: bool = False  # whether launch --like can repeat the run
    notes: list[str] = field(default_factory=list)  # data that could not be read completely


def read_record(directory: Path, run_id: str) -> Record:
    """Read whatever exists of a run's record."""
    files = RecordFiles(directory)
    plan, result = files.read_json("plan.json"), files.read_json("result.json")
    code, job_origin = read_files(files.read_json(code_tree.FILE)), files.read_json(origin.FILE)
    job_file = clean_text(to_mapping(job_origin).get("job_file"), origin.MAX_PATH)
    record = Record(run_id, directory, plan, result, code=code, origin=describe_origin(job_origin), job_file=job_file)
    record.profile = files.read_json("profile.json")
    record.has_snapshot = (directory / snapshot.FILE).is_file()
    names = [clean_text(node.get("name"), 100) for node in to_mappings(to_mapping(plan).get("nodes"))]
    paths = files.list_files("logs")
    if files.truncated:
        record.notes.append(
            f"logs has more than {MAX_FILES} files, or deeply nested directories: the remaining files were not read"
        )
    for rank, name in enumerate(names):
        record.nodes.append(
            read_node(files, f"logs/node{rank}", name, to_mappings(to_mapping(plan)["nodes"])[rank], result)
        )
    record.fetched = bool(paths)
    hub = to_int(to_mapping(result).get("hub"))  # a node other than the first, if the first was lost
    events = files.read_lines(f"logs/node{hub}/events.jsonl", MAX_LINES_SIZE)
    record.events = [parse_json(line) for line in events][-10_000:]
    firsts = first_nodes(plan, result)
    first_logs = rank_zero_logs(paths, firsts)
    restarted = set(firsts.values()) if len(firsts) > 1 else None
    reports = read_reports(files, first_logs) if restarted and len(restarted) > 1 else None
    sources, record.event_files = read_curves(files, paths, restarted, reports)
    try:
        sources.append(read_user_metrics(files, first_logs, sources, to_mapping(plan).get("metrics")))
    except TooSlowError:
        record.notes.append(
            "the patterns in launch_metrics take too long to match, so they were not used: avoid nested "
            "repetitions, such as (a+)+"
        )
    sources.append(read_printed_metrics(files, first_logs, sources))
    record.curves, record.non_finite = merge_curves(sources), find_non_finite(sources)
    record.single_values = {name: value for source in sources for name, value in source.single.items()}
    if not record.curves:
        record.last_lines = read_last_lines(files, first_logs)
    left_out = sum(source.left_out for source in sources)
    if left_out:
        record.notes.append(f"{left_out} curve values were omitted: there are too many curves, or too many values")
    record.links = find_wandb_links(files, first_logs)
    record.failure_log = read_failure_log(files, result, names)
    record.attempts = count_restarts(paths)
    return record


def read_node(files: RecordFiles, directory: str, name: str, planned: Any, result: Any) -> NodeFiles:
    """Read the samples and processes of a node's GPUs, and the output of nvidia-smi."""
    node = NodeFiles(name)
    hardware = to_mapping(to_mapping(planned).get("hardware"))
    model = clean_text(hardware.get("gpu"), 100)
    names = to_list(hardware.get("gpus"))  # number of GPUs, or each one's model
    models = {index: clean_text(entry, 100) or model for index, entry in enumerate(names)} or dict.fromkeys(
        range(64), model
    )
    with files.open_file(f"{directory}/gpus.csv") as stream:
        if stream is not None:
            node.sampled = True
            node.gpus = read_gpus(name, iter_lines(stream, MAX_SAMPLES_SIZE), models)
    node.processes = read_processes(name, files.read_lines(f"{directory}/{ACCOUNTING_FILE}", MAX_LINES_SIZE))
    node.nvidia_smi = files.read_head(f"{directory}/nvidia-smi.txt", MAX_SMI_SIZE)
    return node


def read_curves(
    files: RecordFiles,
    log_paths: list[str],
    restarted: Collection[int] | None = None,
    reports: CurveSet | None = None,
) -> tuple[list[CurveSet], bool]:
    """Return the curves of all files, and whether there are TensorBoard event files.

    Args:
        files: the files of the record.
        log_paths: the paths below logs.
        restarted: the nodes that had rank 0 in an attempt, if there were several attempts.
        reports: the results that the job reported on several nodes. None: those in a file of one node.
    """
    event_files = [path for path in log_paths if "tfevents" in path.rpartition("/")[2]]
    directories: dict[str, list[str]] = {}
    for path in event_files[:MAX_EVENT_FILES]:  # a restarted job continues its curves in another file
        directories.setdefault(path.rpartition("/")[0] + "/", []).append(path)

    def read_events(directory: str) -> CurveSet:
        return curves_from_events(source_name(directory.rstrip("/")), files.read_scalars(directories[directory]))

    names = TABLE_NAMES if reports is None else TABLE_NAMES[:-1]
    tables = [path for path in log_paths if path.rpartition("/")[2] in names]
    kinds: list[tuple[list[str], Callable[[str], CurveSet]]] = [
        (list(directories), read_events),
        (tables, functools.partial(read_table, files)),
    ]
    sources = [] if reports is None else [reports]
    for paths, read in kinds:
        groups = [[path] for path in paths] if restarted is None else group_by_source(paths, restarted)
        sources += [join_sources([read(path) for path in group]) for group in groups]
    if restarted is not None:
        for curve in (curve for source in sources for curve in source.list_curves()):
            drop_repeated_steps(curve)
    return keep_longest_state(sources), bool(event_files)


def read_table(files: RecordFiles, path: str) -> CurveSet:
    """Return the curves from a Transformers file, from a CSV file, or from the results that the job reported."""
    name = path.rpartition("/")[2]
    if name == "trainer_state.json":
        return curves_from_trainer_state(source_name(path), files.read_json(path))
    lines = files.read_lines(path, MAX_LINES_SIZE)
    if name in CSV_NAMES:
        return curves_from_metrics(source_name(path), lines, position_required=name != "metrics.csv")
    return repeated_reports(curves_from_job_reports(source_name(path), lines))


def read_reports(files: RecordFiles, first_logs: Mapping[str, list[str]]) -> CurveSet:
    """Return the curves of the results that the job reported in rank 0's output, if rank 0 ran on several nodes."""
    output = (line for logs in first_logs.values() for line in files.read_output(logs) if line is not None)
    reports = (report for line in output if (report := parse_report(line)) is not None)
    return repeated_reports(curves_from_job_reports(OUTPUT, map(encode_report, reports)))


def repeated_reports(reports: CurveSet) -> CurveSet:
    """Return the curves of the results that were reported more than once."""
    reports.curves = {name: curve for name, curve in reports.curves.items() if len(curve.value) > 1}
    return reports


def curve_names(sources: list[CurveSet]) -> list[str]:
    """Return the names of the curves of all sources."""
    return [name for source in sources for name in source.curves]


def read_user_metrics(
    files: RecordFiles, first_logs: Mapping[str, list[str]], sources: list[CurveSet], metrics: Any
) -> CurveSet:
    """Return the curves of launch_metrics in rank 0's output. Raise TooSlowError."""
    patterns = compile_patterns(metrics)
    printed = []
    with limited_time(patterns=patterns):
        for name, logs in first_logs.items() if patterns else ():
            printed.append(curves_from_patterns(name, files.read_output(logs), patterns))
    return merge_printed(OUTPUT, printed, curve_names(sources))


def read_printed_metrics(files: RecordFiles, first_logs: Mapping[str, list[str]], sources: list[CurveSet]) -> CurveSet:
    """Return the curves of the metrics that rank 0 printed, except those that another source has."""
    printed = [curves_from_printed(name, files.read_output(logs)) for name, logs in first_logs.items()]
    return drop_copies(merge_printed(OUTPUT, printed, curve_names(sources)), sources)


def read_last_lines(files: RecordFiles, first_logs: Mapping[str, list[str]]) -> list[str]:
    """Return the last lines that rank 0 printed: to stdout, or to stderr if there are none."""
    for name in sorted(first_logs, reverse=True):  # stdout.log, stderr.log, launcher.log
        lines = [line for line in files.read_tail(first_logs[name][-1], TAIL_SIZE).splitlines() if line.strip()]
        if lines:
            return lines[-LAST_LINES:]
    return []


def keep_longest_state(sources: list[CurveSet]) -> list[CurveSet]:
    """Keep only the trainer_state.json with the most points: each checkpoint has one, and their points overlap."""
    states = [source for source in sources if source.source.endswith("trainer_state.json")]
    best = max(states, key=lambda source: source.points, default=None)
    return [source for source in sources if source not in states or source is best]


def source_name(path: str) -> str:
    """Return the name of a curve's source, which is its path relative to logs."""
    return clean_text(path.removeprefix("logs/"), 200)


def find_wandb_links(files: RecordFiles, first_logs: Mapping[str, list[str]]) -> list[str]:
    """Return the URLs of W&B runs printed by rank 0, at most 10."""
    logs = sorted(path for logs in first_logs.values() for path in logs)
    addresses: dict[str, None] = {}
    for path in logs[:8]:
        for link in find_links(files.read_head(path, HEAD_SIZE)) + find_links(files.read_tail(path, TAIL_SIZE)):
            addresses[link] = None
    return list(addresses)[:10]


def read_failure_log(files: RecordFiles, result: Any, names: list[str]) -> str:
    """Return the end of the first failure's log, or an empty string if it was not fetched.

    The verdict has the path on the node; its part below nodeN is the same as below logs/nodeN here.
    """
    failure = to_mapping(to_mapping(result).get("first_failure"))
    log, node = failure.get("log"), clean_text(failure.get("node"), 100)
    if not isinstance(log, str) or node not in names:
        return ""
    rank = names.index(node)
    _before, separator, relative = log.rpartition(f"/node{rank}/")
    return files.read_tail(f"logs/node{rank}/{relative}", TAIL_SIZE) if separator else ""


def count_restarts(paths: list[str]) -> int:
    """Return how many times torchrun restarted the ranks, from the count in the names of their log directories."""
    numbers = [int(match[1]) for path in paths if (match := re.search(r"/attempt_([0-9]{1,4})/", path))]
    return max(numbers, default=0)


def iter_lines(stream: IO[bytes], limit: int) -> Iterator[str]:
    """Yield the complete lines in the first `limit` bytes of a stream, omitting those longer than MAX_LINE."""
    skipping = False
    while limit > 0 and (chunk := stream.readline(MAX_LINE)):
        limit -= len(chunk)
        complete = chunk.endswith(b"\n")
        if complete and not skipping:
            yield chunk[:-1].decode("utf-8", "replace")
        skipping = not complete


class RecordFiles:
    """The files in a directory, by their relative paths."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.truncated = False  # whether below() found more than MAX_FILES

    @contextlib.contextmanager
    def open_file(self, name: str) -> Iterator[IO[bytes] | None]:
        """Open a regular file for reading; None if it does not exist. Symbolic links on the path are not followed."""
        descriptor = self.open_descriptor(name)
        if descriptor is None:
            yield None
            return
        with os.fdopen(descriptor, "rb") as stream:
            yield stream

    def open_descriptor(self, name: str) -> int | None:
        """Open a regular file and return its descriptor, or None if it does not exist.

        Each directory on the path is opened separately, so that none can be a link.
        """
        parts = name.split("/")
        if any(part in ("", ".", "..") or "\0" in part for part in parts):
            return None
        try:
            fd = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            return None
        for number, part in enumerate(parts, 1):
            is_last = number == len(parts)
            flags = os.O_NONBLOCK if is_last else os.O_DIRECTORY
            try:
                inner_fd = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | flags, dir_fd=fd)
            except (OSError, ValueError):
                return None
            finally:
                os.close(fd)
            fd = inner_fd
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            return None
        return fd

    def read_json(self, name: str) -> Any:
        """Parse a JSON file; return None if it is missing, invalid or too large."""
        with self.open_file(name) as stream:
            if stream is None or os.fstat(stream.fileno()).st_size > MAX_JSON_SIZE:
                return None
            return parse_json(stream.read().decode("utf-8", "replace"))

    def read_lines(self, name: str, limit: int) -> Iterator[str]:
        """Yield the lines in the first `limit` bytes of a file."""
        with contextlib.ExitStack() as stack:
            stream = stack.enter_context(self.open_file(name))
            if stream is not None:
                yield from iter_lines(stream, limit)

    def read_output(self, names: list[str]) -> Iterator[str | None]:
        """Yield the lines of logs, one log after another, with None between two logs."""
        for number, name in enumerate(names):
            if number:
                yield None
            with contextlib.ExitStack() as stack:
                stream = stack.enter_context(self.open_file(name))
                if stream is not None:
                    yield from split_output(stream)

    def read_head(self, name: str, size: int) -> str:
        """Return the first `size` bytes of a file."""
        with self.open_file(name) as stream:
            return stream.read(size).decode("utf-8", "replace") if stream is not None else ""

    def read_tail(self, name: str, size: int) -> str:
        """Return the last `size` bytes of a file."""
        with self.open_file(name) as stream:
            if stream is None:
                return ""
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - size))
            return stream.read(size).decode("utf-8", "replace")

    def read_scalars(self, names: list[str]) -> Iterator[Any]:
        """Yield the scalars in event files, file by file."""
        for name in names:
            with contextlib.ExitStack() as stack:
                stream = stack.enter_context(self.open_file(name))
                if stream is not None and os.fstat(stream.fileno()).st_size <= MAX_EVENT_FILE_SIZE:
                    yield from read_scalars(stream)

    def list_files(self, name: str) -> list[str]:
        """Return the sorted paths of the regular files below a directory."""
        walk = FileWalk(str(self.directory / name), MAX_FILES)
        paths = [os.path.join(name, path) for path, _status in walk]
        self.truncated = self.truncated or walk.truncated
        return sorted(paths)
