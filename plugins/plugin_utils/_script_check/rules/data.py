# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules for each rank's data: samplers, batches, seeds and downloads."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ansible_collections.muster.training.plugins.plugin_utils._script_check.frameworks import (
    ACCELERATE,
    ALL,
    LIGHTNING,
    OTHER,
    TRANSFORMERS,
)
from ansible_collections.muster.training.plugins.plugin_utils._script_check.guards import (
    ALL_RANKS,
    local_polarity,
    runs_on_first_rank_only,
)
from ansible_collections.muster.training.plugins.plugin_utils._script_check.match import RuleMatch
from ansible_collections.muster.training.plugins.plugin_utils._script_check.module import (
    argument,
    has_unpacked_keywords,
    is_constant,
    keyword_value,
)
from ansible_collections.muster.training.plugins.plugin_utils._script_check.program import (
    CallSite,
    Program,
    Site,
    is_any_rank,
    is_world_size,
    name_of,
)
from ansible_collections.muster.training.plugins.plugin_utils._script_check.rule import Rule

HELD_OUT = re.compile(
    r"(?i)(^|_)(val|valid|validation|test|eval|dev|heldout|held_out)(_|$|set|data|loader)|testset|valset"
)
TRAINING = re.compile(r"(?i)train")
STREAM = re.compile(r"Iterable|WebDataset|WebLoader|split_dataset_by_node|split_by_node|StreamingDataset|IterDataPipe")
SEEDS = ("manual_seed", "seed_everything", "set_seed", "seed", "manual_seed_all", "init_seeds", "set_random_seed")
DRAWS = ("randint", "choice", "sample", "randrange", "integers")
PER_RANK = re.compile(r"(?i)per_|micro|local|device|gpu")


def depends_on_ranks(site: Site) -> bool:
    """Return whether a node refers to a rank or the world size."""
    return is_any_rank(site) or is_world_size(site)


def loaders(program: Program) -> Iterator[CallSite]:
    """Yield the DataLoaders that the program may create."""
    yield from (call for call in program.calls_of("DataLoader", "StatefulDataLoader") if call.node.args or
                call.node.keywords)  # fmt: skip


def assigned_name(call: CallSite) -> str:
    """Return the name that a call's result is assigned to, or the name of the function that returns it."""
    for _child, parent in call.module.ancestors(call.node):
        if isinstance(parent, ast.Assign):
            return ast.unparse(parent.targets[0])
        if isinstance(parent, ast.Return):
            function = call.module.function_of(parent)
            return function.name if function else ""
    return ""


def purpose_of(call: CallSite) -> tuple[bool, bool]:
    """Return whether a loader or sampler is for training, and whether it is for held-out data, judging by the names."""
    dataset = argument(call.node, 0, "dataset")
    for text in (assigned_name(call), ast.unparse(dataset) if dataset is not None else ""):
        trains = bool(TRAINING.search(text))
        if trains or HELD_OUT.search(text):
            return trains, not trains
    return False, False


def is_distributed_sampler(program: Program, call: CallSite, value: ast.expr) -> bool:
    """Return whether a sampler may be one that divides the data among the ranks."""
    names = {name_of(site.node) for site in program.reachable(call.module, value)}
    if any("Distributed" in name or "distributed" in name for name in names):
        return True
    return not any(re.search(r"(Random|Sequential|Weighted)\w*Sampler", name) for name in names)


def check_sampler(program: Program) -> Iterator[RuleMatch]:
    """Report DataLoaders that give all ranks the same data."""
    for call in loaders(program):
        node = call.node
        sampler = next(
            (value for name in ("sampler", "batch_sampler") if (value := keyword_value(node, name)) is not None), None
        )
        if sampler is not None and not is_constant(sampler, None):
            if is_distributed_sampler(program, call, sampler):
                continue
        elif has_unpacked_keywords(node) and {"sampler", "batch_sampler"} & program.strings:
            continue
        dataset = argument(node, 0, "dataset")
        trains, holds_out = purpose_of(call)
        shuffle = keyword_value(node, "shuffle")
        if shuffle is None and sampler is None and not trains:
            continue
        if shuffle is not None and not is_constant(shuffle, True):
            if is_constant(shuffle, False) and not trains:
                continue
            if not isinstance(shuffle, ast.Constant) and _depends_on_sampler(shuffle):
                continue
        if holds_out or not program.trains or program.is_in_distributed_branch(call.module, node):
            continue
        if dataset is not None and program.mentions(call.module, dataset, lambda site: _is_divided(program, site)):
            continue
        name = ast.unparse(dataset) if dataset is not None and len(ast.unparse(dataset)) < 30 else "train_set"
        yield program.match(
            call.module,
            node,
            "all ranks draw from all of the data: no sampler splits it among them",
            f"sampler = DistributedSampler({name}, shuffle=True); DataLoader({name}, sampler=sampler, ...), without "
            "shuffle",
        )


def _depends_on_sampler(node: ast.expr) -> bool:
    return any("sampler" in name_of(child).lower() for child in ast.walk(node))


def _is_divided(program: Program, site: Site) -> bool:
    """Return whether a node in a dataset's expression shows that ranks read different parts, or a stream."""
    name = name_of(site.node)
    if depends_on_ranks(site) or STREAM.search(name) or name in ("shard", "streaming"):
        return True
    return any(
        isinstance(owner_node, ast.ClassDef) and owner_node.name == name and any(
            STREAM.search(name_of(base)) for base in owner_node.bases
        )
        for module in program.modules
        for owner_node in (module.nodes if isinstance(site.node, ast.Name) else ())
    )  # fmt: skip


def check_set_epoch(program: Program) -> Iterator[RuleMatch]:
    """Report samplers that use the same order in each epoch."""
    if program.uses("set_epoch") or not any("epoch" in name.lower() for name in program.identifiers):
        return
    for call in program.calls_of("DistributedSampler"):
        if is_constant(keyword_value(call.node, "shuffle"), False):
            continue
        if purpose_of(call)[1]:
            continue
        name = assigned_name(call) or "sampler"
        if isinstance(call.module.parents.get(call.node), (ast.keyword, ast.Call)):
            name += ".sampler"  # the sampler of the DataLoader that is being created here
        yield program.match(
            call.module,
            call.node,
            "every epoch has the same order: set_epoch is never called",
            f"{name}.set_epoch(epoch), at the start of each epoch",
        )
        return


def seed_calls(program: Program) -> list[CallSite]:
    """Return the calls that seed a random number generator."""
    return [call for call in program.calls_of(*SEEDS) if call.node.args]


def is_per_rank(program: Program, call: CallSite) -> bool:
    """Return whether an argument of a call depends on the rank."""
    values = [*call.node.args, *(keyword.value for keyword in call.node.keywords)]
    return any(program.mentions(call.module, value, depends_on_ranks) for value in values)


def check_same_batches(program: Program) -> Iterator[RuleMatch]:
    """Report ranks that draw the same batches because they all use the same seed."""
    if not program.trains or any(True for _loader in loaders(program)) or program.uses("DistributedSampler"):
        return
    seeds = seed_calls(program)
    if not seeds or any(
        program.mentions(call.module, arg, depends_on_ranks) for call in seeds for arg in call.node.args
    ):
        return
    draws = [
        call
        for call in program.calls_of(*DRAWS)
        if call.name.startswith(("torch.", "numpy.", "random.")) and _is_batch_code(call)
    ]
    if not draws or any(is_per_rank(program, call) for call in draws):
        return
    call = seeds[0]
    arg = ast.unparse(call.node.args[0])
    yield program.match(
        call.module,
        call.node,
        f"all ranks have the same seed and draw the same batches (line {draws[0].node.lineno} of "
        f"{draws[0].module.path})",
        f"{ast.unparse(call.node.func)}({arg} + rank)",
    )


def _is_batch_code(call: CallSite) -> bool:
    """Return whether a random draw may choose the samples in a batch: in a batch function, or in a training loop."""
    function = call.module.function_of(call.node)
    if function is not None and "batch" in function.name.lower():
        return True
    loops = [parent for _child, parent in call.module.ancestors(call.node) if isinstance(parent, (ast.For, ast.While))]
    return any(name_of(child) == "backward" for loop in loops for child in ast.walk(loop))


def check_split(program: Program) -> Iterator[RuleMatch]:
    """Report random splits that differ between ranks."""
    seeds = seed_calls(program)
    same_seed = [
        call
        for call in seeds
        if not any(program.mentions(call.module, arg, depends_on_ranks) for arg in call.node.args)
    ]
    if same_seed:
        return
    for call in program.calls_of("random_split", "train_test_split"):
        keyword = "generator" if call.last == "random_split" else "random_state"
        value = argument(call.node, 2, keyword) if call.last == "random_split" else keyword_value(call.node, keyword)
        if value is None:
            value = keyword_value(call.node, "seed")  # an argument of Hugging Face's datasets
        if (value is not None and not is_constant(value, None)) or has_unpacked_keywords(call.node):
            continue
        if call.last == "train_test_split" and is_constant(keyword_value(call.node, "shuffle"), False):
            continue
        change = "generator=torch.Generator().manual_seed(0)" if keyword == "generator" else "random_state=0"
        yield program.match(
            call.module,
            call.node,
            "each rank splits the data differently, so ranks train on data that other ranks hold out",
            f"{call.last}(..., {change})",
        )


def check_batch_size(program: Program) -> Iterator[RuleMatch]:
    """Note that the global batch size grows with the number of ranks."""
    if not program.trains or _scales_with_ranks(program):
        return
    for call in loaders(program):
        value = argument(call.node, 1, "batch_size")
        if value is None or is_constant(value, 1) or is_constant(value, None) or PER_RANK.search(ast.unparse(value)):
            continue
        if purpose_of(call)[1]:
            continue
        text = ast.unparse(value)
        yield program.match(
            call.module,
            call.node,
            f"batch_size applies to each rank: the global batch size is {text} * world_size",
            (
                f"batch_size={text} // torch.distributed.get_world_size(), or a learning rate for the larger global "
                "batch size"
            ),
        )
        return


def _scales_with_ranks(program: Program) -> bool:
    """Return whether the program multiplies or divides anything by the world size."""
    for module in program.modules:
        for node in module.nodes:
            if isinstance(node, ast.AugAssign):
                operands: tuple[ast.expr, ...] = (node.value,)
            elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Div, ast.FloorDiv)):
                operands = (node.left, node.right)
            else:
                continue
            if any(is_world_size(Site(module, child)) for operand in operands for child in ast.walk(operand)):
                return True
    return False


def check_download(program: Program) -> Iterator[RuleMatch]:
    """Report downloads that all ranks on a node write to the same files."""
    for call in program.calls:
        if not is_constant(keyword_value(call.node, "download"), True) or not program.is_used(call):
            continue
        module, node = call.module, call.node
        if runs_on_first_rank_only(program, module, node) or local_polarity(program, module, node) != ALL_RANKS:
            continue
        if program.is_in_distributed_branch(module, node) or _is_ordered(program, call):
            continue
        if call.module.function_of(node) is not None and call.module.function_of(node).name == "prepare_data":  # type: ignore[union-attr]
            continue
        yield program.match(
            module,
            node,
            "all ranks of a node download to the same files at the same time",
            'download=int(os.environ["LOCAL_RANK"]) == 0, and torch.distributed.barrier() before the other ranks read',
        )
        return


def _is_ordered(program: Program, call: CallSite) -> bool:
    """Return whether a call is enclosed by a context manager such as main_process_first, or by a barrier for some
    ranks.
    """
    scope = call.module.scope_of(call.node)
    if any(
        barrier.module is call.module
        and barrier.module.scope_of(barrier.node) is scope
        and local_polarity(program, barrier.module, barrier.node) != ALL_RANKS
        for barrier in program.calls_of("barrier")
    ):
        return True
    return any(
        isinstance(parent, ast.With) and re.search(r"first|lock", " ".join(ast.unparse(item) for item in parent.items))
        for _child, parent in call.module.ancestors(call.node)
    )


RULES = (
    Rule(
        "sampler-missing",
        "error",
        "All ranks read the same data",
        check_sampler,
        handled_by=frozenset({LIGHTNING, TRANSFORMERS, ACCELERATE, OTHER}),
    ),
    Rule(
        "set-epoch-missing",
        "warning",
        "Each epoch has the same order",
        check_set_epoch,
        handled_by=frozenset({LIGHTNING, TRANSFORMERS, ACCELERATE, OTHER}),
    ),
    Rule("seed-same-batches", "error", "All ranks draw the same batches", check_same_batches, handled_by=ALL),
    Rule("split-unseeded", "error", "Each rank splits the data differently", check_split),
    Rule("download-every-rank", "warning", "All ranks download the same files", check_download),
    Rule(
        "batch-size-global",
        "note",
        "The global batch size grows with the number of ranks",
        check_batch_size,
        handled_by=ALL,
    ),
)
