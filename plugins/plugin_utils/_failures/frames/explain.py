# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Explain an exception from its traceback if the catalogue has no explanation, or only a general one."""

from __future__ import annotations

import builtins
import functools
import re
from collections.abc import Iterable
from itertools import pairwise

from ansible_collections.muster.training.plugins.plugin_utils._failures.command_fields import replace_shell_syntax
from ansible_collections.muster.training.plugins.plugin_utils._failures.explanation import Explanation, clean_line
from ansible_collections.muster.training.plugins.plugin_utils._failures.frames import code
from ansible_collections.muster.training.plugins.plugin_utils._failures.frames.advice import AS_STATED, stated_advice
from ansible_collections.muster.training.plugins.plugin_utils._failures.frames.packages import package_pair
from ansible_collections.muster.training.plugins.plugin_utils._failures.frames.registry import RULES, TOPICS
from ansible_collections.muster.training.plugins.plugin_utils._failures.frames.rule import FrameRule
from ansible_collections.muster.training.plugins.plugin_utils._failures.frames.tracebacks import (
    Frame,
    RaisedError,
    read_fault,
)

MAX_TEXT = 4000  # number of characters of an exception to search
MAX_SHOWN = 480  # number of characters of a message in a cause
MAX_SOURCE = 100  # number of characters of a line of code in a cause
PATH = re.compile(r"'([^'\n]{2,300})'|\"([^\"\n]{2,300})\"|(?<![\w/.])(/[\w.@+-]{1,100}(?:/[\w.@+=-]{1,200}){1,20})")
# Rules that say little more than an exception itself.
CATCH_ALL = frozenset(rule.id for rule in TOPICS[code.TOPIC] if rule.fallback)
CRASH = "native-crash"
CRASHED_AT = (
    "Compiled code crashed while Python was at {where}{inner}: {package} was built for a different torch, CUDA or "
    "Python version, or is used in several processes or threads at the same time."
)


def explain_chain(chain: list[RaisedError], replaceable: str | None, fallback: bool) -> Explanation | None:
    """Return an explanation of the first exception in a chain that a specific rule matches, otherwise of the last
    cause.

    Args:
        chain: An exception, then those that led to it, nearest first.
        replaceable: The entry of the catalogue that explains it in general only, or None if the catalogue does not.
        fallback: Whether fallbacks may explain it.
    """
    for raised in chain:
        explanation = explain_raised(raised, replaceable, fallback=False)
        if explanation is not None:
            return explanation
    if not fallback or not chain:
        return None
    if chain[0].is_deliberate:
        return explain_deliberate(chain, replaceable)
    last = 0
    while last + 1 < len(chain) and chain[last].link == "cause":
        last += 1
    candidates = (explain_raised(raised, replaceable, fallback=True) for raised in (chain[last], *chain))
    return next(filter(None, candidates), None)


def explain_deliberate(chain: list[RaisedError], replaceable: str | None) -> Explanation | None:
    """Return the explanation of an exception that the script raised itself, with the one from which it raised it.

    If more is known about the latter than its message, return the explanation of the latter.
    """
    for later, origin in pairwise(chain):
        if later.link != "cause":
            break
        explanation = explain_raised(origin, replaceable, fallback=True)
        if explanation is not None and explanation["id"] not in CATCH_ALL:
            return explanation
    explanation = explain_raised(chain[0], replaceable, fallback=True)
    if explanation is None or chain[0].link != "cause" or not chain[1:]:
        return explanation
    origin = chain[1]
    message = shorten(origin.message, MAX_SHOWN).removesuffix(".")
    text = f"{shorten(origin.exception, MAX_SHOWN)}: {message}" if message else shorten(origin.exception, MAX_SHOWN)
    location = describe_place(origin)
    at = f", at {location}" if location else ""
    return {**explanation, "cause": f"{explanation['cause'].removesuffix('.')}, because of {text}{at}."}


def explain_raised(raised: RaisedError, replaceable: str | None, fallback: bool) -> Explanation | None:
    """Return the explanation of an exception by the first matching rule, either a fallback or not, or None."""
    for rule in RULES:
        if rule.fallback != fallback or (replaceable is not None and replaceable not in rule.over):
            continue
        fields = match_rule(rule, raised)
        if fields is not None:
            advice = stated_advice(raised.text.partition(":")[2]).replace("`", "'") if rule.fallback else ""
            remedy = rule.remedy.format_map(replace_shell_syntax(fields))
            if advice:
                otherwise = "" if rule.remedy == AS_STATED else f". Otherwise: {remedy}"
                remedy = f"as the message says: {shorten(advice, MAX_SHOWN)}{otherwise}"
            return {
                "id": rule.id,
                "cause": rule.cause.format_map(fields),
                "remedy": remedy,
                "evidence": "",
                "confidence": "error" if rule.certain else "log",
            }
    return None


def explain_crash(lines: Iterable[str]) -> Explanation | None:
    """Return where a fatal error ended the process, according to faulthandler's dump, or None."""
    frames = read_fault(lines)
    if not frames:
        return None
    crash = RaisedError("Fatal", frames)
    innermost = frames[-1]
    package = next((frame.installed_package for frame in reversed(frames) if frame.installed_package), "")
    inner = "" if innermost.is_user_code or crash.user_frame is None else f" (inside {describe_frame(innermost)})"
    return {
        "id": CRASH,
        "cause": CRASHED_AT.format(where=describe_place(crash), inner=inner, package=package or "a package"),
        "remedy": (
            f"reinstall or upgrade {package or 'the package whose function that line calls'}; if the crash is in a "
            "DataLoader worker, try num_workers=0; run ansible-playbook preflight.yml to compare the versions on all "
            "nodes"
        ),
        "evidence": "",
        "confidence": "log",
    }


def match_rule(rule: FrameRule, raised: RaisedError) -> dict[str, str] | None:
    """Return the fields for a rule's texts, or None if one of its conditions does not hold."""
    if rule.exceptions and not set(rule.exceptions) & base_names(raised.exception):
        return None
    packages = {*raised.packages[:3], raised.qualified_name.partition(".")[0]}
    if rule.packages and not packages.intersection(rule.packages):
        return None
    if not applies_to_raiser(rule, raised):
        return None
    message = compile_pattern(rule.message).search(raised.text[:MAX_TEXT])
    source = compile_pattern(rule.source).search("\n".join(inner_sources(raised))[-MAX_TEXT:])
    if message is None or source is None:
        return None
    package = next((name for name in raised.packages if not rule.packages or name in rule.packages), "")
    groups = {**source.groupdict(), **message.groupdict()}
    if len({groups[name] for name in rule.equal}) > 1:
        return None
    caller, callee = package_pair(raised) if rule.two_packages else ("", "")
    if rule.two_packages and not callee:
        return None
    return {
        "where": describe_place(raised),
        "message": shorten(raised.message or raised.exception, MAX_SHOWN).removesuffix("."),
        "package": package or next(iter(raised.packages), "Python"),
        "path": path_of(raised),
        "exception": raised.exception,
        "caller": caller,
        "callee": callee,
        "inner": "" if raised.innermost is None else describe_frame(raised.innermost),
        **{name: shorten(value or "", MAX_SHOWN) for name, value in groups.items()},
    }


def applies_to_raiser(rule: FrameRule, raised: RaisedError) -> bool:
    """Return whether a rule's conditions on the code that raised the exception hold."""
    if (rule.operation and raised.is_deliberate) or (rule.of_module and not raised.frames_of_reader):
        return False
    return not rule.raised_by or rule.raised_by == find_raiser(raised)


@functools.cache
def compile_pattern(text: str) -> re.Pattern[str]:
    """Compile a rule's pattern when it is first needed."""
    return re.compile(text)


def base_names(name: str) -> set[str]:
    """Return the names of an exception class and its built-in base classes."""
    builtin = getattr(builtins, name, None)
    bases = builtin.__mro__ if isinstance(builtin, type) and issubclass(builtin, BaseException) else ()
    return {name, *(base.__name__ for base in bases)}


def find_raiser(raised: RaisedError) -> str:
    """Return "script" if the user's own code raised the exception, "package" if code that it called, "" if unknown."""
    if raised.innermost is None:
        return ""
    return "script" if raised.innermost.is_user_code else "package"


def inner_sources(raised: RaisedError) -> list[str]:
    """Return the lines of code from the user's innermost frame to the frame that raised the exception."""
    frames = list(raised.frames_of_reader or raised.frames)
    positions = [index for index, frame in enumerate(frames) if frame.is_user_code]
    return [frame.source for frame in frames[positions[-1] if positions else 0 :]]


def describe_place(raised: RaisedError) -> str:
    """Return the user's line of code that led to an exception, such as "train.py:88 in load (`x = y[3]`)"."""
    frame = raised.user_frame or raised.innermost
    return "" if frame is None else describe_frame(frame)


def describe_frame(frame: Frame) -> str:
    """Return a readable description of a frame: the last parts of the path, the line, the function and the line of
    code.
    """
    path = "/".join(frame.path.rsplit("/", 2)[-2:]) if frame.path.startswith("/") else frame.path
    function = "" if frame.function in ("", "<module>") else f" in {frame.function}"
    source = shorten(frame.source, MAX_SOURCE).replace("`", "'")
    return shorten(f"{path}:{frame.line}{function}", MAX_SHOWN) + (f" (`{source}`)" if source else "")


def path_of(raised: RaisedError) -> str:
    """Return the file that is named by an exception or by the user's line of code, or "a file"."""
    frame = raised.user_frame
    for text in (raised.text[:MAX_TEXT], frame.source if frame else ""):
        for match in PATH.finditer(text):
            path = next(filter(None, match.groups()))
            if "/" in path or "." in path:
                return shorten(path, MAX_SHOWN)
    return "a file"


def shorten(text: str, limit: int) -> str:
    """Return a text from a job as one line that is safe for a terminal, truncated to a number of characters."""
    line = " ".join(clean_line(text[: 4 * limit]).split())
    if len(line) <= limit:
        return line
    whole = line[:limit].rpartition(" ")[0]  # not in the middle of a word, which may be the one that matters
    return f"{whole if 2 * len(whole) > limit else line[:limit].rstrip()} …"
