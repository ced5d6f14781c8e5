# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Validation of requests and replies against the official API document (OpenAPI 3.0)."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

import jsonschema

# The document, if available, next to the checkout. It belongs to Paperspace and is not part of this project.
DOCUMENT = Path(__file__).resolve().parents[3].parent / "shared" / "paperspace" / "openapi.json"

_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_FORMATS = jsonschema.FormatChecker(formats=())


@_FORMATS.checks("date-time")
def _is_date_time(value: object) -> bool:
    return not isinstance(value, str) or _DATE_TIME.fullmatch(value) is not None


class ApiDocument:
    """The API document. Each check returns a list of errors, empty for none."""

    def __init__(self, path: Path = DOCUMENT) -> None:
        self._content = _read(path)

    def has_operation(self, method: str, template: str) -> bool:
        """Return whether an operation exists; template is a path such as /machines/{id}."""
        return method.lower() in self._content["paths"].get(template, {})

    def check_query(self, method: str, template: str, query: dict[str, str]) -> list[str]:
        """Return errors of query parameters: unknown, missing, or of the wrong type or value."""
        parameters = {p["name"]: p for p in self._operation(method, template)["parameters"] if p["in"] == "query"}
        problems = [f"{name}: no such parameter" for name in query if name not in parameters]
        for name, parameter in parameters.items():
            if name in query:
                schema = _as_json_schema(parameter["schema"])
                problems += _validate(schema, _parse_parameter(query[name], parameter["schema"]), name)
            elif parameter["required"]:
                problems.append(f"{name}: Required")
        return problems

    def check_body(self, method: str, template: str, body: Any) -> list[str]:
        """Return errors of a request's body; None is no body."""
        request = self._operation(method, template).get("requestBody")
        if request is None:
            return [] if body in (None, {}) else ["this operation takes no body"]
        return _validate(_as_json_schema(request["content"]["application/json"]["schema"]), body, "body")

    def check_reply(self, method: str, template: str, status: int, reply: Any) -> list[str]:
        """Return errors in a reply: status 200 has the operation's schema, any other status the error schema."""
        if status == 200:
            content = self._operation(method, template)["responses"]["200"]["content"]
        else:
            content = self._content["components"]["responses"]["error"]["content"]
        return _validate(_as_json_schema(content["application/json"]["schema"]), reply, "reply")

    def _operation(self, method: str, template: str) -> dict[str, Any]:
        operation: dict[str, Any] = self._content["paths"][template][method.lower()]
        return operation


@functools.cache
def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def _parse_parameter(text: str, schema: dict[str, Any]) -> Any:
    """Convert a query parameter from text to its documented type."""
    if schema.get("type") in ("integer", "number") and re.fullmatch(r"-?\d+", text):
        return int(text)
    if schema.get("type") == "boolean" and text in ("true", "false"):
        return text == "true"
    return text


def _as_json_schema(schema: Any) -> Any:
    """Convert OpenAPI 3.0's dialect to JSON Schema draft 4, which lacks `nullable`."""
    if isinstance(schema, list):
        return [_as_json_schema(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {key: _as_json_schema(value) for key, value in schema.items() if key != "nullable"}
    return {"anyOf": [plain, {"type": "null"}]} if schema.get("nullable") is True else plain


def _validate(schema: Any, value: Any, name: str) -> list[str]:
    validator = jsonschema.Draft4Validator(schema, format_checker=_FORMATS)
    return [f"{'.'.join([name, *map(str, e.absolute_path)])}: {e.message}" for e in validator.iter_errors(value)]
