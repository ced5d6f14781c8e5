"""Write the pages of docs/ that are generated from the code: make pages

tests/unit/test_pages.py fails if they are outdated.
"""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

from ansible_collections.muster.training.plugins.plugin_utils._checks.catalogue import IDS, REQUIRED
from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry
from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.registry import TOPICS
from tests.explain.__main__ import MEASURED
from tests.explain.cases import GRADES

WORDS = runpy.run_path(str(Path(__file__).resolve().parents[1] / "roles/init/files/muster.py"))["COMMANDS"]
HEALTHY = Path(__file__).resolve().parent / "unit" / "fixtures" / "healthy_logs"
DOCS = Path(__file__).resolve().parents[1] / "docs"
OPTION = r"(?:-e '\{[^']*\}'|(?:--tags|-e) [\w=.,]*\w(?:\.\.\.)?)"
COMMAND = re.compile(rf"(?:\w+=\.\.\. )?ansible-playbook \w+\.yml(?: {OPTION})*|{OPTION}")

HEAD = """\
# What went wrong

<!-- Generated from the code by `make pages`. Do not edit it here. -->

A run that has failed ends with the node and the rank that failed first, its error, and why it failed:

- `cause:` and `what to do:` as below, with the commands to type, if the error itself is known.
- `possibly:` if the error has several causes, or if only a line near the end of its log is known. `because its log
  says:` shows that line, or the one that says more about the error: check that it is about the failure. Messages that
  programs also print when they go on, and lines after which this one went on, are not taken for a cause, unless they
  are about the same file, path or host as the error.
- `cause: unknown` and the complete error otherwise.

If a log shows that Slurm or Kubernetes manages the nodes, or that they share a file system, `what to do:` also says
what to do there.

If several ranks failed, the first is named, and ranks that only reacted to it are counted: a rank with a timeout
waited for another one. To see what a rank itself wrote: `./muster logs --rank 3`; to get all logs:
`./muster logs --fetch`. To ask somebody else: `./muster report RUN --bundle`.

- [What a job says](#what-a-job-says), by topic
- [What a check finds](#what-a-check-finds) before a run starts
- [How often this is right](#how-often-this-is-right)

## What a job says

The message may be anywhere in the log of any rank, and the last lines are rarely the cause. Entries marked *hint* have
other causes, too. Entries marked *consequence* follow from something else: look at the other ranks, and further up.
Entries marked *proof* are in the kernel's log (`dmesg`), not in the job's.
"""

CHECKS = """\
## What a check finds

`./muster preflight` and `./muster launch` name these by their id, with what was found, what is needed and what to do,
on which node. If you know better, `-e preflight_skip=ID` leaves one out, or several with commas between them: all
but {needed}, without which no run can be planned.

| id | what it means |
|---|---|
"""


RATES = """\
## How often this is right

Measured by replaying {count} failures from public threads, in which the cause was established (`make explain`), and
comparing the explanation with it. {share} % are right, {wrong} % wrong. The entries were written with these failures
at hand, so expect less on others: before, {before} % were right, and 5 % wrong. After {healthy} logs of programs that
work, a failure that is not known is never explained.

| kind of failure | cases | right | partly | unknown | wrong |
|---|---|---|---|---|---|
"""
# Judged by hand by someone who had not seen the catalogue. Later entries were written with these failures at hand, too.
UNSEEN = """
The only measurement with failures that the entries had not seen: 50 from public threads, on 2026-11-27. 50 % were
explained rightly, and 16 % wrongly; with so few, between 36 and 64 %, and between 8 and 29 %. Of the explanations shown
as `cause:`, 57 % were right. Entries were added and made more careful since, so this is not their present rate.

| kind of failure | cases | right | partly | unknown | wrong |
|---|---|---|---|---|---|
| between nodes: network, names, RDMA, hangs, Slurm, MPI, launchers | 20 | 7 | 7 | 2 | 4 |
| packages, CUDA, driver | 10 | 6 | 0 | 2 | 2 |
| memory, /dev/shm | 6 | 5 | 1 | 0 | 0 |
| DDP, FSDP, DeepSpeed | 6 | 4 | 1 | 1 | 0 |
| checkpoints | 4 | 1 | 2 | 0 | 1 |
| data, Hub, disk | 4 | 2 | 1 | 0 | 1 |

Hangs that are planted in real jobs, and whether the rank and the line are right: [Hangs](hangs.md#what-was-tested).
"""
BEFORE = 35  # per cent of the same cases, before the entries were written from them


def code(text: str) -> str:
    """A text as a Markdown code span, even if it contains backquotes."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def prose(text: str) -> str:
    """A text with `*`, `[` and `<` escaped; commands, and texts between backquotes, become code."""
    parts = re.split(r"(`[^`]*`)", text)
    parts = [part for text in parts for part in ([text] if text.startswith("`") else split_commands(text))]
    return "".join(part if part.startswith("`") else re.sub(r"([*<[])", r"\\\1", part) for part in parts)


def split_commands(text: str) -> list[str]:
    """A text split into pieces, with commands as code."""
    pieces, end = [], 0
    for match in COMMAND.finditer(text):
        pieces += [text[end : match.start()], code(short(match[0]))]
        end = match.end()
    return [*pieces, text[end:]]


def short(command: str) -> str:
    """A command with ./muster in place of ansible-playbook, if ./muster has a word for the playbook."""
    words = {playbook: word for word, (playbook, *_more) in WORDS.items()}
    return re.sub(
        r"ansible-playbook (\w+)\.yml",
        lambda found: f"./muster {words[found[1]]}" if found[1] in words else found[0],
        command,
    )


def rendered_entry(entry: CatalogueEntry) -> str:
    """One entry of the catalogue of errors: the message, its cause, what to do."""
    mark = {"root": " (*hint*)" if entry.weak else "", "consequence": " (*consequence*)", "confirmation": " (*proof*)"}
    often = f", in {entry.min_lines} lines or more" if entry.min_lines > 1 else ""
    return (
        f"#### {prose(entry.title)}\n\n"
        f"- `{entry.id}`{mark[entry.kind]}: {code(entry.example)}{often}\n"
        f"- {prose(entry.cause)}\n"
        f"- What to do: {prose(entry.remedy)}.\n"
    )


def what_went_wrong() -> str:
    """The page with all entries of the catalogue of errors, and all that checks find."""
    parts = [HEAD]
    for topic, entries in ((topic, entries) for topic, entries in TOPICS.items() if entries):
        parts += [f"### {topic}\n", *(rendered_entry(entry) for entry in entries)]
    rows = "".join(f"| `{name}` | {prose(IDS[name])} |\n" for name in sorted(IDS))
    checks = CHECKS.format(needed=", ".join(f"`{name}`" for name in REQUIRED)) + rows
    return "\n".join([*parts, checks, how_often_right()])


def how_often_right() -> str:
    """The section on how often explanations of real failures are right, by kind."""
    kinds: dict[str, dict[str, int]] = json.loads(MEASURED.read_text(encoding="utf-8"))
    total = {grade: sum(kind[grade] for kind in kinds.values()) for grade in GRADES}
    count = sum(total.values())
    numbers = {name: [sum(kind.values()), *(kind[grade] for grade in GRADES)] for name, kind in kinds.items()}
    rows = "".join(f"| {name} | {' | '.join(map(str, row))} |\n" for name, row in numbers.items())
    return (
        RATES.format(
            count=count,
            share=round(100 * total["right"] / count),
            wrong=round(100 * total["wrong"] / count),
            before=BEFORE,
            healthy=len(list(HEALTHY.glob("*.txt"))),
        )
        + rows
        + UNSEEN
    )


PAGES = {"what_went_wrong.md": what_went_wrong}


def main() -> None:
    """Write all pages."""
    for name, render in PAGES.items():
        (DOCS / name).write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
