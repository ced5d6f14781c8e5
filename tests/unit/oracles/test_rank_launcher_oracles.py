"""DeepSpeed's, Accelerate's and Open MPI's own code always derives the rank table's ranks from the generated files."""

from __future__ import annotations

import dataclasses
import importlib.util
import ipaddress
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._supervisor.programs import muster_rank
from ansible_collections.muster.training.plugins.plugin_utils._checks.deepspeed_config import (
    BATCH,
    MICRO,
    STEPS,
    check_batch_sizes,
    complete_sizes,
)
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import (
    HostSpec,
    RankTable,
    build_rank_table,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import Job
from ansible_collections.muster.training.plugins.plugin_utils._plan.launchers.base import common_network
from ansible_collections.muster.training.plugins.plugin_utils._plan.plan import build_node_plan, get_launcher
from tests.unit.generated import clusters, examples
from tests.unit.oracles.open_mpi_map import open_mpi_map
from tests.unit.supervised import make_job

HERE = socket.gethostname().partition(".")[0]


def needs(*modules: str) -> pytest.MarkDecorator:
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(
        bool(missing), reason=f"{', '.join(missing)} not installed (requirements-test.txt has it)"
    )


needs_orterun = pytest.mark.skipif(
    shutil.which("orterun") is None, reason="orterun is not installed (Debian and Ubuntu: openmpi-bin)"
)

# One process for all cases, because its imports take seconds. Nothing is started: processes are only recorded.
COMMON = """
import json, os, subprocess, sys, time
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

class Started:
    log = []
    def __init__(self, command, env=None, **_more):
        self.log.append((list(command), dict(env or {})))
        self.pid, self.returncode = 4711, 0
    def poll(self): return 0
    def wait(self): return 0

def answer_all(answer):
    for line in sys.stdin:
        try:
            found = answer(json.loads(line))
        except (Exception, SystemExit) as problem:
            found = "%s: %s" % (type(problem).__name__, problem)
        print(json.dumps(found), file=answers, flush=True)
"""
DEEPSPEED = (
    COMMON
    + """
os.environ["DS_ACCELERATOR"] = "cpu"
os.environ["DS_ENV_FILE"] = os.path.join(os.environ["TMPDIR"], "deepspeed_env")
from deepspeed.launcher import launch, runner
from deepspeed.runtime.config import DeepSpeedConfig
runner.subprocess = launch.subprocess = type("S", (), {"Popen": Started, "CalledProcessError": Exception})
launch.time = type("T", (), {"sleep": lambda _s: None})
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

def answer(asked):
    kind, given = asked
    if kind == "runner":  # what `deepspeed` itself would start
        Started.log.clear()
        runner.main(given)
        return [command for command, _env in Started.log]
    if kind == "launch":  # what its launcher on a node would start
        Started.log.clear()
        sys.argv = given
        launch.main()
        return [[command, [env[name] for name in names]] for command, env in Started.log]
    config = object.__new__(DeepSpeedConfig)
    batch, micro, steps, config.world_size = given
    config.train_batch_size, config.train_micro_batch_size_per_gpu = batch, micro
    config.gradient_accumulation_steps = steps
    config._configure_train_batch_size()
    return [config.train_batch_size, config.train_micro_batch_size_per_gpu, config.gradient_accumulation_steps]

answer_all(answer)
"""
)
ACCELERATE = (
    COMMON
    + """
import torch.distributed.run as run
import accelerate.commands.launch as launch
import accelerate.utils.launch as tools
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint
tools.is_port_in_use = lambda _port: False
heard = []
run.run = heard.append

def answer(words):
    heard.clear()
    arguments = launch.launch_command_parser().parse_args(words)
    launch.launch_command(arguments)
    (found,) = heard
    config, _interpreter, rank_words = run.config_from_args(found)
    return {
        "nnodes": [config.min_nodes, config.max_nodes],
        "node_rank": found.node_rank,
        "nproc_per_node": config.nproc_per_node,
        "backend": config.rdzv_backend,
        "endpoint": list(parse_rendezvous_endpoint(config.rdzv_endpoint, -1)),
        "no_python": found.no_python,
        "words": [found.training_script, *found.training_script_args],
    }

answer_all(answer)
"""
)


class Reader:
    """A process that replies to each line of JSON with one line."""

    def __init__(self, program: str, log: Path) -> None:
        self.log = log.open("w")
        self.process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(log.parent)},
        )

    def query(self, question: Any) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        print(json.dumps(question), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def end(self) -> None:
        self.process.communicate(timeout=300)
        self.log.close()


@pytest.fixture(scope="module")
def deepspeed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    reader = Reader(DEEPSPEED, tmp_path_factory.mktemp("deepspeed") / "log")
    yield reader
    reader.end()


@pytest.fixture(scope="module")
def accelerate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    reader = Reader(ACCELERATE, tmp_path_factory.mktemp("accelerate") / "log")
    yield reader
    reader.end()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


def planned(runs: Path, job: Job, hosts: list[HostSpec]) -> tuple[RankTable, list[dict[str, Any]]]:
    """Return the plans of all nodes, after writing their files."""
    table = get_launcher(job).order(build_rank_table(hosts))
    facts = {
        "interpreter": "/opt/venv/bin/python",
        "interface": "eth0",
        "runs_directory": str(runs),
        "working_directory": {"path": "/home/me"},
    }
    plans: list[Any] = [build_node_plan(job, table, node, facts) for node in table.nodes]
    for rank, plan in enumerate(plans):
        directory = runs / job.run_id / f"node{rank}"
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in plan["files"].items():
            (directory / name).write_text(text)
    return table, plans


def job_of(launcher: str, **options: Any) -> Job:
    return make_job(run_id="oracle", launcher=launcher, master_port=29511, **options)


def assert_ranks_of(table: RankTable, rank: int, started: list[tuple[list[str], list[str]]], master: str) -> None:
    """Assert that DeepSpeed's launcher starts the table's ranks on a node."""
    node = table.nodes[rank]
    assert [int(values[0]) for _command, values in started] == list(node.ranks)
    assert sorted(int(values[1]) for _command, values in started) == list(range(node.slots))
    for command, values in started:
        assert values[2:] == [str(table.world_size), master, "29511"]
        assert command == ["muster-rank", f"--local_rank={values[1]}"]


def after(arguments: list[str], word: str) -> list[str]:
    return arguments[arguments.index(word) + 1 :]


@needs("torch", "deepspeed")
def test_deepspeed_passes_no_local_rank_if_the_job_does_not_accept_it(deepspeed: Reader, runs: Path) -> None:
    hosts = [HostSpec(name="n0", address="10.0.0.1", slots=2), HostSpec(name="n1", address="10.0.0.2", slots=2)]
    _table, plans = planned(runs, job_of("deepspeed", deepspeed_local_rank="false"), hosts)
    (command,) = deepspeed.query(["runner", after(plans[1]["command"], "deepspeed.launcher.runner")])
    started = deepspeed.query(["launch", after(command, "-m")])
    assert [arguments for arguments, _values in started] == [["muster-rank"]] * 2


@needs("torch", "deepspeed")
@settings(max_examples=examples(150), deadline=None)
@given(hosts=clusters())
def test_deepspeed_on_each_node_starts_the_ranks_of_the_table(
    deepspeed: Reader, runs: Path, hosts: list[HostSpec]
) -> None:
    table, plans = planned(runs, job_of("deepspeed"), hosts)
    for rank in sorted({0, table.nnodes // 2, table.nnodes - 1}):
        (command,) = deepspeed.query(["runner", after(plans[rank]["command"], "deepspeed.launcher.runner")])
        started = deepspeed.query(["launch", after(command, "-m")])
        assert_ranks_of(table, rank, started, table.master.address)


@needs("torch", "deepspeed")
@pytest.mark.skipif(shutil.which("pdsh") is None, reason="pdsh is not installed (Debian and Ubuntu: pdsh)")
@settings(max_examples=examples(100), deadline=None)
@given(hosts=clusters(six=False))
def test_deepspeed_with_pdsh_starts_the_ranks_of_the_table(
    deepspeed: Reader, runs: Path, hosts: list[HostSpec]
) -> None:
    table, plans = planned(runs, job_of("deepspeed", deepspeed_launcher="pdsh"), hosts)
    assert all(plan["command"] == [] for plan in plans[1:])
    (command,) = deepspeed.query(["runner", after(plans[0]["command"], "deepspeed.launcher.runner")])
    hosts_word = command[command.index("-w") + 1]
    assert hosts_word.split(",") == [node.name for node in table.nodes]
    # pdsh joins the arguments, and ssh runs them in a remote shell
    remote = " ".join(command[command.index("-w") + 2 :])
    for rank in sorted({0, table.nnodes // 2, table.nnodes - 1}):
        arguments = shlex.split(remote.replace("%n", str(rank)).rpartition(";")[2])
        assert_ranks_of(table, rank, deepspeed.query(["launch", after(arguments, "-m")]), table.master.address)


@needs("torch", "deepspeed")
@needs_orterun
@settings(max_examples=examples(100), deadline=None)
@given(hosts=clusters(six=False))
def test_deepspeed_with_open_mpi_uses_same_options_as_mpirun_launcher(
    deepspeed: Reader, runs: Path, hosts: list[HostSpec]
) -> None:
    assume(len(hosts) > 1)
    table, plans = planned(runs, job_of("deepspeed", deepspeed_launcher="openmpi"), hosts)
    _table, mpirun_plans = planned(runs / "mpirun", job_of("mpirun"), hosts)
    (command,) = deepspeed.query(["runner", after(plans[0]["command"], "deepspeed.launcher.runner")])
    assert command[:3] == ["mpirun", "-n", str(table.world_size)] and command[-1] == "muster-rank"
    for name in ("btl_tcp_if_include", "oob_tcp_if_include", "plm_rsh_agent", "plm_rsh_no_tree_spawn"):
        assert (
            command[command.index(name) + 1] == mpirun_plans[0]["command"][mpirun_plans[0]["command"].index(name) + 1]
        )
    assert command.count("btl_tcp_if_include") == 1, "eth0 is its own guess"
    assert (runs / "oracle/node0/hostfile").read_text() == mpirun_plans[0]["files"]["hostfile"]


@needs_orterun
@settings(max_examples=examples(60), deadline=None)
@given(hosts=clusters(six=False))
def test_open_mpi_maps_mpirun_command_like_the_rank_table(runs: Path, hosts: list[HostSpec]) -> None:
    table, plans = planned(runs / "map", job_of("mpirun"), hosts)
    assume(HERE not in (node.address for node in table.nodes))
    command = plans[0]["command"]
    arguments = [*command[:1], "--do-not-launch", "--display-map", *command[1:-1], "--mca", "plm_rsh_agent", "false"]
    environment = {**os.environ, **plans[0]["launcher_environment"], "TMPDIR": str(runs)}
    # if there are two values, the last one takes effect; no made-up address may be contacted
    agent = arguments.index("plm_rsh_agent")
    del arguments[agent - 1 : agent + 2]
    mapped, _before = open_mpi_map([*arguments, "--mca", "if_base_do_not_resolve", "1", "true"], environment)
    assert mapped == [(node.address, list(node.ranks)) for node in table.nodes]


@needs("torch", "accelerate")
@settings(max_examples=examples(150), deadline=None)
@given(hosts=clusters(), slots=st.integers(1, 16), precision=st.sampled_from([{}, {"mixed_precision": "bf16"}]))
def test_accelerate_starts_the_ranks_of_the_table(
    accelerate: Reader, runs: Path, hosts: list[HostSpec], slots: int, precision: dict[str, str]
) -> None:
    assume(len(hosts) > 1)
    equal = [HostSpec(host.name, host.address, slots) for host in hosts]
    table, plans = planned(runs, job_of("accelerate", accelerate_config=precision), equal)
    assert get_launcher(job_of("accelerate")).problems(job_of("accelerate"), table) == []
    for rank in sorted({0, table.nnodes // 2, table.nnodes - 1}):
        assert accelerate.query(after(plans[rank]["command"], "accelerate.commands.launch")) == {
            "nnodes": [table.nnodes, table.nnodes],
            "node_rank": rank,
            "nproc_per_node": slots,
            "backend": "static",
            "endpoint": [table.master.address, 29511],
            "no_python": True,
            "words": ["muster-rank"],
        }


@needs("torch", "accelerate")
def test_accelerate_starts_a_single_rank_like_any_other_launcher(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import os\nprint(*map(os.environ.get, ['RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'MASTER_PORT']))\n")
    job = dataclasses.replace(job_of("accelerate"), script=str(script))
    _table, (plan,) = planned(tmp_path, job, [HostSpec("a", "127.0.0.1", 1)])
    directory = tmp_path / "oracle" / "node0"
    (directory / "plan.json").write_text(json.dumps(plan))
    (directory / "environment.json").write_text("{}")
    (directory / "bin").mkdir()
    program = directory / "bin" / "muster-rank"
    program.write_text(f"#!{sys.executable}\n{Path(muster_rank.__file__).read_text()}")
    program.chmod(0o755)
    rules = json.loads((directory / "rank.json").read_text())
    (directory / "rank.json").write_text(json.dumps({**rules, "command": [sys.executable, str(script)]}))
    completed = subprocess.run(
        [sys.executable, *plan["command"][1:]],
        env={**os.environ, "PATH": f"{directory}/bin:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert completed.returncode == 0, completed.stderr
    assert (directory / "ranks" / "0" / "stdout.log").read_text() == "0 0 1 29511\n"


@needs("torch", "deepspeed")
@settings(max_examples=examples(400), deadline=None)
@given(
    batch=st.none() | st.integers(1, 96),
    micro=st.none() | st.integers(1, 12),
    steps=st.none() | st.integers(1, 12),
    world=st.integers(1, 16),
)
def test_deepspeed_agrees_with_musters_batch_size_check(
    deepspeed: Reader, batch: int | None, micro: int | None, steps: int | None, world: int
) -> None:
    sizes = {BATCH: batch, MICRO: micro, STEPS: steps}
    config = {name: value for name, value in sizes.items() if value is not None}
    reply = deepspeed.query(["batch", [batch, micro, steps, world]])
    if check_batch_sizes(config, [], world) is None:
        assert reply == list(complete_sizes(batch, micro, steps, world) or ())
    else:
        assert isinstance(reply, str) and reply.startswith("AssertionError: ")


@given(hosts=clusters(six=False))
def test_common_network_is_the_smallest_containing_all_addresses(hosts: list[HostSpec]) -> None:
    addresses = [host.address for host in hosts if host.address]
    network = ipaddress.ip_network(common_network(addresses))
    assert all(ipaddress.ip_address(address) in network for address in addresses)
    if network.prefixlen < 32:
        halves = network.subnets()
        assert not any(all(ipaddress.ip_address(item) in half for item in addresses) for half in halves)
