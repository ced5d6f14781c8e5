"""Write the pages of docs/ that are generated from the code: make pages

tests/unit/test_pages.py fails if they are outdated.
"""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._checks.catalogue import IDS, REQUIRED
from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry
from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.registry import TOPICS
from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.registry import (
    TOPICS as EVIDENCE_TOPICS,
)
from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.rule import EvidenceRule
from ansible_collections.muster.training.plugins.plugin_utils._failures.frames.registry import TOPICS as FRAME_TOPICS
from ansible_collections.muster.training.plugins.plugin_utils._failures.frames.rule import FrameRule
from tests.explain.__main__ import MEASURED
from tests.explain.cases import GRADES

COMMANDS = runpy.run_path(str(Path(__file__).resolve().parents[1] / "roles/init/files/muster.py"))["COMMANDS"]
HEALTHY = Path(__file__).resolve().parent / "unit" / "fixtures" / "healthy_logs"
DOCS = Path(__file__).resolve().parents[1] / "docs"
# Sets of failures that were unseen when they were measured and were judged by hand, and their results since they have
# been seen.
UNSEEN = MEASURED.with_name("unseen.json")
OPTION = r"(?:-e '\{[^']*\}'|(?:--tags|-e) [\w=.,]*\w(?:\.\.\.)?)"
COMMAND = re.compile(rf"(?:\w+=\.\.\. )?ansible-playbook \w+\.yml(?: {OPTION})*|{OPTION}")

HEAD = """\
# What went wrong

<!-- Generated from the code by `make pages`. Do not edit it here. -->

A run that has failed ends with the node and the rank that failed first, its error, and why it failed:

- `cause:` and `what to do:` as below, with the commands to type, if the error itself is known.
- `possibly:` if the error has several causes, or if only a line near the end of its log is known. `because its log
  says:` shows that line, or one that says more about the error: check that it belongs to this failure. Messages that
  programs also print when they continue, and lines after which this job continued, are not taken for a cause unless
  they name the same file, path or host as the error.
- `cause:` or `possibly:` as in [What a traceback shows](#what-a-traceback-shows), if the error is unknown or too
  general, but its log has a traceback. The explanation depends on the exception, on the line of your code that led to
  it, and on the library that raised it. Of chained exceptions and errors in DataLoader workers, the original counts.
- `cause: unknown` and the complete error otherwise.

If a log shows that Slurm or Kubernetes manages the nodes, or that they share a file system, `what to do:` also says
what to do there.

If several ranks failed, the first is named, and the ranks that only reacted to it are counted: a rank with a timeout
was waiting for another. To see the output of a rank: `./muster logs --rank 3`; to get all logs:
`./muster logs --fetch`. To ask somebody for help: `./muster report RUN --bundle`.

- [What a job says](#what-a-job-says), by topic
- [What a traceback shows](#what-a-traceback-shows)
- [How one of several causes is chosen](#how-one-of-several-causes-is-chosen)
- [What a check finds](#what-a-check-finds) before a run starts
- [How often explanations are right](#how-often-explanations-are-right)

## What a job says

The message may be anywhere in the log of any rank, and the last lines are rarely the cause. Entries marked *hint* may
have other causes. Entries marked *consequence* result from another failure: look at the other ranks, and further up in
the log. Entries marked *proof* are in the kernel's log (`dmesg`), not in the job's.
"""

FRAMES = """\
## What a traceback shows

These explain exceptions without an entry above. The first match counts; those marked *general* are used only if no
other matches the exception or one that led to it.
"""
EVIDENCE = """\
## How one of several causes is chosen

Many errors above have several causes. A line of the log, a frame of the traceback or a fact about the run, such as the
nodes' addresses and interfaces or the numbers of ranks and GPUs, often shows which one applies. The first match
replaces the cause and the remedy of the entry that it names.
"""
CHECKS = """\
## What a check finds

`./muster preflight` and `./muster launch` report these by id, with the node, the problem, the requirement and the
remedy. To skip one, use `-e preflight_skip=ID`; separate several with commas. Only {needed} cannot be skipped, since no
run can be planned without them.

| id | what it means |
|---|---|
"""


RATES = """\
## How often explanations are right

Failures from public threads with an established cause are replayed (`make explain`), and the explanation is compared
with that cause. Only failures that were unseen when the entries were written indicate what to expect for your own. Each
set was collected by someone who had not read the entries, was measured before any entry was changed, and was judged by
hand: a *right* explanation names the cause, or the first failing rank and the kind of its cause; a *wrong* one is
misleading. From the fourth set onwards, the judge was stricter: a *right* explanation names the true cause first, with
a remedy that would solve the problem. If it sufficed that the true cause is among several, with its remedy, 34
explanations of the fourth set, 32 of the fifth, 38 of the sixth, 40 of the seventh and 85 of the eighth would be right;
none of the seventh and 2 of the eighth would be wrong. In 40 failures of the sixth set, the log alone shows the true
cause: 29 of their explanations were right. In the seventh set, 12 failures turned out not to be unseen; of the other
38, 20 explanations were right and 2 wrong.

The sets differ in their failures: the seventh mostly has failures in which several ranks matter. The eighth has the
same shares of each kind (memory, drivers, settings, launchers, network, hangs and others) as 125 failures that were
measured before most of the entries existed: 31 % of those explanations were right, 8 % partly right and 6 % wrong. They
were judged by expressions that match a right explanation. By such expressions, written by those who collected the
failures, 85 of the 100 explanations of the eighth set are right, 4 partly right and 9 wrong; of these 9, the judges
found 2 wrong. A second judge graded half of this set: 45 of its 50 explanations were right, against 38 for the first
(48 and 47 if the true cause may be among several).

| set | measured | failures | right | partly | unknown | wrong | once seen: right | wrong |
|---|---|---|---|---|---|---|---|---|
{unseen}
Of {count} unseen failures, {right} % were explained rightly and {wrong} % wrongly. The goal is 85 % and at most 2 %.
The causes of wrong explanations were then fixed and entries were added (for the third set, only for three wrong
explanations): the last two columns show the effect of these fixes, and do not predict the result on the next set.

An older set of {known} failures, from which many entries were written, now gives {share} % right and {bad} % wrong.
Through real launches (`--launch`, November 28, 2026), 64 of its 65 explanations were right. The other one was misled by
the addresses of the replaying machine, which differ from those in the log; after a fix it is right, too.
An unknown failure after any of {healthy} logs of healthy programs is never given an explanation.

| kind of failure | cases | right | partly | unknown | wrong |
|---|---|---|---|---|---|
"""
HANGS = """
[Hangs](hangs.md#what-was-tested) describes tests with hangs planted in real jobs, and whether
the reported rank and line were right.
"""


def code(text: str) -> str:
    """Format a text as a Markdown code span, even if it contains backquotes."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def prose(text: str) -> str:
    """Escape `*`, `[` and `<` in a text; commands and texts between backquotes become code."""
    parts = re.split(r"(`[^`]*`)", text)
    parts = [part for text in parts for part in ([text] if text.startswith("`") else split_commands(text))]
    return "".join(part if part.startswith("`") else re.sub(r"([*<[])", r"\\\1", part) for part in parts)


def split_commands(text: str) -> list[str]:
    """Split a text into pieces, with commands as code."""
    pieces, end = [], 0
    for match in COMMAND.finditer(text):
        pieces += [text[end : match.start()], code(short(match[0]))]
        end = match.end()
    return [*pieces, text[end:]]


def short(command: str) -> str:
    """Return a command with ./muster in place of ansible-playbook, if ./muster has a word for the playbook."""
    arguments = {playbook: word for word, (playbook, *_more) in COMMANDS.items()}
    return re.sub(
        r"ansible-playbook (\w+)\.yml",
        lambda result: f"./muster {arguments[result[1]]}" if result[1] in arguments else result[0],
        command,
    )


def rendered_entry(entry: CatalogueEntry) -> str:
    """Render one entry in the error catalogue: the message, its cause and remedy."""
    mark = {"root": " (*hint*)" if entry.weak else "", "consequence": " (*consequence*)", "confirmation": " (*proof*)"}
    often = f", in {entry.min_lines} lines or more" if entry.min_lines > 1 else ""
    return (
        f"#### {prose(entry.title)}\n\n"
        f"- `{entry.id}`{mark[entry.kind]}: {code(entry.example)}{often}\n"
        f"- {prose(entry.cause)}\n"
        f"- What to do: {prose(entry.remedy)}.\n"
    )


def rendered_rule(rule: FrameRule) -> str:
    """Render a rule for exceptions: the explained error, its cause and remedy; placeholders mark text of the case."""
    marks = [mark for mark, applies in (("*hint*", not rule.certain), ("*general*", rule.fallback)) if applies]
    texts = (re.sub(r"\{(\w+)\}", lambda field: field[1].upper(), text) for text in (rule.cause, rule.remedy))
    cause, remedy = (text.replace("{{", "{").replace("}}", "}") for text in texts)
    marked = f" ({', '.join(marks)})" if marks else ""
    return f"#### {prose(rule.title)}\n\n- `{rule.id}`{marked}\n- {prose(cause)}\n- What to do: {prose(remedy)}.\n"


def rendered_evidence(rule: EvidenceRule) -> str:
    """Render the evidence for one of several causes: the entries that it replaces, the cause and remedy."""
    texts = (text.replace("{of_interface}", "") for text in (rule.cause, rule.remedy))
    texts = (re.sub(r"\{(\w+)\}", lambda field: field[1].upper(), text) for text in texts)
    cause, remedy = (text.replace("{{", "{").replace("}}", "}") for text in texts)
    entries = ", ".join(f"`{entry}`" for entry in rule.entries)
    return f"- `{rule.id}` ({entries}): {prose(cause)} What to do: {prose(remedy)}.\n"


def what_went_wrong() -> str:
    """Render the page with all entries in the error catalogue, and all findings of the checks."""
    parts = [HEAD]
    for topic, entries in ((topic, entries) for topic, entries in TOPICS.items() if entries):
        parts += [f"### {topic}\n", *(rendered_entry(entry) for entry in entries)]
    parts.append(FRAMES)
    for topic, rules in FRAME_TOPICS.items():
        parts += [f"### {topic}\n", *(rendered_rule(rule) for rule in rules)]
    parts.append(EVIDENCE)
    for topic, selecting in EVIDENCE_TOPICS.items():
        parts += [f"### {topic}\n", "".join(map(rendered_evidence, selecting))]
    rows = "".join(f"| `{name}` | {prose(IDS[name])} |\n" for name in sorted(IDS))
    checks = CHECKS.format(needed=", ".join(f"`{name}`" for name in REQUIRED)) + rows
    return "\n".join([*parts, checks, how_often_right()])


def how_often_right() -> str:
    """Render the section on how often explanations of real failures are right: for unseen failures, and for known ones
    by kind.
    """
    kinds: dict[str, dict[str, int]] = json.loads(MEASURED.read_text(encoding="utf-8"))
    sets: list[dict[str, Any]] = json.loads(UNSEEN.read_text(encoding="utf-8"))
    known_grades, unseen = sum_grades(list(kinds.values())), sum_grades([item["unseen"] for item in sets])
    count, all_known = sum(unseen.values()), sum(known_grades.values())
    numbers = {name: [sum(kind.values()), *(kind[grade] for grade in GRADES)] for name, kind in kinds.items()}
    rows = "".join(f"| {name} | {' | '.join(map(str, row))} |\n" for name, row in numbers.items())
    return (
        RATES.format(
            unseen="".join(unseen_row(number, item) for number, item in enumerate(sets, 1)),
            count=count,
            right=round(100 * unseen["right"] / count),
            wrong=round(100 * unseen["wrong"] / count),
            known=all_known,
            share=round(100 * known_grades["right"] / all_known),
            bad=round(100 * known_grades["wrong"] / all_known),
            healthy=len(list(HEALTHY.glob("*.txt"))),
        )
        + rows
        + HANGS
    )


def sum_grades(counts: list[dict[str, int]]) -> dict[str, int]:
    """Return the sum of several counts by grade."""
    return {grade: sum(count[grade] for count in counts) for grade in GRADES}


def unseen_row(number: int, measured: dict[str, Any]) -> str:
    """Return a row for the table of sets that were unseen when they were measured."""
    grades = measured["unseen"]
    cells = [number, measured["measured"], sum(grades.values()), *(grades[grade] for grade in GRADES)]
    known_grades: dict[str, int] = measured.get("seen", {})  # absent until the set has been worked on
    cells += [known_grades.get("right", "-"), known_grades.get("wrong", "-")]
    return f"| {' | '.join(map(str, cells))} |\n"


PAGES = {"what_went_wrong.md": what_went_wrong}


def main() -> None:
    """Write all pages."""
    for name, render in PAGES.items():
        (DOCS / name).write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
