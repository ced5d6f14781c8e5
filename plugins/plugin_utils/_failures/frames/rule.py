# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A rule that explains an exception by its class, its frames and its message."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FrameRule:
    """A kind of exception, recognized by where it was raised rather than by one known message.

    All conditions must hold. Regular expressions are searched, and have no unbounded repetition.

    Attributes:
        title: Title for docs/what_went_wrong.md.
        cause, remedy: Texts with fields in braces: {where}, {message}, {package}, {path}, {inner} (the innermost
            frame), {caller} and {callee} (if two_packages), and the groups of `message` and `source`.
        exceptions: Names of exception classes or their built-in bases; () matches all.
        packages: Packages of which one must be among the frames inside the user's innermost frame, or must define the
        exception;
            () matches all.
        message: Expression for the complete text of the exception, with its class.
        source: Expression for the lines of code of the frames, from the user's innermost frame inwards.
        raised_by: "script" if the user's own code must have raised it itself, "package" if it was raised deeper inside.
        certain: Whether this is the cause rather than a possible one.
        fallback: Whether any rule that is not a fallback, for an exception that led to this one, is preferred.
        two_packages: Whether the call must be one of a package to another, with arguments that the latter refuses.
        over: Entries of the catalogue that say less than this rule.
        operation: Whether it explains an operation that failed. An exception with a similar message which the script
            raises deliberately, with a raise statement, is not one.
        of_module: Whether the script must read an attribute that a torch.nn.Module does not have.
        equal: Two groups of `message` and `source` that must have the same text, or ().
    """

    id: str
    title: str
    cause: str
    remedy: str
    exceptions: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    message: str = ""
    source: str = ""
    raised_by: str = ""
    certain: bool = True
    fallback: bool = False
    two_packages: bool = False
    over: tuple[str, ...] = ()
    operation: bool = False
    of_module: bool = False
    equal: tuple[str, str] | tuple[()] = ()
