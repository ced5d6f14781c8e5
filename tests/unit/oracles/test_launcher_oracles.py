"""torch's and Lightning's own readers interpret the launchers' arguments as intended."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import (
    HostSpec,
    RankTable,
    build_rank_table,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import Job
from ansible_collections.muster.training.plugins.plugin_utils._plan.launchers.torchrun_static import TORCHRUN
from ansible_collections.muster.training.plugins.plugin_utils._plan.plan import build_node_plan, get_launcher
from tests.unit.generated import clusters, examples
from tests.unit.supervised import make_job

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed (requirements.txt has it)"
)
needs_lightning = pytest.mark.skipif(
    importlib.util.find_spec("lightning") is None, reason="lightning is not installed (requirements-test.txt has it)"
)

# One process for all cases, because importing torch takes seconds, and a separate one, because Ansible changes
# sys.intern.
TORCH_READS = """
import json, os, sys
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
os.makedirs = lambda *_arguments, **_more: None  # the log directory, which is on another machine
import torch.distributed.run as run
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import _NodeDesc
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint

def read(words):
    arguments = run.parse_args(words)
    config, _interpreter, rank_words = run.config_from_args(arguments)
    conf = dict(config.rdzv_configs)
    parameters = RendezvousParameters(
        config.rdzv_backend, config.rdzv_endpoint, config.run_id, config.min_nodes, config.max_nodes, config.local_addr,
        **conf,
    )
    timeouts = ("timeout", "join_timeout", "read_timeout")
    return {
        "nnodes": [config.min_nodes, config.max_nodes],
        "node_rank": arguments.node_rank,
        "nproc_per_node": config.nproc_per_node,
        "run_id": config.run_id,
        "max_restarts": config.max_restarts,
        "monitor_interval": config.monitor_interval,
        "backend": config.rdzv_backend,
        "endpoint": list(parse_rendezvous_endpoint(config.rdzv_endpoint, -1)),
        "local_addr": config.local_addr,
        "is_host": parameters.get_as_bool("is_host"),
        "timeouts": {key: parameters.get_as_int(key) for key in timeouts if key in conf},
        "unknown": sorted(set(conf) - {"rank", "is_host", *timeouts}),
        "log_dir": config.logs_specs.root_log_dir,
        "redirects": config.logs_specs._redirects.name,
        "rank_words": rank_words,
    }

def order(addresses):
    return [one.addr for one in sorted({_NodeDesc(address, 4711, 0) for address in addresses})]

for line in sys.stdin:
    call, given = json.loads(line)
    try:
        answer = {"read": read, "order": order}[call](given)
    except (Exception, SystemExit) as problem:
        answer = "%s: %s" % (type(problem).__name__, problem)
    print(json.dumps(answer), file=answers, flush=True)
"""
LIGHTNING = """
import json, os, sys
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
from lightning.fabric.plugins.environments import LightningEnvironment, SLURMEnvironment, TorchElasticEnvironment
for line in sys.stdin:
    os.environ.clear()
    os.environ.update(json.loads(line))
    read = LightningEnvironment()
    answer = {
        "others": [kind.__name__ for kind in (SLURMEnvironment, TorchElasticEnvironment) if kind.detect()],
        "address": [read.main_address, read.main_port],
        "node_rank": read.node_rank(),
        "processes_are_started_by_others": read.creates_processes_externally,
    }
    print(json.dumps(answer), file=answers, flush=True)
"""


class Reader:
    """A process that replies to each line of JSON with one line."""

    def __init__(self, program: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def query(self, question: Any) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        print(json.dumps(question), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def end(self) -> None:
        self.process.communicate(timeout=300)


@pytest.fixture(scope="module")
def torchrun() -> Iterator[Reader]:
    reader = Reader(TORCH_READS)
    yield reader
    reader.end()


@pytest.fixture(scope="module")
def lightning() -> Iterator[Reader]:
    reader = Reader(LIGHTNING)
    yield reader
    reader.end()


INTERPRETER = "/opt/venv/bin/python"
HOSTILE = (
    """ -- - -x -m -h --help --nnodes=9 --rdzv-id --no-python --lr=0.1 $HOME $(id) `id` ' " \\ * ~ @file é key=value"""
)
arguments = st.lists(
    st.sampled_from(["", " ", "a b", "\n", "a\nb", *HOSTILE.split()])
    | st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=9)
)
programs = st.sampled_from(["train.py", "/srv/my project/train.py", "$x/train.py", "tr'ain.py", "a.py\n"])
modules = st.sampled_from(["train", "package.module", "torch.distributed.run"])
run_ids = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", fullmatch=True)
many = settings(max_examples=examples(200))


@st.composite
def jobs(draw: st.DrawFn, backend: str) -> Job:
    is_module = draw(st.booleans())
    return make_job(
        run_id=draw(run_ids),
        launcher="torchrun",
        rdzv_backend=backend,
        script="" if is_module else draw(programs),
        module=draw(modules) if is_module else "",
        args=tuple(draw(arguments)),
        master_port=draw(st.integers(1024, 65535)),
        max_restarts=draw(st.integers(0, 10)),
        start_timeout=draw(st.integers(5, 10000)),
    )


def commands(job: Job, hosts: Iterable[HostSpec]) -> tuple[RankTable, list[list[str]]]:
    """Return the table, and the text after `python -c TORCHRUN` on each node."""
    table = get_launcher(job).order(build_rank_table(hosts))
    facts = {
        "interpreter": INTERPRETER,
        "interface": "eth0",
        "runs_directory": "/home/me/.muster/runs",
        "working_directory": {"path": "/home/me"},
    }
    result = []
    for node in table.nodes:
        command = build_node_plan(job, table, node, facts)["command"]
        assert command[:3] == [INTERPRETER, "-c", TORCHRUN]
        result.append(command[3:])
    return table, result


def as_planned(job: Job, table: RankTable, rank: int) -> dict[str, Any]:
    """Return the settings that torchrun must read on a node, for any rendezvous."""
    return {
        "nproc_per_node": table.nodes[rank].slots,
        "run_id": job.run_id,
        "max_restarts": job.max_restarts,
        "monitor_interval": 0.1,
        "backend": job.rdzv_backend,
        "endpoint": [table.master.address, job.master_port],
        "unknown": [],
        "log_dir": f"/home/me/.muster/runs/{job.run_id}/node{rank}/ranks",
        "redirects": "ALL",
        "rank_words": ["-u", *(["-m", job.module] if job.module else [job.script]), *job.args],
    }


@needs_torch
@many
@given(job=jobs("static"), hosts=clusters())
def test_torchrun_reads_static_run_as_planned(torchrun: Reader, job: Job, hosts: list[HostSpec]) -> None:
    table, result = commands(job, hosts)
    for rank, argv in enumerate(result):
        assert torchrun.query(["read", argv]) == {
            **as_planned(job, table, rank),
            "nnodes": [table.nnodes, table.nnodes],
            "node_rank": rank,
            "local_addr": None,
            "is_host": None,
            "timeouts": {"timeout": job.start_timeout},
        }


@needs_torch
@many
@given(job=jobs("c10d"), hosts=clusters(), data=st.data())
def test_torchrun_reads_c10d_run_as_planned(
    torchrun: Reader, job: Job, hosts: list[HostSpec], data: st.DataObject
) -> None:
    least = data.draw(st.none() | st.integers(1, len(hosts)))
    table, result = commands(replace(job, min_nnodes=least), hosts)
    for rank, argv in enumerate(result):
        assert torchrun.query(["read", argv]) == {
            **as_planned(job, table, rank),
            "nnodes": [least or table.nnodes, table.nnodes],
            "node_rank": 0,  # omitted: c10d would ignore it
            "local_addr": table.nodes[rank].address,
            "is_host": rank == 0,
            "timeouts": {"timeout": 900, "join_timeout": job.start_timeout, "read_timeout": job.start_timeout},
        }


@needs_torch
@many
@given(job=jobs("c10d"), hosts=clusters())
def test_c10d_orders_nodes_like_the_rank_table(torchrun: Reader, job: Job, hosts: list[HostSpec]) -> None:
    table, _plans = commands(job, hosts)
    addresses = [node.address for node in table.nodes]
    assert torchrun.query(["order", addresses]) == addresses


@needs_torch
def test_torch_reader_detects_wrong_options_and_order(torchrun: Reader) -> None:
    assert torchrun.query(["read", ["--nnodes=4:2", "train.py"]]).startswith("AssertionError: ")
    assert torchrun.query(["read", ["--no-such-option=4", "train.py"]]).startswith("SystemExit: 2")
    assert torchrun.query(["order", ["10.0.0.9", "10.0.0.10"]]) == ["10.0.0.10", "10.0.0.9"]


@needs_lightning
def test_lightning_reads_the_env_launchers_environment(lightning: Reader) -> None:
    job = make_job(launcher="env", master_port=29511)
    for address in ("10.0.0.%d", "fd00::%d"):
        table = build_rank_table([HostSpec("b", address % 9, 4), HostSpec("a", address % 10, 4)])
        for node in table.nodes:
            assert lightning.query(get_launcher(job).environment(job, table, node)) == {
                "others": [],
                "address": [address % 9, 29511],
                "node_rank": node.node_rank,
                "processes_are_started_by_others": False,
            }
