# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads a record's directory: the only part of a report that reads files. Everything there may be hostile.

No link is followed out of the record, only regular files are opened, and only a bounded part of each is read.

Private to this collection, controller only.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from ansible_collections.muster.training.plugins.module_utils._run.gpu_samples import ACCOUNTING_FILE
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import (
    clean,
    listed,
    mapping,
    mappings,
    moment,
    parsed,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.curves import (
    Curve,
    Curves,
    broken_in,
    from_events,
    from_metrics,
    from_said,
    from_trainer_state,
    joined,
    links,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.documents import ProcessNumbers
from ansible_collections.muster.training.plugins.plugin_utils._report.event_files import scalars
from ansible_collections.muster.training.plugins.plugin_utils._report.gpu_accounting import processes_of
from ansible_collections.muster.training.plugins.plugin_utils._report.gpu_samples import Gpu, clock_of, gpus_of

LARGEST_DOCUMENT = 32 << 20  # bytes of one JSON file
LARGEST_TABLE = 512 << 20  # bytes of one gpus.csv, which is read line by line
LARGEST_EVENTS = 256 << 20  # bytes of one event file
LARGEST_LINES = 64 << 20  # bytes of metrics.csv and said.jsonl
LONGEST_LINE = 1 << 16  # bytes; longer lines are skipped
MOST_FILES = 20_000  # listed below logs
MOST_EVENT_FILES = 64
HEAD, TAIL = 1 << 20, 64 << 10  # bytes of a log's beginning, where W&B prints its address, and of its end
SMI_LENGTH = 64 << 10  # bytes of nvidia-smi.txt


@dataclass
class NodeFiles:
    """The data read from one node's fetched files below logs/nodeN."""

    name: str
    gpus: list[Gpu] = field(default_factory=list)
    sampled: bool = False  # there is a gpus.csv
    nvidia_smi: str = ""
    processes: list[ProcessNumbers] = field(default_factory=list)


@dataclass
class Record:
    """All data of a run that a report shows, unchecked: plan and result are whatever their files contain."""

    run_id: str
    directory: Path
    plan: Any
    result: Any
    nodes: list[NodeFiles] = field(default_factory=list)
    events: list[Any] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    broken: dict[str, float] = field(default_factory=dict)  # measures that were not finite, with the first such step
    links: list[str] = field(default_factory=list)
    failure_log: str = ""
    attempts: int = 0  # how often torchrun restarted the ranks
    fetched: bool = False  # files of at least one node exist
    event_files: bool = False
    notes: list[str] = field(default_factory=list)  # what could not be read completely


def read_record(directory: Path, run_id: str) -> Record:
    """The record of a run, as far as it exists."""
    files = Files(directory)
    plan, result = files.document("plan.json"), files.document("result.json")
    record = Record(run_id, directory, plan, result)
    names = [clean(node.get("name"), 100) for node in mappings(mapping(plan).get("nodes"))]
    found = files.below("logs")
    if files.more:
        record.notes.append(f"logs has more than {MOST_FILES} files: the rest were not read")
    for rank, name in enumerate(names):
        record.nodes.append(read_node(files, f"logs/node{rank}", name, mappings(mapping(plan)["nodes"])[rank], result))
    record.fetched = bool(found)
    record.events = [parsed(line) for line in files.lines("logs/node0/events.jsonl", LARGEST_LINES)][-10_000:]
    sources, record.event_files = curves_of(files, found)
    record.curves, record.broken = joined(sources), broken_in(sources)
    left_out = sum(source.left_out for source in sources)
    if left_out:
        record.notes.append(f"{left_out} values of curves were left out: there are too many curves, or too long ones")
    record.links = links_of(files, found)
    record.failure_log = failure_log(files, result, names)
    record.attempts = attempts_of(found)
    return record


def read_node(files: Files, where: str, name: str, planned: Any, result: Any) -> NodeFiles:
    """The samples and processes of a node's GPUs, and the output of nvidia-smi."""
    node = NodeFiles(name)
    clock = clock_of(files.document(f"{where}/clock.json"), moment(mapping(result).get("started")))
    hardware = mapping(mapping(planned).get("hardware"))
    model = clean(hardware.get("gpu"), 100)
    names = listed(hardware.get("gpus"))  # their number, or the model of each
    models = {place: clean(one, 100) or model for place, one in enumerate(names)} or dict.fromkeys(range(64), model)
    with files.opened(f"{where}/gpus.csv") as stream:
        if stream is not None:
            node.sampled = True
            node.gpus = gpus_of(name, lines_of(stream, LARGEST_TABLE), clock, models)
    node.processes = processes_of(name, files.lines(f"{where}/{ACCOUNTING_FILE}", LARGEST_LINES))
    node.nvidia_smi = files.head(f"{where}/nvidia-smi.txt", SMI_LENGTH)
    return node


def curves_of(files: Files, found: list[str]) -> tuple[list[Curves], bool]:
    """The curves of all files, in the order of their names; and whether there are TensorBoard event files."""
    sources: list[Curves] = []
    event_files = [path for path in found if "tfevents" in path.rpartition("/")[2]]
    groups: dict[str, list[str]] = {}
    for path in event_files[:MOST_EVENT_FILES]:  # a restarted job continues its curves in another file
        groups.setdefault(path.rpartition("/")[0], []).append(path)
    for folder, paths in groups.items():
        sources.append(from_events(source_of(folder), files.scalars(paths)))
    for path in found:
        name = path.rpartition("/")[2]
        if name == "trainer_state.json":
            sources.append(from_trainer_state(source_of(path), files.document(path)))
        elif name == "metrics.csv":
            sources.append(from_metrics(source_of(path), files.lines(path, LARGEST_LINES)))
        elif name == "said.jsonl":
            told = from_said(source_of(path), files.lines(path, LARGEST_LINES))
            told.found = {name: curve for name, curve in told.found.items() if len(curve.value) > 1}
            sources.append(told)
    return newest_state(sources), bool(event_files)


def newest_state(sources: list[Curves]) -> list[Curves]:
    """Keep one trainer_state.json, the one with the most points: each checkpoint has one, and they repeat points."""
    states = [source for source in sources if source.source.endswith("trainer_state.json")]
    best = max(states, key=lambda source: source.points, default=None)
    return [source for source in sources if source not in states or source is best]


def source_of(path: str) -> str:
    """A path below logs as a curve's source: from the node's directory on."""
    return clean(path.removeprefix("logs/"), 200)


def links_of(files: Files, found: list[str]) -> list[str]:
    """The addresses of W&B runs printed by rank 0, at most 10."""
    logs = [path for path in found if re.match(r"logs/node0/ranks/(?:.*/)?0/std(?:out|err)\.log\Z", path)]
    logs += [path for path in found if path == "logs/node0/launcher.log"]
    seen: dict[str, None] = {}
    for path in logs[:8]:
        for link in links(files.head(path, HEAD)) + links(files.tail(path, TAIL)):
            seen[link] = None
    return list(seen)[:10]


def failure_log(files: Files, result: Any, names: list[str]) -> str:
    """The end of the log of the first failure, "" if it was not fetched.

    The verdict has the path on the node; its part below nodeN is the same as below logs/nodeN here.
    """
    failure = mapping(mapping(result).get("first_failure"))
    log, node = failure.get("log"), clean(failure.get("node"), 100)
    if not isinstance(log, str) or node not in names:
        return ""
    rank = names.index(node)
    _before, there, rest = log.rpartition(f"/node{rank}/")
    return files.tail(f"logs/node{rank}/{rest}", TAIL) if there else ""


def attempts_of(found: list[str]) -> int:
    """How often torchrun restarted the ranks, from the count in the names of their log directories."""
    numbers = [int(match[1]) for path in found if (match := re.search(r"/attempt_([0-9]{1,4})/", path))]
    return max(numbers, default=0)


def lines_of(stream: IO[bytes], most: int) -> Iterator[str]:
    """The complete lines in the first bytes of a stream, without those longer than LONGEST_LINE. most: bytes."""
    skipping = False
    while most > 0 and (piece := stream.readline(LONGEST_LINE)):
        most -= len(piece)
        whole = piece.endswith(b"\n")
        if whole and not skipping:
            yield piece[:-1].decode("utf-8", "replace")
        skipping = not whole


class Files:
    """The files of one directory, by their names below it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.more = False  # whether below() found more than MOST_FILES

    @contextlib.contextmanager
    def opened(self, name: str) -> Iterator[IO[bytes] | None]:
        """A regular file opened for reading, None if there is none. No symbolic link on the path is followed."""
        descriptor = self.descriptor(name)
        if descriptor is None:
            yield None
            return
        with os.fdopen(descriptor, "rb") as stream:
            yield stream

    def descriptor(self, name: str) -> int | None:
        """Open each directory on the path separately, so that none can be a link; None if there is no such file."""
        parts = name.split("/")
        if any(part in ("", ".", "..") or "\0" in part for part in parts):
            return None
        try:
            place = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            return None
        for number_of, part in enumerate(parts, 1):
            last = number_of == len(parts)
            flags = os.O_NONBLOCK if last else os.O_DIRECTORY
            try:
                inner = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | flags, dir_fd=place)
            except (OSError, ValueError):
                return None
            finally:
                os.close(place)
            place = inner
        if not stat.S_ISREG(os.fstat(place).st_mode):
            os.close(place)
            return None
        return place

    def document(self, name: str) -> Any:
        """A parsed JSON file, None if it is missing, invalid or too large."""
        with self.opened(name) as stream:
            if stream is None or os.fstat(stream.fileno()).st_size > LARGEST_DOCUMENT:
                return None
            return parsed(stream.read().decode("utf-8", "replace"))

    def lines(self, name: str, most: int) -> Iterator[str]:
        """The lines of a file."""
        with contextlib.ExitStack() as held:
            stream = held.enter_context(self.opened(name))
            if stream is not None:
                yield from lines_of(stream, most)

    def head(self, name: str, size: int) -> str:
        """The beginning of a file."""
        with self.opened(name) as stream:
            return stream.read(size).decode("utf-8", "replace") if stream is not None else ""

    def tail(self, name: str, size: int) -> str:
        """The end of a file."""
        with self.opened(name) as stream:
            if stream is None:
                return ""
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - size))
            return stream.read(size).decode("utf-8", "replace")

    def scalars(self, names: list[str]) -> Iterator[Any]:
        """The scalars of event files, file by file."""
        for name in names:
            with contextlib.ExitStack() as held:
                stream = held.enter_context(self.opened(name))
                if stream is not None and os.fstat(stream.fileno()).st_size <= LARGEST_EVENTS:
                    yield from scalars(stream)

    def below(self, name: str) -> list[str]:
        """The names of the regular files below a directory, sorted."""
        found: list[str] = []
        refuse: Callable[[OSError], None] = lambda _problem: None  # noqa: E731
        for place, folders, files in os.walk(self.directory / name, onerror=refuse, followlinks=False):
            folders.sort()
            relative = Path(place).relative_to(self.directory)
            for file in files:
                if len(found) >= MOST_FILES:
                    self.more = True
                    return sorted(found)
                found.append(str(relative / file))
        return sorted(found)
