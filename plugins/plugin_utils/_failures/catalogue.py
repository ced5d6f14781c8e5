# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Match a log against the error catalogue."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from dataclasses import dataclass

from ansible_collections.muster.training.plugins.module_utils._run.error_text import (
    MAX_TAIL_LINES,
    MIN_PROGRESS,
    PROGRESS,
)
from ansible_collections.muster.training.plugins.module_utils._run.node_loss import (
    RESTARTED,
    SHUT_DOWN,
    SUPERVISOR_DIED,
)
from ansible_collections.muster.training.plugins.module_utils._run.output_formats import plain_output
from ansible_collections.muster.training.plugins.plugin_utils._failures import nccl_differences
from ansible_collections.muster.training.plugins.plugin_utils._failures.earlier_errors import explain_earlier_error
from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry
from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.registry import CATALOGUE
from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.select import (
    compile_pattern,
    select_cause,
)
from ansible_collections.muster.training.plugins.plugin_utils._failures.explanation import (
    Confidence,
    Explanation,
    clean_line,
)
from ansible_collections.muster.training.plugins.plugin_utils._failures.facts import NOTHING, RunFacts
from ansible_collections.muster.training.plugins.plugin_utils._failures.frames.explain import (
    explain_chain,
    explain_crash,
)
from ansible_collections.muster.training.plugins.plugin_utils._failures.frames.tracebacks import (
    RaisedError,
    chain_of,
    read_tracebacks,
)
from ansible_collections.muster.training.plugins.plugin_utils._failures.hang import CAUSE, REMEDY, WAITED_FOR
from ansible_collections.muster.training.plugins.plugin_utils._failures.local_advice import local_advice
from ansible_collections.muster.training.plugins.plugin_utils._failures.reactions import (
    EXCEPTION,
    REPORT,
    explains_end,
    explains_reaction,
    is_disproved,
    is_raised,
)
from ansible_collections.muster.training.plugins.plugin_utils._failures.timeout_clues import clue_of
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import ESCAPE

MAX_TEXT = 1_000_000  # number of characters to search, from the end of a text, since whatever ended a job comes last
MAX_LINE = 300  # number of characters of a line to show
CONTEXT = 100  # how many of the MAX_LINE characters come before the match in a longer line
SHUT_DOWN_NODE = re.compile(rf"\S{{1,255}} (?:{SHUT_DOWN}|is lost: {RESTARTED})\Z")
DEAD_SUPERVISOR = re.compile(rf"\S{{1,255}} is lost: {re.escape(SUPERVISOR_DIED)}\Z")
# An end without an error message: what precedes it in the log may be the reason.
VAGUE = re.compile(
    r"(?:one of ranks \d{1,9} to \d{1,9}: )?(?:was killed by|was stopped|ended with|the launcher )|\s{0,9}\Z|"
    r"(?:[\w.]{0,100}Exception: ?\s{0,9})?-- Process \d{1,9} terminated with the following error:\s{0,9}\Z"
)
# Subjects of a message: (host, port), [host]:port, a quoted name, a path, an address, after "hostname" or "node:".
SUBJECT = re.compile(
    r"\(([\w.-]{4,255}), \d{1,5}\)|\[([\w.-]{4,255})\]:\d|'([^'\s]{5,300})'|(?<![\w/])(/[\w.-]{1,100}/[\w./-]{1,300})|"
    r"\b(\d{1,3}(?:\.\d{1,3}){3})\b|\b(?:[Hh]ostname|[Hh]ost|node:) {1,8}([\w.-]{4,255})|\b((?i:numpy|cudnn))\b"
)
SOURCE_FILE = re.compile(r"\.(?:py|pyx|c|cc|cpp|cu|h|hpp)$|/site-packages/|/dist-packages/|^/(?:dev|proc)/")
MAX_SUBJECT_TEXT = 4000  # maximum number of characters of a message to scan for the names it refers to
SHARED_LOG = re.compile(r"one of ranks \d{1,9} to \d{1,9}: ")
LAST_OUTPUT = re.compile(
    r"(?:one of ranks \d{1,9} to \d{1,9}: )?ended with [^,\n]{1,60}, its last output: (?P<text>.{1,2000})"
)
CRASHES = ("native-crash", "aborted")  # entries whose location in the code is shown by a faulthandler dump
LAST_ERROR = re.compile(
    r"^[^\n]{0,40}Last error:[ \t]{0,4}\n?(?:\[rank\d{1,9}\]: ?)?(?P<line>[^\n]{0,1000})", re.MULTILINE
)
MAX_WARNINGS = 20  # number of NCCL lines at the end of a log that are searched for one that is not in the catalog
NCCL_WARNING = re.compile(r"\bNCCL WARN [^\n]{1,1000}")
LOST_NODE = re.compile(r"\S{1,255} is lost: ")  # the wording of supervisors and the verdict
NODE_LOST: Explanation = {
    "id": "node-lost",
    "cause": "The machine or its network went down. The last lines of its log do not say why.",
    "remedy": (
        "run ansible-playbook ping.yml to see whether the machine is back; its provider's console, and sudo "
        "journalctl --boot=-1 on the machine, may say what happened. Launch again from the last checkpoint; to leave "
        "the machine out, launch with -e nodes=A,B"
    ),
    "evidence": "",
    "confidence": "error",
}


NODE_SHUT_DOWN: Explanation = {
    "id": "node-shut-down",
    "cause": "The machine was shut down or rebooted during the run: by a person, its automatic updates, or "
    "its provider.",
    "remedy": (
        "run last -x shutdown reboot on the machine to see when it happened, and sudo journalctl --boot=-1 to see "
        'why. If automatic updates caused it, set Unattended-Upgrade::Automatic-Reboot "false" in '
        "/etc/apt/apt.conf.d/50unattended-upgrades. Launch again from the last checkpoint"
    ),
    "evidence": "",
    "confidence": "error",
}
SUPERVISOR_ENDED: Explanation = {
    "id": "supervisor-died",
    "cause": (
        "The machine stayed up, but muster's supervisor on it either was killed (by a person, or because memory "
        "ran out) or hung (for example, on a file system that was not responding) and was then stopped."
    ),
    "remedy": (
        "run sudo dmesg on the machine to see which processes were killed for lack of memory, and sudo journalctl "
        "--boot --unit='muster-*' to see what systemd stopped. Launch again from the last checkpoint"
    ),
    "evidence": "",
    "confidence": "error",
}
WAITED_FOR_RANK: Explanation = {"id": "hang", "cause": CAUSE, "remedy": REMEDY, "evidence": "", "confidence": "error"}
EXPLAINED = (
    *nccl_differences.EXPLAINED,
    (WAITED_FOR, WAITED_FOR_RANK),
    (SHUT_DOWN_NODE, NODE_SHUT_DOWN),
    (DEAD_SUPERVISOR, SUPERVISOR_ENDED),
    (LOST_NODE, NODE_LOST),
)


@dataclass(frozen=True)
class Match:
    """A matching entry and the matched line of the text, without control characters and at most MAX_LINE long."""

    entry: CatalogueEntry
    line: str


def excerpt(line: str, position: int) -> str:
    """Return the part of a line around a position, for display to the user."""
    if len(line) > 2 * MAX_LINE:  # shorten it before cleaning it, which is slow
        line = line[max(0, position - CONTEXT) :][: 2 * MAX_LINE]
    return " ".join(clean_line(line).split())[:MAX_LINE]


def find_first_line(entry: CatalogueEntry, text: str, explained: Set[int]) -> tuple[int, str] | None:
    """Return where an entry's first matching line starts and the excerpt to show, or None if the text does not match.

    Each line is examined once, even with several matches.

    Args:
        entry: The entry of the catalogue.
        text: The text to search.
        explained: Starts of lines that other entries have explained.
    """
    lines: dict[int, str] = {}
    for pattern in map(compile_pattern, entry.texts):
        position = 0
        while len(lines) < entry.min_lines or entry.min_lines == 1:
            match = pattern.search(text, position)
            if match is None:
                break
            start = text.rfind("\n", 0, match.start()) + 1
            end = text.find("\n", match.end())
            position = len(text) if end == -1 else end
            if start not in explained:
                lines[start] = excerpt(text[start:position], match.start() - start)
                if entry.min_lines == 1:
                    break
    return min(lines.items()) if len(lines) >= entry.min_lines else None


def priority(match: Match) -> int:
    """Return a match's priority; lower numbers come first.

    The order is: possible causes, outside confirmations, mere hints, consequences of other failures, summaries.
    """
    if match.entry.summary:
        return 4
    if match.entry.kind == "root":
        return 2 if match.entry.weak else 0
    return 1 if match.entry.kind == "confirmation" else 3


def explain(text: str) -> list[Match]:
    """Return the catalogue's matches in a text, most important first and with each entry only once.

    text: a log or an error, with arbitrary content; a carriage return also ends a line. Each line matches only one
    entry: the first in the catalogue that is neither general nor a summary.
    """
    lines = ESCAPE.sub("", text[-MAX_TEXT:]).replace("\r", "\n")
    explained: set[int] = set()
    matches = []
    for entry in sorted(CATALOGUE, key=lambda entry: (entry.summary, entry.general)):
        match = find_first_line(entry, lines, explained)
        if match is not None:
            explained.add(match[0])
            matches.append(Match(entry, match[1]))
    return sorted(matches, key=priority)  # stable sort: otherwise in catalog order


def explain_failure(error: str, last_lines: Iterable[str], facts: RunFacts = NOTHING) -> Explanation | None:
    """Return why a rank or launcher failed, or None if the failure is not in the catalogue.

    Args:
        error: The exception's message, or how the process ended.
        last_lines: Those of its log. They count if the error itself is unknown, general, a hint or a consequence, and
        if they
            refine it: then for possible causes; if it is only an exit code or a signal, also for hints and
            consequences.
        facts: Those of the run, which may decide between several causes.
    """
    lines = plain_output("\n".join(list(last_lines)[-MAX_TAIL_LINES:])).split("\n")
    for pattern, constant in EXPLAINED:
        if pattern.match(error):
            return select_cause(constant, error, lines, facts)
    own = next(iter(explain(error)), None)
    explanation = explain_by_catalogue(error, lines, own)
    explanation = explain_by_frames(error, lines, own, explanation) or explanation
    if own is not None and own.entry.kind == "consequence" and explanation and explanation["id"] == own.entry.id:
        explanation = explain_earlier_error(lines, is_reaction, own.entry.summary) or explanation
    if explanation is None:
        return None
    selected = select_cause(explanation, error, lines, facts)
    if selected is explanation:
        selected = add_clue(explanation, error, lines)
    return add_local_advice(selected, [error, *lines])


def add_clue(explanation: Explanation, error: str, lines: list[str]) -> Explanation:
    """Return the explanation of a timeout, with the most likely reason and its remedy first."""
    clue = clue_of(explanation["id"], error, lines)
    if clue is None:
        return explanation
    return {
        **explanation,
        "cause": f"{clue.sentence} {explanation['cause']}",
        "remedy": f"{clue.remedy}. Otherwise: {explanation['remedy']}",
    }


def explain_by_catalogue(error: str, lines: list[str], own: Match | None) -> Explanation | None:
    """Look up the explanation of a failure in the catalogue; return None if there is none. own: the catalogue entry
    that the error itself matched.
    """
    match = find_better_match(error, own, find_causes(lines, error, own))
    if match is not None:
        match = find_refinement(match, find_causes(lines, error, match)) or match
        return explanation_of(match, "log", match.line)
    if own is None:
        return None
    if own.entry.weak:
        return explanation_of(own, "log", unexplained_line(error, lines))
    return explanation_of(own, "error", "")


def explain_by_frames(
    error: str, lines: list[str], own: Match | None, explanation: Explanation | None
) -> Explanation | None:
    """Return an explanation based on the traceback if the catalogue has none or only a general one, otherwise None.

    Args:
        error: The error that ended the process.
        lines: The end of its log.
        own: The error's own match in the catalogue.
        explanation: The catalogue's explanation.
    """
    if own is not None and own.entry.id in CRASHES and explanation is not None and explanation["id"] in CRASHES:
        return explain_crash(lines)
    if is_uninformative(error, own):
        output = LAST_OUTPUT.match(error)
        if output is None or not EXCEPTION.match(output["text"]) or explanation is not None:
            return explain_crash(lines) if explanation is None or explanation["id"] in CRASHES else None
        error = output["text"]
    if own is not None and (explanation is None or explanation["id"] != own.entry.id):
        return None  # a line in the log is more informative
    if own is None and explanation is not None and REPORT.match(error):
        return None  # the other program's own message
    chain = chain_of(SHARED_LOG.sub("", error), lines)
    earlier = explain_cause(chain) if own is None else None
    if earlier is not None:
        return earlier
    return explain_chain(chain, None if own is None else own.entry.id, fallback=explanation is None or own is not None)


def explain_cause(chain: list[RaisedError]) -> Explanation | None:
    """Explain an exception that led to another one, or return None if the catalogue does not list its cause."""
    for number, raised in enumerate(chain):
        match = next((match for match in explain(raised.text) if priority(match) == 0), None)
        if match is not None:
            handled = any(later.link == "context" for later in chain[:number])
            return explanation_of(match, "log" if handled else "error", match.line if handled else "")
    return None


def find_better_match(error: str, own: Match | None, of_log: list[Match]) -> Match | None:
    """Return a log line that is more informative than the error itself, or None.

    Args:
        error: The error.
        own: The error's most important match.
        of_log: The matches in its log, most important first.
    """
    vague = is_uninformative(error, own) or bool(REPORT.match(error))
    refined = None if own is None else find_refinement(own, of_log)
    if refined is not None and own is not None and priority(own) and refined.entry.recoverable:
        return next(filter(is_certain, of_log), refined)
    if refined is not None or (own is not None and priority(own) == 0 and not own.entry.general):
        return refined
    # a reaction is less informative than a hint
    hints = 3 if own is not None and own.entry.kind == "consequence" else 2
    causes = [match for match in of_log if priority(match) < hints]
    causes.sort(key=lambda match: not same_subject(error, match.line))  # stable
    specific = [match for match in causes if priority(match) == 0 and not match.entry.general]
    if (
        own is not None and priority(own) == 0
    ):  # general: a specific line about the same file, path or host is more informative
        return next((match for match in specific if same_subject(error, match.line)), None)
    if causes and (own is None or priority(causes[0]) < priority(own)):
        return causes[0]
    if own is None and not vague:  # a hint about the same file, path, host or package
        return next((match for match in of_log if priority(match) == 2 and same_subject(error, match.line)), None)
    if own is not None and own.entry.summary:
        return of_log[0] if of_log else None
    telling = [match for match in of_log if own is None or not match.entry.summary]
    return telling[0] if telling and vague and (own is None or own.entry.general) else None


def is_reaction(text: str) -> bool:
    """Return whether an error is only a reaction to, or a report of, an earlier failure."""
    matches = explain(text)
    return bool(matches) and priority(matches[0]) > 2


def is_certain(match: Match) -> bool:
    """Return whether a match is a specific cause whose message always ends a program, wherever it appears."""
    return priority(match) == 0 and not (match.entry.general or match.entry.recoverable)


def is_uninformative(error: str, own: Match | None) -> bool:
    """Return whether an error only says that a process ended, in which case the log is more informative."""
    return bool(VAGUE.match(error)) or (own is not None and own.entry.summary)


def find_refinement(match: Match, of_log: list[Match]) -> Match | None:
    """Return the log line that should replace a match, or None."""
    return next((other for other in of_log if match.entry.id in other.entry.refines), None)


def shows_cause(error: str) -> bool:
    """Return whether an error itself shows why a rank failed."""
    return any(priority(match) == 0 for match in explain(error))


def find_causes(last_lines: Iterable[str], error: str = "", own: Match | None = None) -> list[Match]:
    """Return the matches at the end of a log that may explain why the program ended, in order of importance.

    Excludes the messages that programs also print when they continue, unless they are about the same file, path, host
    or package as the error, or refine it; and those after which this program continued.

    Args:
        last_lines: The end of the log.
        error: The error that ended it. If nothing else explains its end, an exception in the log may be the reason.
        own: The error's match.
    """
    lines = list(last_lines)[-MAX_TAIL_LINES:]
    progress = [index for index, line in enumerate(lines) if PROGRESS.search(line[:MAX_LINE])]
    if len(progress) >= MIN_PROGRESS:
        lines = lines[progress[-MIN_PROGRESS] :]
    vague = is_uninformative(error, own) or bool(REPORT.match(error))
    exceptions = [raised.text for raised in read_tracebacks(lines)]

    def counts(match: Match) -> bool:
        if own is not None and match.entry.id == own.entry.id:
            return False
        if not match.entry.recoverable or (vague and match.entry.lasting):
            return True
        raised = is_raised(match.entry, lines, exceptions)
        if vague and raised:
            return True
        if is_disproved(match.entry, lines):
            return False
        if (own is not None and own.entry.id in match.entry.refines) or same_subject(error, match.line):
            return True
        if own is None:
            return vague and explains_end(match.entry, lines)
        if subjects(error) and subjects(match.line) and not raised:
            return False  # about a different host, path or package
        return explains_reaction(match.entry, raised, own.entry, lines)

    return [match for match in explain("\n".join(lines)) if counts(match)]


def subjects(text: str) -> set[str]:
    """Return the files, paths, hosts and packages that a message mentions, in lowercase."""
    names = {next(filter(None, groups)).lower() for groups in SUBJECT.findall(text[:MAX_SUBJECT_TEXT])}
    return {name.rstrip("/.") for name in names if not SOURCE_FILE.search(name)}


def same_subject(error: str, line: str) -> bool:
    """Return whether an error and a log line mention the same file, path, host or package."""
    ours, others = subjects(error), subjects(line)
    return any(
        # a host name, with or without domain
        name == other or name.startswith(f"{other}.") or other.startswith(f"{name}.")
        for name in ours
        for other in others
    )


def unexplained_line(error: str, last_lines: list[str]) -> str:
    """Return the log line that gives more detail about an error with several possible causes, or "".

    This is NCCL's last error or last warning, unless the catalogue explains it as something else.
    """
    text = ESCAPE.sub("", "\n".join([*last_lines, error])).replace("\r", "\n")
    last_errors = [match["line"] for match in LAST_ERROR.finditer(text)]
    lines = [*last_errors[-1:], *reversed(NCCL_WARNING.findall(text)[-MAX_WARNINGS:])]
    return next((excerpt(line, 0) for line in lines if line.strip() and not explain(line)), "")


def explanation_of(match: Match, confidence: Confidence, seen: str) -> Explanation:
    """Convert a match to an explanation."""
    entry = match.entry
    return {"id": entry.id, "cause": entry.cause, "remedy": entry.remedy, "evidence": seen, "confidence": confidence}


def add_local_advice(explanation: Explanation, lines: Iterable[str]) -> Explanation:
    """Add advice to an explanation that is specific to the kind of cluster that the lines indicate."""
    advice = local_advice(explanation["id"], lines)
    return {**explanation, "remedy": ". ".join([explanation["remedy"], *advice])}
