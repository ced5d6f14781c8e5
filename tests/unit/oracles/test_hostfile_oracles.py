"""DeepSpeed's and Open MPI's own readers get from our hostfiles exactly the order and slots of the rank table."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._cluster.hostfile_formats import (
    HostfileError,
    parse_hostfile,
    render_deepspeed,
    render_openmpi,
)
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import (
    HostSpec,
    build_rank_table,
    ip_literal,
)
from tests.unit.generated import clusters, examples, hostfile_like
from tests.unit.oracles.open_mpi_map import open_mpi_map

needs_deepspeed = pytest.mark.skipif(
    importlib.util.find_spec("deepspeed") is None, reason="deepspeed is not installed (requirements-test.txt has it)"
)
needs_orterun = pytest.mark.skipif(
    shutil.which("orterun") is None, reason="orterun is not installed (Debian and Ubuntu: openmpi-bin)"
)
uses = st.sampled_from(["name", "address"])
HERE = socket.gethostname().partition(".")[0]

# One process for all cases, because importing DeepSpeed takes seconds: it reads a path, and writes the pool or the
# error.
DEEPSPEED = """
import json, os, sys
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # the output of DeepSpeed itself is not the result
from deepspeed.launcher.runner import fetch_hostfile
for line in sys.stdin:
    try:
        answer = list(fetch_hostfile(json.loads(line)).items())
    except Exception as exc:
        answer = str(exc)
    print(json.dumps(answer), file=answers, flush=True)
"""


class DeepSpeed:
    """DeepSpeed's launcher, asked to read one hostfile after the other."""

    def __init__(self, process: subprocess.Popen[str], hostfile: Path) -> None:
        self._process = process
        self._hostfile = hostfile

    def read(self, text: str) -> list[tuple[str, int]] | str:
        """Return the hosts and slots in the reader's order, or its error."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._hostfile.write_bytes(text.encode())
        print(json.dumps(str(self._hostfile)), file=self._process.stdin, flush=True)
        answer = json.loads(self._process.stdout.readline())
        return answer if isinstance(answer, str) else [(str(name), int(slots)) for name, slots in answer]


@pytest.fixture(scope="module")
def deepspeed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeepSpeed]:
    directory = tmp_path_factory.mktemp("deepspeed")
    with (
        (directory / "log").open("w") as log,
        subprocess.Popen(
            [sys.executable, "-c", DEEPSPEED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        yield DeepSpeed(process, directory / "hostfile")


class OpenMpi:
    """Open MPI's mpirun, asked to map a job to a hostfile without launching it."""

    def __init__(self, directory: Path) -> None:
        self._hostfile = directory / "hostfile"
        self._environment = os.environ | {
            "TMPDIR": str(directory),
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }

    def map(self, text: str) -> list[tuple[str, list[int]]] | str:
        """Return the nodes and the global ranks on each in mpirun's order, or its error."""
        self._hostfile.write_bytes(text.encode())
        settings = {
            "plm": "rsh",  # do not detect a batch system; no node is contacted
            "plm_rsh_agent": "false",
            "if_base_do_not_resolve": "1",  # made-up names would wait for a name server
        }
        command = ["orterun", "--do-not-launch", "--display-map", "--hostfile", str(self._hostfile)]
        for name, value in settings.items():
            command += ["--mca", name, value]
        command.append("true")
        nodes, complaint = open_mpi_map(command, self._environment)
        refused = not nodes or any("error" in line for line in complaint)
        return "".join(complaint) if refused else nodes


@pytest.fixture(scope="module")
def open_mpi(tmp_path_factory: pytest.TempPathFactory) -> OpenMpi:
    return OpenMpi(tmp_path_factory.mktemp("openmpi"))


def as_open_mpi_shows(name: str) -> str:
    """Open MPI 4 cuts domains off."""
    return name if ip_literal(name) else name.partition(".")[0]


def read_by_us(text: str) -> list[tuple[str, int]]:
    """Return what our parser reads from the text; a text that it rejects is not used as an example."""
    try:
        return parse_hostfile(text)
    except HostfileError:
        reject()


@needs_deepspeed
@settings(max_examples=examples(300), deadline=None)
@given(hosts=clusters(six=False), use=uses)
def test_deepspeed_reads_hosts_and_slots_of_the_rank_table(
    deepspeed: DeepSpeed, hosts: list[HostSpec], use: str
) -> None:
    table = build_rank_table(hosts, order="name")
    listed = [(getattr(node, use), node.slots) for node in table.nodes]
    assert deepspeed.read(render_deepspeed(table, use)) == listed


@needs_deepspeed
@settings(max_examples=examples(300), deadline=None)
@given(text=hostfile_like)
def test_deepspeed_agrees_with_musters_parser(deepspeed: DeepSpeed, text: str) -> None:
    hosts = read_by_us(text)
    assert deepspeed.read(text) == hosts


@needs_orterun
@settings(max_examples=examples(100), deadline=None)
@given(hosts=clusters(six=False), use=uses)
def test_open_mpi_maps_the_ranks_like_the_table(open_mpi: OpenMpi, hosts: list[HostSpec], use: str) -> None:
    table = build_rank_table(hosts, order="name")
    assume(HERE not in (as_open_mpi_shows(node.name) for node in table.nodes))  # Open MPI would put it first
    expected = [(as_open_mpi_shows(getattr(node, use)), list(node.ranks)) for node in table.nodes]
    assert open_mpi.map(render_openmpi(table, use)) == expected


@needs_orterun
@settings(max_examples=examples(100), deadline=None)
@given(text=hostfile_like)
def test_open_mpi_agrees_with_musters_parser(open_mpi: OpenMpi, text: str) -> None:
    hosts = read_by_us(text)
    assume({"localhost", HERE}.isdisjoint(dict(hosts)))  # Open MPI puts this machine first
    mapped = open_mpi.map(text)
    assert not isinstance(mapped, str), mapped
    assert [(name, len(ranks)) for name, ranks in mapped] == [(as_open_mpi_shows(name), slots) for name, slots in hosts]
    assert [rank for _name, ranks in mapped for rank in ranks] == list(range(sum(slots for _name, slots in hosts)))


# How the two read hostfiles that our parser rejects: host and slots, or None if they reject the file too. If this
# fails, a launcher has changed how it reads hostfiles, and our parser and documentation must follow.
@needs_deepspeed
@needs_orterun
@pytest.mark.parametrize(
    ("text", "of_deepspeed", "of_open_mpi"),
    [
        ("node0 slots=0\n", {"node0": 0}, None),
        ("node0 slots=4abc\n", {"node0": 4}, None),
        ("node0 slots=4.5\n", {"node0": 4}, None),
        ("node0 slots=٤\n", {"node0": 4}, None),
        ("node0 slots = 4\n", None, {"node0": 4}),
        ("node0 slots=1\r\n", {"node0": 1}, None),
        ("\ufeffnode0 slots=1\n", {"\ufeffnode0": 1}, None),
        ("# a\rnode9 slots=1\nnode0 slots=1\n", {"node9": 1, "node0": 1}, {"node0": 1}),
        ("node0\x1cslots=1\n", {"node0": 1}, None),
        ("node0 slots=1\n# the end", {"node0": 1}, None),
        ("node0 is bad slots=1\n", None, {"node0": 1}),
        ("me@node0 slots=1\n", {"me@node0": 1}, {"node0": 1}),
        ("node[0-3] slots=1\n", {"node[0-3]": 1}, None),
        ("node0,node1 slots=1\n", {"node0,node1": 1}, {"node0,node1": 1}),
        ("// node0 slots=1\nnode1 slots=1\n", None, {"node1": 1}),
        ("rank slots=2\n", {"rank": 2}, {"2": 1}),
        ("slots slots=2\n", {"slots": 2}, None),
        ("10.example.com slots=1\n", {"10.example.com": 1}, {"10": 1}),
        ("node0.a slots=1\nnode0.b slots=1\n", {"node0.a": 1, "node0.b": 1}, None),
        ("node0 slots=1\nnode0 slots=1\n", None, None),
        ("node0:4\n", None, None),
    ],
)
def test_launchers_still_read_refused_hostfiles_as_recorded(
    deepspeed: DeepSpeed,
    open_mpi: OpenMpi,
    text: str,
    of_deepspeed: dict[str, int] | None,
    of_open_mpi: dict[str, int] | None,
) -> None:
    with pytest.raises(HostfileError):
        parse_hostfile(text)
    pool, mapped = deepspeed.read(text), open_mpi.map(text)
    assert (None if isinstance(pool, str) else dict(pool)) == of_deepspeed
    assert (None if isinstance(mapped, str) else {name: len(ranks) for name, ranks in mapped}) == of_open_mpi


@needs_orterun
def test_open_mpi_gives_the_first_ranks_to_the_host_that_launches(open_mpi: OpenMpi) -> None:
    """This is why mpirun has to be started on rank 0's node."""
    assert open_mpi.map(f"node0 slots=2\n{HERE} slots=1\n") == [(HERE, [0]), ("node0", [1, 2])]
    assert open_mpi.map(f"{HERE} slots=1\nnode0 slots=2\n") == [(HERE, [0]), ("node0", [1, 2])]
