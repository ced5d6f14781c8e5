# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules for code that needs another version of Python than the job's."""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.muster.training.plugins.plugin_utils._failures.frames.rule import FrameRule

TOPIC = "Versions of Python"
# Classes of annotations. With 'str' on one side, a type is in quotes, which no version allows.
TYPES = "type|_GenericAlias|_UnionGenericAlias|ABCMeta|GenericAlias"


@dataclass(frozen=True)
class PythonFeature:
    """A feature that a version of Python introduced.

    Attributes:
        version: The first version that has it.
        what: What is used.
        message: Expression for the message of the exception without it.
        source: Expression for the line of code.
        exceptions: Names of the exceptions.
        raised_by: Where the code must be, as in FrameRule.
    """

    version: str
    what: str
    message: str
    source: str = ""
    exceptions: tuple[str, ...] = ("TypeError",)
    raised_by: str = ""


FEATURES = (
    PythonFeature(
        "3.9",
        "a built-in type with brackets, such as list[int]",
        r"'type' object is not subscriptable|'ABCMeta' object is not subscriptable",
        r"\b(?:dict|list|tuple|set|frozenset|type|deque|defaultdict|Callable|Iterable|Iterator|Sequence|Mapping)\[[^\n]{0,400}\Z",
    ),
    PythonFeature(
        "3.10",
        "int | None in annotations",
        rf"unsupported operand type\(s\) for \|: '(?:{TYPES})' and '(?:NoneType|{TYPES})'|"
        rf"unsupported operand type\(s\) for \|: 'NoneType' and '(?:{TYPES})'",
    ),
    PythonFeature("3.10", "zip(strict=True)", r"zip\(\) takes no keyword arguments"),
    PythonFeature(
        "3.10",
        "dataclass(kw_only=True, slots=True)",
        r"dataclass\(\) got an unexpected keyword argument '(?:kw_only|slots)'",
    ),
    PythonFeature(
        "3.9",
        "str.removeprefix or removesuffix",
        r"'str' object has no attribute 'remove(?:prefix|suffix)'",
        exceptions=("AttributeError",),
    ),
    PythonFeature(
        "3.10", "the match statement", r"invalid syntax", r"^\s{0,40}match [^\n]{1,200}:\s{0,4}\Z", ("SyntaxError",)
    ),
    PythonFeature(
        "3.12",
        "quotes within an f-string",
        r"f-string: (?:expecting|unmatched|unterminated)",
        exceptions=("SyntaxError",),
        raised_by="package",  # in a script, more likely a typing error
    ),
    PythonFeature(
        "3.11",
        "Self, StrEnum, tomllib or ExceptionGroup",
        r"cannot import name '(?:Self|Never|LiteralString|Required|NotRequired|Unpack|assert_never|StrEnum)' from "
        r"'(?:typing|enum)'|No module named 'tomllib'",
        exceptions=("ImportError", "ModuleNotFoundError"),
    ),
    PythonFeature(
        "3.10",
        "TypeAlias, ParamSpec, Concatenate or TypeGuard",
        r"cannot import name '(?:TypeAlias|ParamSpec|Concatenate|TypeGuard|EllipsisType|NoneType|pairwise)' from "
        r"'(?:typing|types|itertools)'",
        exceptions=("ImportError",),
    ),
    PythonFeature(
        "3.12",
        "override or batched",
        r"cannot import name '(?:override|batched|TypeAliasType)' from '(?:typing|itertools)'",
        exceptions=("ImportError",),
    ),
)

RULES: tuple[FrameRule, ...] = tuple(
    FrameRule(
        id=f"python-too-old-{number}",
        title=f"The code needs Python {feature.version} ({feature.what})",
        exceptions=feature.exceptions,
        message=feature.message,
        source=feature.source,
        raised_by=feature.raised_by,
        cause=(
            f"{{where}}: the code uses {feature.what}, which requires Python {feature.version} or newer, but the "
            "job's Python is older."
        ),
        remedy=(
            "use a newer Python for the job's environment: ansible-playbook site.yml --tags python_env,pytorch -e "
            f"python_env_python=python{feature.version} (an existing environment keeps its Python: first remove it on "
            "all nodes with ansible-playbook env.yml -e remove=NAME); or install an older version of the package whose "
            "file is last in the traceback. In your own code, if only annotations use it, adding `from __future__ "
            "import annotations` as the first line is enough"
        ),
        over=("import-name-missing", "module-missing"),
    )
    for number, feature in enumerate(FEATURES)
)
