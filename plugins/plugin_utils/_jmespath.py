# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Query a document with JMESPath (https://jmespath.org), like the AWS CLI's --query option."""

from __future__ import annotations

import json
import sys
from typing import Any


class QueryError(ValueError):
    """The query is invalid. The message is a single line that includes the position."""


def run_query(query: str, document: Any) -> Any:
    """Return the result of a query on a document of dictionaries, lists, strings and numbers, or None.

    Raise QueryError if the query is invalid.
    """
    jmespath = _import_jmespath()
    try:
        return jmespath.search(query, document)
    except jmespath.exceptions.JMESPathError as error:
        raise QueryError(_error_message(query, error)) from None
    except RecursionError:
        raise QueryError(f"the JMESPath expression {ascii(query)[:200]} is nested too deeply") from None


def format_result(result: Any) -> str:
    """Format a result as JSON, for the screen or a file."""
    return json.dumps(result, indent=1)


def _error_message(query: str, error: Exception) -> str:
    expression = ascii(query)[:200]
    if not query.strip():
        return "the JMESPath expression is empty. Example: nodes[].node"
    position = getattr(error, "lex_position", getattr(error, "lexer_position", None))
    if position is None:  # an error in a function, whose message names the function
        return f"the JMESPath expression {expression} cannot be evaluated: {' '.join(str(error).split())}"
    remaining_text = query[position : position + 20]
    location = (
        f"at character {position + 1}, at {ascii(remaining_text)}"
        if remaining_text
        else "at its end, where something is missing"
    )
    return f"the JMESPath expression {expression} is invalid {location}. For the syntax, see https://jmespath.org"


def _import_jmespath() -> Any:
    try:
        import jmespath  # type: ignore[import-untyped,unused-ignore]
        import jmespath.exceptions
    except ImportError:
        raise QueryError(
            "JMESPath queries need the Python library jmespath on this machine. Install it for the Python that "
            f"runs Ansible: {sys.executable} -m pip install jmespath"
        ) from None
    return jmespath
