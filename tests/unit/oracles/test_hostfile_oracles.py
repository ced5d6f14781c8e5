"""DeepSpeed's and Open MPI's own readers get exactly the rank table's order and slots from the generated hostfiles."""

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
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._cluster.hostfile_formats import (
    render_deepspeed,
    render_openmpi,
)
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import (
    HostSpec,
    RankTableError,
    build_rank_table,
    ip_literal,
)
from tests.unit.generated import clusters, examples
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
    """A process of DeepSpeed's launcher that reads hostfiles."""

    def __init__(self, process: subprocess.Popen[str], hostfile: Path) -> None:
        self._process = process
        self._hostfile = hostfile

    def read(self, text: str) -> list[tuple[str, int]] | str:
        """Return the hosts and slots in the reader's order, or its error."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._hostfile.write_bytes(text.encode())
        print(json.dumps(str(self._hostfile)), file=self._process.stdin, flush=True)
        reply = json.loads(self._process.stdout.readline())
        return reply if isinstance(reply, str) else [(str(name), int(slots)) for name, slots in reply]


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
    """Open MPI's mpirun, which maps a job to a hostfile without launching it."""

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
    """Return a name as Open MPI shows it: version 4 omits domains."""
    return name if ip_literal(name) else name.partition(".")[0]


@needs_deepspeed
@settings(max_examples=examples(300), deadline=None)
@given(hosts=clusters(six=False), use=uses)
def test_deepspeed_reads_hosts_and_slots_of_the_rank_table(
    deepspeed: DeepSpeed, hosts: list[HostSpec], use: str
) -> None:
    table = build_rank_table(hosts, order="name")
    listed = [(getattr(node, use), node.slots) for node in table.nodes]
    assert deepspeed.read(render_deepspeed(table, use)) == listed


@needs_orterun
@settings(max_examples=examples(100), deadline=None)
@given(hosts=clusters(six=False), use=uses)
def test_open_mpi_maps_the_ranks_like_the_table(open_mpi: OpenMpi, hosts: list[HostSpec], use: str) -> None:
    table = build_rank_table(hosts, order="name")
    assume(HERE not in (as_open_mpi_shows(node.name) for node in table.nodes))  # Open MPI would put it first
    expected = [(as_open_mpi_shows(getattr(node, use)), list(node.ranks)) for node in table.nodes]
    assert open_mpi.map(render_openmpi(table, use)) == expected


# How the two read hosts that the rank table rejects: host and slots, or None if they reject the file too. If this
# fails, a launcher has changed how it reads hostfiles, and the rank table and its documentation must follow.
@needs_deepspeed
@needs_orterun
@pytest.mark.parametrize(
    ("hosts", "of_deepspeed", "of_open_mpi"),
    [
        ({"node0": 0}, {"node0": 0}, None),
        ({"\ufeffnode0": 1}, {"\ufeffnode0": 1}, None),
        ({"me@node0": 1}, {"me@node0": 1}, {"node0": 1}),
        ({"node[0-3]": 1}, {"node[0-3]": 1}, None),
        ({"node0,node1": 1}, {"node0,node1": 1}, {"node0,node1": 1}),
        ({"rank": 2}, {"rank": 2}, {"2": 1}),
        ({"slots": 2}, {"slots": 2}, None),
        ({"10.example.com": 1}, {"10.example.com": 1}, {"10": 1}),
        ({"node0.a": 1, "node0.b": 1}, {"node0.a": 1, "node0.b": 1}, None),
    ],
)
def test_launchers_still_read_refused_hosts_as_recorded(
    deepspeed: DeepSpeed,
    open_mpi: OpenMpi,
    hosts: dict[str, int],
    of_deepspeed: dict[str, int] | None,
    of_open_mpi: dict[str, int] | None,
) -> None:
    with pytest.raises(RankTableError):
        build_rank_table(HostSpec(name, f"192.0.2.{at}", slots) for at, (name, slots) in enumerate(hosts.items(), 1))
    text = "".join(f"{name} slots={slots}\n" for name, slots in hosts.items())
    pool, mapped = deepspeed.read(text), open_mpi.map(text)
    assert (None if isinstance(pool, str) else dict(pool)) == of_deepspeed
    assert (None if isinstance(mapped, str) else {name: len(ranks) for name, ranks in mapped}) == of_open_mpi


@needs_orterun
def test_open_mpi_gives_the_first_ranks_to_the_host_that_launches(open_mpi: OpenMpi) -> None:
    """Therefore, mpirun must be started on rank 0's node."""
    assert open_mpi.map(f"node0 slots=2\n{HERE} slots=1\n") == [(HERE, [0]), ("node0", [1, 2])]
    assert open_mpi.map(f"{HERE} slots=1\nnode0 slots=2\n") == [(HERE, [0]), ("node0", [1, 2])]
