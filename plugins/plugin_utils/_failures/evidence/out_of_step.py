# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evidence of how ranks got out of step: one rank's decision, a skipped batch, or its own save or evaluation."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.muster.training.plugins.plugin_utils._failures.activity import (
    ACTIVITIES,
    EVALUATING,
    SAVING,
    SAVING_SHARDED,
    SERVING,
    Activity,
)
from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.rule import EvidenceRule
from ansible_collections.muster.training.plugins.plugin_utils._failures.facts import RunFacts

TOPIC = "How the ranks got out of sync"
DIFFER = ("ranks-pass-different-sizes", "ranks-out-of-step", "rank-behind")
SHORT_LIMIT = 600  # seconds; the default for NCCL's operations
STOP = (
    r"(?P<line>(?i:early[ _-]?stop|no improvement|(?:did|has) not improve|\bpatience\b|"
    r"stopping (?:training|early|optimi[sz]ation)|"
    r"should_stop|training stopped)[^\n]{0,100})"
)
SKIP = (
    r"(?P<line>(?i:\bskip(?:s|ped|ping)?\b|\bno valid\b|\binvalid (?:batch|sample)|\bempty (?:batch|sample)|"
    r"\bdropping (?:the )?(?:batch|sample))[^\n]{0,120})"
)
CULPRIT = r"\b(?:alone|behind|apart): rank (?P<rank>\d{1,7})\b"
SKIP_TOGETHER = (
    "skip a batch on all ranks or on none: compute skip = torch.tensor(float(skip), device=device), call "
    "torch.distributed.all_reduce(skip), and skip the batch on every rank if the sum is not 0; or give such a "
    "batch a loss of 0 * output.sum(), whose backward pass runs as usual"
)
STOP_TOGETHER = (
    "let all ranks stop at the same step: compute stop = torch.tensor(int(stop), device=device), and call "
    "torch.distributed.broadcast(stop, 0) to send the decision of rank 0; or compute the metric from values that "
    "were all-reduced (self.log(..., sync_dist=True) in Lightning)"
)
SAVE_ON_ALL = (
    "call the save function on all ranks, outside any `if rank == 0`: model.state_dict() under FSDP, "
    "trainer.save_model(), accelerator.get_state_dict(model), engine.save_checkpoint(). Only the write itself "
    "should be restricted to rank 0. If the script already does this, upgrade transformers, accelerate and peft. "
    "A longer timeout does not help"
)
SAME_STEPS = (
    "give all ranks the same number of batches: use DataLoader(drop_last=True) with DistributedSampler, a fixed "
    "number of steps for streaming data, or `with model.join():`"
)
# A frame of the script or of a framework, but not of torch, whose checkpoint functions are different.
FRAME = (
    r'File "(?![^"\n]{{0,300}}/torch/)[^"\n]{{1,300}}", line \d{{1,9}}, in \w{{1,80}}\n'
    r"[^\n]{{0,20}}?\b(?P<function>\w{{0,40}}(?:{pattern})\w{{0,40}})\("
)
OUTPUT = (
    r"(?:still worked, whose last output was: |gave up waiting for it, its last output: )"
    r"(?P<output>(?=[^\n;]{{0,200}}(?:{pattern}))[^\n;]{{1,200}}); "
    r"[^\n]{{0,200}}Timeout\(ms\)=(?P<seconds>\d{{1,3}})000\b"
)
CALLED = (
    r"Rank \d{1,7} is running (?:inconsistent )?collective: CollectiveFingerPrint\([^\n]{0,60}OpType=(?P<name>\w{1,60})"
)


def is_short(groups: Mapping[str, str], _facts: RunFacts) -> bool:
    """Return whether an operation's time limit is below the default."""
    return int(groups["seconds"]) < SHORT_LIMIT


def are_gradients(groups: Mapping[str, str], _facts: RunFacts) -> bool:
    """Return whether two shapes are those of gradient buckets, which have one large dimension."""
    return min(len(groups["first"]), len(groups["second"])) > 4


def same_operation(groups: Mapping[str, str], _facts: RunFacts) -> bool:
    """Return whether two ranks are calling the same operation."""
    return groups["name"] == groups["second"]


def make_short_limit_rule(activity: Activity) -> EvidenceRule:
    """Return the rule for a rank that was busy for longer than a time limit set by the script."""
    return EvidenceRule(
        id=f"short-limit-while-{activity.name.replace(' ', '-')}",
        entries=("rank-still-worked", "rank-still-saved"),
        shows=(OUTPUT.format(pattern=activity.output),),
        cause=f"This rank was still {activity.name} ({{output}}) when the others gave up waiting for it: the script "
        "sets a timeout of only {seconds} s.",
        remedy=(
            "raise the limit above the duration of that work with init_process_group(timeout=timedelta(hours=1)), or "
            "leave timeout out (NCCL's default is 10 minutes); otherwise, shorten the work, or let all ranks share it"
        ),
        condition=is_short,
    )


def make_own_work_rule(activity: Activity) -> EvidenceRule:
    """Return the rule for a single rank in a different collective, whose last output shows what it was doing alone."""
    return EvidenceRule(
        id=f"out-of-step-while-{activity.name.replace(' ', '-')}",
        entries=DIFFER,
        shows=(rf"{CULPRIT}, its last output: (?P<output>(?=[^\n;]{{0,160}}(?:{activity.output}))[^\n;]{{1,160}});",),
        cause=(
            f"Rank {{rank}} was {activity.name} ({{output}}) while the others were at another point in the script, in "
            "different collectives: only this rank ran that code, or the ranks decided differently, based on values "
            "that are not the same on all of them."
        ),
        remedy=(
            "make the same decision on all ranks about when to save (based on an all-reduced value, or by "
            f"broadcasting what rank 0 decides): {SAVE_ON_ALL}"
        )
        if activity in (SAVING, SAVING_SHARDED)
        else (
            "run that code on all ranks at the same step, based on a number that all of them share (the step, "
            "not the time), or do not run it on any rank; in code that runs on only one rank, call neither a "
            "collective nor the wrapped model (use model.module)"
        ),
    )


def make_last_work_rule(activity: Activity, name: str, remedy: str) -> EvidenceRule:
    """Return the rule for a rank that was still working after other ranks had ended."""
    return EvidenceRule(
        id=f"ended-while-other-{name}",
        entries=("rank-ended-early",),
        shows=(
            r"while rank (?P<waiter>\d{1,7}) waited for it \(its last output: "
            rf"(?P<output>(?=[^\n;]{{0,160}}(?:{activity.output}))[^\n;]{{1,170}}?)\)[,:]",
        ),
        cause=(
            f"Only rank {{waiter}} was still {activity.name} ({{output}}), which needs all ranks, and it waited for "
            "this rank, which had already reached the end of the script."
        ),
        remedy=remedy,
    )


RULES: tuple[EvidenceRule, ...] = (
    EvidenceRule(
        id="batches-differ",
        entries=("rank-ended-early", "rank-never-arrived"),
        shows=(r", loops: (?P<own>\d{1,9} steps on rank \d{1,7}), (?P<other>\d{1,9} on rank \d{1,7})",),
        cause=(
            "The ranks have different numbers of batches ({own}, {other}): some are still training while the others "
            "wait for them, or have ended."
        ),
        remedy=SAME_STEPS,
        certain=True,
    ),
    EvidenceRule(
        id="stopped-alone",
        entries=("rank-ended-early",),
        shows=(r"while rank (?P<waiter>\d{1,7}) waited for it", STOP),
        unless=r"(?:KeyboardInterrupt|SIGTERM)",
        cause=(
            'This rank alone decided to stop ("{line}") and left the loop, while rank {waiter} began the next step '
            "and waited for it: the decision is made on only one rank, or based on values that differ between the "
            "ranks."
        ),
        remedy=STOP_TOGETHER,
    ),
    EvidenceRule(
        id="hang-stopped-alone",
        entries=("hang",),
        shows=(r"had already ended with exit code 0", STOP),
        unless=r"(?:KeyboardInterrupt|SIGTERM)",
        cause=(
            'This rank alone decided to stop ("{line}") and reached the end of the script, while the others began '
            "the next step and waited for it: the decision is made on only one rank, or based on values that differ "
            "between the ranks."
        ),
        remedy=STOP_TOGETHER,
    ),
    EvidenceRule(
        id="hang-batch-skipped",
        entries=("hang",),
        shows=(r"\b(?:it was|they were) waiting in ", SKIP),
        cause=(
            'This rank skipped a batch ("{line}") that the others trained on, so it is waiting in a different '
            "collective from theirs."
        ),
        remedy=SKIP_TOGETHER,
    ),
    EvidenceRule(
        id="data-exhausted",
        entries=("rank-had-finished", "rank-ended-early"),
        shows=(
            r"its last output: (?P<output>(?=[^\n;]{0,160}(?i:exhaust|StopIteration|\bno more (?:data|batch|sample)|"
            r"\bend of (?:data|epoch)|\bepoch \d{1,6} (?:is )?(?:done|finished|ended|complete)))[^\n;]{1,160});",
        ),
        cause=(
            "This rank ran out of batches before the others ({output}) and no longer calls the collective in which "
            "they are waiting: the ranks have different numbers of batches."
        ),
        remedy=SAME_STEPS,
    ),
    EvidenceRule(
        id="horovod-tensors-differ",
        entries=("rank-failed", "horovod-stalled"),
        shows=(
            r"submitted to be reduced, gathered or broadcasted by subset of ranks",
            r"[Mm]issing ranks:\s{1,4}\d{1,6}: \[(?P<first>[\w./]{1,80})[^\n]{0,2000}\n[^\n]{0,40}?\d{1,6}: \["
            r"(?!(?P=first)\b)(?P<second>[\w./]{1,80})",
        ),
        cause=(
            "Each rank is waiting to exchange a tensor that another rank does not exchange ({first}, {second}): "
            "the nodes run different code, configurations or models, or the ranks take different branches."
        ),
        remedy=(
            "use the same code and configuration on all nodes, and compare the versions of the packages "
            "(ansible-playbook preflight.yml); build the same layers on all ranks"
        ),
    ),
    EvidenceRule(
        id="horovod-ranks-missing",
        entries=("rank-failed",),
        shows=(
            r"submitted to be reduced, gathered or broadcasted by subset of ranks",
            r"\[missing ranks: (?P<ranks>\d[\d, ]{0,40})\]|[Mm]issing ranks:\s{1,4}(?P<rank>\d{1,6}): ",
        ),
        cause=(
            "Before the end, Horovod was waiting for rank {ranks}{rank}, which did not exchange the same "
            "tensors: most likely it had ended, was hanging, had fewer batches, or took a different branch."
        ),
        remedy=(
            "read the log of each such rank with ansible-playbook logs.yml -e rank=RANK; make the same calls on "
            "every rank, with the same number of batches (drop_last, hvd.join())"
        ),
    ),
    make_last_work_rule(SAVING, "saved", SAVE_ON_ALL),
    make_last_work_rule(
        EVALUATING,
        "evaluated",
        (
            "have every rank evaluate its part of the data; if only rank 0 should evaluate, use the inner model "
            "(model.module under DDP), and let the others wait at a barrier instead of ending"
        ),
    ),
    EvidenceRule(
        id="batch-skipped",
        entries=DIFFER,
        shows=(CULPRIT, SKIP),
        cause=(
            'Rank {rank} skipped a batch ("{line}") that all others trained on: it did not exchange the gradients of '
            "that step, so its next collective was matched with theirs, and the ranks have been out of sync since "
            "then."
        ),
        remedy=SKIP_TOGETHER,
    ),
    EvidenceRule(
        id="evaluates-before-others",
        entries=DIFFER,
        # Code for one rank only runs on rank 0: another rank that is alone got there because its loop ended earlier.
        shows=(
            rf"\b(?:alone|behind|apart): rank (?P<rank>[1-9]\d{{0,6}})\b, its last output: "
            rf"(?P<output>(?=[^\n;]{{0,160}}(?:{EVALUATING.output}))[^\n;]{{1,160}});",
        ),
        unless=SKIP,
        cause=(
            "Rank {rank} is already evaluating ({output}) while the others are still training: it had fewer batches, "
            "so its epoch ended earlier, or it alone decided to evaluate."
        ),
        remedy=f"{SAME_STEPS}; decide when to evaluate by the step number, which is the same on all ranks",
    ),
    *map(make_own_work_rule, (SAVING_SHARDED, SAVING)),  # also a line such as "new best val loss, saving"
    *map(
        make_own_work_rule, (activity for activity in ACTIVITIES if activity not in (SERVING, SAVING_SHARDED, SAVING))
    ),
    EvidenceRule(
        id="generation-differs",
        entries=DIFFER,
        shows=(r"wait in different collectives: [^\n;]{0,200}ALLGATHER", r"(?i:\bgenerat(?:e|ing)\b|\brollout)"),
        cause=(
            "The ranks are generating texts of different lengths with a sharded model (FSDP, ZeRO 3): one rank "
            "has finished and moved on, while another is still gathering weights for its next token."
        ),
        remedy=(
            "use model.generate(..., synced_gpus=True) (ds3_gather_for_generation=True in trl), which keeps all "
            "ranks in sync until the last one has finished"
        ),
    ),
    EvidenceRule(
        id="logged-by-some-ranks",
        entries=(*DIFFER, "ranks-at-different-lines"),
        shows=(
            r'File "[^"\n]{1,300}", line \d{1,9}, in (?P<function>\w{1,80})\n[^\n]{0,40}?self\.'
            r"(?P<call>log(?:_dict)?)\(",
        ),
        cause=(
            "A rank is waiting in self.{call} in {function}, which averages the value over all ranks, while others "
            "are elsewhere: they do not log the same keys there, for example because the metric exists only on rank "
            "0."
        ),
        remedy=(
            "log the same keys on all ranks (with a value of 0 on a rank that has none), or move the call "
            "outside any branch that only one rank takes; for values that only rank 0 has, use self.log(..., "
            "sync_dist=False, rank_zero_only=True)"
        ),
    ),
    EvidenceRule(
        id="left-the-loop-alone",
        entries=("ranks-at-different-lines",),
        shows=(
            r"ranks wait at different lines: [^\n]{0,300}\brank (?P<rank>\d{1,7}) in [^\n:;]{1,80}:\d{1,9}\): "
            r"[^\n;`]{0,60}\bbarrier\(",
            r"ranks wait at different lines: [^\n]{0,400}(?:\bbackward\(|training_step|train_step|forward\()",
        ),
        cause=(
            "Rank {rank} has left the training loop and is waiting in a barrier, while another rank is still in "
            "a training step: the waiting rank stopped on its own because of early stopping or a limit that it "
            "computed from values that differ between the ranks, or it had fewer batches."
        ),
        remedy=f"{STOP_TOGETHER}. {SAME_STEPS[0].upper()}{SAME_STEPS[1:]}",
    ),
    EvidenceRule(
        id="forward-against-backward",
        entries=("ranks-out-of-step",),
        shows=(
            r"wait in different collectives: (?=[^\n;]{0,300}BROADCAST)(?=[^\n;]{0,300}ALLREDUCE)"
            r"(?P<list>[^\n;]{1,160})",
        ),
        unless=r"\bbehind: rank",
        cause=(
            "Some ranks are beginning the next forward pass, in which DDP broadcasts buffers, while others are "
            "still exchanging gradients or reducing a number ({list}): the ranks have different numbers of "
            "batches, some skipped a batch, or only some evaluate with the wrapped model."
        ),
        remedy=f"{SAME_STEPS}; evaluate on all ranks or with model.module; {SKIP_TOGETHER}",
    ),
    EvidenceRule(
        id="rank-without-backward",
        entries=("ranks-pass-different-sizes",),
        shows=(r"\brank (?P<rank>\d{1,7}) passes 1 elements[^\n;]{0,160}, alone: rank (?P=rank)\b",),
        cause=(
            "Rank {rank} is reducing a single number (a barrier, a metric, a count) while all others are still "
            "exchanging gradients: it left its loop before them because it had fewer batches, or it skipped a "
            "batch."
        ),
        remedy=f"{SAME_STEPS}; {SKIP_TOGETHER}",
    ),
    EvidenceRule(
        id="rank-with-more-batches",
        entries=("ranks-pass-different-sizes",),
        shows=(r"passes 1 elements[^\n;]{0,160}, alone: rank (?P<rank>\d{1,7})\b",),
        cause=(
            "Rank {rank} is still exchanging gradients while all others are reducing a single number (a barrier or a "
            "metric at the end of the epoch): it has more batches than they do."
        ),
        remedy=SAME_STEPS,
    ),
    EvidenceRule(
        id="fingerprint-after-stop",
        entries=("collectives-differ",),
        shows=(CALLED, STOP),
        unless=r"(?:KeyboardInterrupt|SIGTERM)",
        cause=(
            'This rank alone decided to stop ("{line}"), left its loop and is in {name}, while others are in the '
            "next step or epoch: the decision is made on only one rank, or based on values that differ between the "
            "ranks."
        ),
        remedy=f"{STOP_TOGETHER}; or train without early stopping",
    ),
    EvidenceRule(
        id="fingerprint-at-save",
        entries=("collectives-differ",),
        shows=(CALLED, FRAME.format(pattern="save|ckpt|checkpoint")),
        cause=(
            "This rank is in {function}, which saves a checkpoint, and is waiting there in {name} for the "
            "others, which are in a different collective: the ranks do not make the same decision about when to "
            "save, for example because they decide by elapsed time, or only this rank calls that function."
        ),
        remedy=(
            "decide by the step number, which is the same on all ranks, or send rank 0's decision to the others "
            "(torch.distributed.broadcast), and call {function} on all of them; turn off time-based checkpoints "
            "within an epoch"
        ),
    ),
    EvidenceRule(
        id="fingerprint-at-evaluation",
        entries=("collectives-differ",),
        shows=(CALLED, FRAME.format(pattern="eval|valid|test_epoch|predict|generate")),
        cause=(
            "This rank is evaluating ({function}, in {name}) while others are at another point in the script: "
            "only some ranks evaluate at this step, or they have different numbers of batches there."
        ),
        remedy=(
            "let all ranks evaluate at the same step with the same number of batches (use drop_last=True or "
            "padding); to evaluate only on rank 0, use the inner model (model.module) without any collective"
        ),
    ),
    EvidenceRule(
        id="fingerprint-of-gradients",
        entries=("collectives-differ",),
        shows=(
            CALLED,
            r"Tensor shapes: (?P<first>\d{1,15}) ?vs (?P<second>\d{1,15})\s{0,4}(?:Tensor|$)",
        ),
        unless=r"Op type: ",
        cause=(
            "The ranks are exchanging gradients of different sizes ({first} and {second} numbers in {name}): on "
            "one rank, some layers did not contribute to the loss, such as the image encoder in a text-only "
            "batch, or the models differ."
        ),
        remedy=(
            "give every rank the same kinds of samples in each step, or run the unused layers on a dummy input "
            "and add 0 * output.sum() to the loss; if all ranks may leave out layers, set "
            "find_unused_parameters=True"
        ),
        condition=are_gradients,
    ),
    EvidenceRule(
        id="fingerprint-of-sizes",
        entries=("collectives-differ",),
        shows=(CALLED, r"Tensor shapes: (?P<first>[\d, ]{1,60}?) {0,2}vs (?P<second>[\d, ]{1,60})"),
        unless=r"Op type: ",
        cause=(
            "All ranks call {name}, but with tensors of different shapes ({first} and {second}): the last batch "
            "or a padded one is shorter on one rank, or a length is not divisible by the number of ranks."
        ),
        remedy=(
            "pad to the same shape on all ranks (accelerator.pad_across_processes, or a length that is a multiple of "
            "the number of ranks), or use drop_last=True; for objects, use all_gather_object"
        ),
    ),
    EvidenceRule(
        id="fingerprint-of-sequence",
        entries=("collectives-differ",),
        shows=(CALLED, r"Sequence number: (?P<first>\d{1,12}) ?vs (?P<second>\d{1,12})"),
        cause=(
            "The ranks have called different numbers of collectives ({first} and {second}): some skipped a call or a "
            "batch, or made one more call inside `if rank == 0`; this rank is in {name}."
        ),
        remedy=f"make the same calls on every rank; {SKIP_TOGETHER}",
    ),
    EvidenceRule(
        id="fingerprint-of-other-shape",
        entries=("collectives-differ",),
        shows=(
            rf"{CALLED}[^\n]{{0,4}}TensorShape=\[(?P<first>[\d, ]{{1,60}})\]",
            r"; rank (?P<other>\d{1,7}) calls (?P<second>\w{1,60}) \[(?P<shape>[\d, ]{1,60})\]$",
        ),
        cause="All ranks call {name}, but with tensors of different shapes ({first} here, {shape} on rank {other}): a "
        "batch is smaller on one rank (the last one, or one from which samples were dropped), or lengths differ.",
        remedy=(
            "keep batch sizes equal: use drop_last=True, replace a bad sample with another one (instead of "
            "shortening the batch), or pad to one length (accelerator.pad_across_processes); for objects, use "
            "all_gather_object"
        ),
        condition=same_operation,
    ),
    EvidenceRule(
        id="fingerprint-of-other-rank",
        entries=("collectives-differ",),
        shows=(CALLED, r"; rank (?P<other>\d{1,7}) calls (?P<second>\w{1,60}) \[[\d, ]{0,60}\]$"),
        cause=(
            "The ranks are at different points in the script: this rank calls {name}, while rank {other} calls "
            "{second}. Only some ranks run a branch (logging, saving, evaluating inside `if rank == 0`), or have "
            "fewer batches."
        ),
        remedy=(
            "compare the tracebacks of both ranks (ansible-playbook logs.yml -e rank={other}), and move the call "
            f"that only one of them makes out of the `if`; {SAME_STEPS}"
        ),
    ),
    EvidenceRule(
        id="fingerprint-of-operations",
        entries=("collectives-differ",),
        shows=(
            CALLED,
            r"but Rank (?P<other>\d{1,7}) is running collective: CollectiveFingerPrint\([^\n]{0,60}OpType="
            r"(?P<second>\w{1,60})",
        ),
        cause=(
            "The ranks are at different points in the script: this rank calls {name}, while rank {other} calls "
            "{second}. Only some ranks run a branch (logging, saving, evaluating inside `if rank == 0`), or have "
            "fewer batches."
        ),
        remedy=(
            "compare the tracebacks of both ranks (ansible-playbook logs.yml -e rank={other}), and move the call "
            f"that only one of them makes out of the `if`; {SAME_STEPS}"
        ),
    ),
    *map(make_short_limit_rule, ACTIVITIES),
)
