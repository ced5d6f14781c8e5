"""Each rule reports its defect, and nothing in the script without it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._script_check.check import check_modules
from ansible_collections.muster.training.plugins.plugin_utils._script_check.module import Module
from ansible_collections.muster.training.plugins.plugin_utils._script_check.registry import RULES
from ansible_collections.muster.training.plugins.plugin_utils._script_check.rule import SEVERITIES, ScriptFinding
from tests.unit.pages import fences, text_of

pytestmark = pytest.mark.one_core
SCRIPTS = Path(__file__).resolve().parents[3] / "fixtures" / "scripts"
PAGE = "docs/one_gpu_to_many.md"
MAX_FALSE_ALARMS = 0.05  # share of all findings in the labeled scripts


def script(name: str) -> str:
    return (SCRIPTS / f"{name}.py.txt").read_text(encoding="utf-8")


def check(text: str, launcher: str = "torchrun") -> list[ScriptFinding]:
    return check_modules([Module("__main__", "train.py", text)], launcher)


def ids(text: str, launcher: str = "torchrun") -> set[str]:
    return {finding.id for finding in check(text, launcher)}


SAMPLER = "sampler = DistributedSampler(dataset)"
LOADER = "loader = DataLoader(dataset, batch_size=args.global_batch_size // dist.get_world_size(), sampler=sampler)"
WRAPPED = "DDP(nn.Linear(32, 10).to(device), device_ids=[device.index] if device.type == 'cuda' else None)"
WRAPPED = WRAPPED.replace("'", '"')
SAVED = 'torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, args.checkpoint)'
PARSER = "parser = argparse.ArgumentParser()"
SPAWN = 'import torch.multiprocessing as mp\n\nif __name__ == "__main__":\n    mp.spawn(main, nprocs=8)'
TOKENS = "nanogpt_like"
# For each rule: a script without the fault, the text to replace, and the replacement that contains the fault.
FAULTS: dict[str, tuple[str, str, str]] = {
    "process-group-missing": ("ddp_plain", "    dist.init_process_group(backend)\n", ""),
    "process-group-fixed": ("ddp_plain", "(backend)", '(backend, init_method="tcp://10.0.0.5:29500")'),
    "spawns-ranks": ("ddp_plain", 'if __name__ == "__main__":\n    main()', SPAWN),
    "model-not-wrapped": ("ddp_plain", WRAPPED, "nn.Linear(32, 10).to(device)"),
    "data-parallel": ("one_gpu", "nn.Linear(32, 10)", "nn.DataParallel(nn.Linear(32, 10))"),
    "lightning-nodes": ("lightning_module", 'num_nodes=int(os.environ.get("GROUP_WORLD_SIZE", 1)),', ""),
    "process-group-open": ("ddp_plain", "    dist.destroy_process_group()\n", ""),
    "backend-fixed": ("ddp_plain", "init_process_group(backend)", 'init_process_group("nccl")'),
    "device-fixed": ("ddp_plain", "set_device(local_rank)", "set_device(0)"),
    "device-not-set": ("one_gpu", 'torch.device("cpu")', 'torch.device("cuda")'),
    "device-global-rank": ("ddp_plain", 'local_rank = int(os.environ["LOCAL_RANK"])', "local_rank = dist.get_rank()"),
    "local-rank-argument": (
        "ddp_plain",
        'local_rank = int(os.environ["LOCAL_RANK"])',
        f'{PARSER}\n    parser.add_argument("--local-rank", type=int)\n    local_rank = parser.parse_args().local_rank',
    ),
    "sampler-missing": ("ddp_plain", "sampler=sampler)", "shuffle=True)"),
    "set-epoch-missing": ("ddp_plain", "        sampler.set_epoch(epoch)\n", ""),
    "seed-same-batches": (TOKENS, "1337 + seed_offset", "1337"),
    "split-unseeded": ("one_gpu", "optimizer = ", "parts = random_split(data, [8, 2])\noptimizer = "),
    "download-every-rank": ("ddp_plain", "dataset = ", "MNIST('data', download=True)\n    dataset = "),
    "batch-size-global": ("ddp_plain", "args.global_batch_size // dist.get_world_size()", "args.batch"),
    "save-every-rank": ("ddp_plain", f"            {SAVED}", f"        {SAVED}"),
    "collective-one-rank": ("ddp_plain", "        dist.barrier()", "            dist.barrier()"),
    "load-one-rank": ("ddp_plain", "if os.path.exists(args.checkpoint):", "if dist.get_rank() == 0:"),
    "load-map-location": ("ddp_plain", ', map_location="cpu"', ""),
    "path-local": ("ddp_plain", '"checkpoint.pt"', '"/home/me/checkpoint.pt"'),
    "metrics-one-rank": ("ddp_plain", "    dist.all_reduce(counts)\n", ""),
    "tracker-every-rank": ("ddp_plain", "    device = setup()\n", "    device = setup()\n    wandb.init()\n"),
    "print-every-rank": ("ddp_plain", "        model.train()\n", "        model.train()\n        print(epoch)\n"),
}
ONE_GPU = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cpu")
model = nn.Linear(32, 10).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for inputs, targets in batches:
    nn.functional.cross_entropy(model(inputs), targets).backward()
    optimizer.step()
"""
ALSO = {
    "spawns-ranks": set[str](),
    "device-fixed": set[str](),
    "data-parallel": {"process-group-missing"},
    "device-not-set": {"process-group-missing"},
    "model-not-wrapped": set[str](),
    "process-group-missing": set[str](),
}


def base(name: str) -> str:
    text = ONE_GPU if name == "one_gpu" else script(name)
    imports = "import wandb\nfrom torchvision.datasets import MNIST\n"
    return text.replace("import torch.nn as nn\n", f"import torch.nn as nn\n{imports}", 1)


def test_each_rule_has_an_example() -> None:
    assert list(FAULTS) == [rule.id for rule in RULES]
    assert len(set(FAULTS)) == len(RULES)
    assert {rule.severity for rule in RULES} == set(SEVERITIES)


@pytest.mark.parametrize("rule", FAULTS)
def test_rule_reports_its_defect_and_nothing_without_it(rule: str) -> None:
    name, old, new = FAULTS[rule]
    right = base(name)
    if rule == "metrics-one-rank":  # the data comes from a loader that gives each rank its share
        right = right.replace("= evaluate(model, loader", "= evaluate(model, val_loader").replace(
            LOADER, f"{LOADER}\n    val_loader = DataLoader(dataset, sampler=DistributedSampler(dataset))"
        )
    assert old in right
    wrong = right.replace(old, new, 1)
    ast.parse(wrong)
    assert rule not in ids(right)
    assert rule in ids(wrong)
    if rule not in ALSO and name != "one_gpu":
        assert ids(wrong) - ids(right) <= {rule, "process-group-open"}


def test_a_finding_has_the_line_of_the_defect_and_suggested_code() -> None:
    text = script("ddp_plain").replace("            torch.save(", "        torch.save(")
    (finding,) = check(text)
    assert (finding.id, finding.severity) == ("save-every-rank", "error")
    assert text.splitlines()[finding.line - 1].lstrip().startswith("torch.save(")
    assert finding.change.startswith("if torch.distributed.get_rank() == 0: torch.save(")


@pytest.mark.parametrize(
    ("condition", "ranks"),
    [
        ("if rank == 0:", "the first rank calls barrier, and waits"),
        ("if 1 == rank and epoch % 2:", "rank 1 calls barrier, and waits"),
        ("if rank != 2:\n    exit()\nif True:", "rank 2 calls barrier, and waits"),
        ("if rank == source:", "one rank calls barrier, and waits"),
        ("if rank < 4:", "some ranks call barrier, and wait"),
        ("if rank < 1:", "the first rank calls barrier, and waits"),
        ("if rank in (0, 2):", "some ranks call barrier, and wait"),
        ("if is_main_process():", "the first rank calls barrier, and waits"),
    ],
)
def test_finding_names_the_ranks_that_call_a_collective(condition: str, ranks: str) -> None:
    text = f"import torch.distributed as dist\nrank = dist.get_rank()\n{condition}\n    dist.barrier()\n"
    (finding,) = [finding for finding in check(text) if finding.id == "collective-one-rank"]
    assert finding.problem == f"only {ranks} for the other ranks forever"


def test_hugging_face_datasets_seed_is_recognized() -> None:
    split = "import torch\nparts = data.train_test_split(test_size=0.1, shuffle=True{})\n"
    assert ids(split.format("")) == {"split-unseeded"}
    assert ids(split.format(", seed=42")) == set()


# --- Realistic scripts ------------------------------------------------------------------------------------------------


def labels(text: str) -> set[tuple[int, str]]:
    """Return the lines and rules that a script's comments expect."""
    return {
        (number, name.strip())
        for number, line in enumerate(text.splitlines(), 1)
        if "# expect:" in line
        for name in line.partition("# expect:")[2].split(",")
    }


def findings_by_script() -> dict[str, tuple[set[tuple[int, str]], set[tuple[int, str]]]]:
    result = {}
    for path in sorted(SCRIPTS.glob("*.py.txt")):
        text = path.read_text(encoding="utf-8")
        launcher = "deepspeed" if path.name.startswith("deepspeed") else "torchrun"
        result[path.name] = {(finding.line, finding.id) for finding in check(text, launcher)}, labels(text)
    return result


def test_labeled_scripts_have_few_false_alarms_and_no_misses() -> None:
    results = findings_by_script()
    assert len(results) >= 20
    false_alarms = {name: reported - expected for name, (reported, expected) in results.items() if reported - expected}
    missed = {name: expected - reported for name, (reported, expected) in results.items() if expected - reported}
    number = sum(len(reported) for reported, _expected in results.values())
    assert number >= 40
    assert sum(map(len, false_alarms.values())) < MAX_FALSE_ALARMS * number, false_alarms
    assert missed == {}


def test_labeled_scripts_name_existing_rules() -> None:
    rule_ids = {rule.id for rule in RULES}
    for _reported, expected in findings_by_script().values():
        assert {name for _line, name in expected} <= rule_ids


# --- Rank conditions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "condition",
    [
        "if rank == 0:",
        "if not rank:",
        "if 0 == dist.get_rank():",
        "if args.local_rank in (-1, 0):",
        'if int(os.environ["RANK"]) == 0:',
        "if is_main_process():",
        "if accelerator.is_main_process and step:",
        "if not distributed or rank == 0:",
        "if not args.distributed or (args.distributed and args.rank % gpus == 0):",
        "if world_size == 1 or rank < 1:",
        "if should_save:",
        "if trainer.is_global_zero:",
        "for _ in range(3):\n  if rank != 0:\n    continue\n  if True:",
    ],
)
def test_conditions_met_only_by_the_first_rank_are_recognized(condition: str) -> None:
    indent = "    " if "\n" in condition else "  "
    text = f"""\
import os, torch
import torch.distributed as dist
should_save = rank == 0 and enabled
{condition}
{indent}torch.save(state, path)
"""
    assert ids(text) == set()


@pytest.mark.parametrize(
    "condition",
    [
        "if step % 100 == 0:",
        "if args.save or rank == 0:",
        "if rank != 0:",
        "if best is None:",
        "for _ in range(3):\n  if rank == 0:\n    continue\n  if True:",
    ],
)
def test_other_conditions_do_not_protect_a_file(condition: str) -> None:
    indent = "    " if "\n" in condition else "  "
    assert ids(f"import torch\n{condition}\n{indent}torch.save(state, path)\n") == {"save-every-rank"}


# --- The page ---------------------------------------------------------------------------------------------------------


def sections() -> dict[str, str]:
    """Return the sections about rules by ID, each with the text up to the next heading."""
    parts = re.split(r"^### `([\w-]+)`.*$", text_of(PAGE), flags=re.M)
    return dict(zip(parts[1::2], (part.partition("\n## ")[0] for part in parts[2::2]), strict=True))


def test_page_has_each_rule_once_in_order_with_its_severity() -> None:
    assert list(sections()) == [rule.id for rule in RULES]
    for rule in RULES:
        assert re.match(rf"\s+{rule.severity.capitalize()}\. ", sections()[rule.id]), rule.id


@pytest.mark.parametrize("rule", [rule.id for rule in RULES])
def test_page_shows_code_before_and_after(rule: str) -> None:
    bodies = [fence.body for fence in fences(PAGE) if fence.language == "python" and fence.body in sections()[rule]]
    assert len(bodies) == 1
    before, _mark, after = bodies[0].partition("# after\n")
    assert before.startswith("# before\n") and after, "a fence has `# before` and `# after`"
    ast.parse(before)
    ast.parse(after)
