# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Send requests to a hub: environment of its library, retries, and errors as messages."""

from __future__ import annotations

import errno
import importlib
import os
import re
import time
from typing import Any, Callable, TypeVar

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import StepError, print_line
from ansible_collections.muster.training.plugins.module_utils._hub.repositories import (
    COMMIT,
    RepositoryFile,
    RepositorySnapshot,
)
from ansible_collections.muster.training.plugins.module_utils._stage_data.pieces import is_inside

# seconds for which the hub may keep failing or rate-limiting requests before the program gives up
RETRY_TIMEOUT = 120.0
TRANSIENT_STATUSES = (408, 429, 500, 502, 503, 504)
SET_TOKEN = "export HF_TOKEN on the machine that runs ansible-playbook, or set hugging_face_token, and run this again"
Result = TypeVar("Result")


def prepare(request: dict[str, Any]) -> None:
    """Set the environment so that the library, once imported, uses this cache and this hub."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH"):
        os.environ.pop(name, None)
    os.environ.update(
        HF_HOME=request["home"],
        HF_HUB_CACHE=os.path.join(request["home"], "hub"),
        HF_ENDPOINT=request["endpoint"],
        HF_HUB_DISABLE_PROGRESS_BARS="1",
        HF_HUB_DISABLE_TELEMETRY="1",
        HF_HUB_DISABLE_UPDATE_CHECK="1",
        HF_HUB_DISABLE_SHARED_BLOBS="1",  # otherwise a file may be a link that points outside the cache
        HF_HUB_DOWNLOAD_TIMEOUT="30",
        HF_HUB_ETAG_TIMEOUT="30",
    )


def error_chain(error: BaseException | None) -> list[BaseException]:
    """Return an error and its causes: often the library's own error only says that a file is not in the cache."""
    errors: list[BaseException] = []
    while error is not None and error not in errors:
        errors.append(error)
        error = error.__cause__ or error.__context__
    return errors


def find_response(error: Exception) -> Any:
    """Return the hub's response that caused an error, or None."""
    responses = (getattr(response, "response", None) for response in error_chain(error))
    return next((response for response in responses if response is not None), None)


def retry_delay(response: Any) -> float:
    """Return how many seconds the hub asks to wait, or 0 if it does not say."""
    limit = re.search(r";\s*r=0\s*;\s*t=(\d+)", response.headers.get("RateLimit", ""))
    after = response.headers.get("Retry-After", "")
    return float(limit[1]) if limit else float(after) if after.isdigit() else 0.0


def explain(error: Exception, request: dict[str, Any], item: dict[str, Any]) -> str:
    """Return a permanent error as a one-line message."""
    response, endpoint, name = find_response(error), request["endpoint"], item["name"]
    label = f"{'data set' if item['kind'] == 'dataset' else 'model'} {name}"
    page = f"{endpoint}/{'datasets/' if item['kind'] == 'dataset' else ''}{name}"
    has_token = os.path.exists(os.path.join(request["home"], "token"))
    kinds = {type(cause).__name__ for cause in error_chain(error)}
    for cause in error_chain(error):
        if isinstance(cause, OSError) and cause.errno == errno.ENOSPC:
            return f"{request['home']} is full. Free some space and run this again: complete files are kept"
    if response is None:
        reason = " ".join(str(error_chain(error)[-1]).split())
        return (
            f"{endpoint} is not responding: {reason}. Check that this node can reach it, or correct "
            "hugging_face_endpoint"
        )
    message = response.headers.get("X-Error-Message", "")
    if "GatedRepoError" in kinds:
        access = "the token's account has not been granted access" if has_token else "no token is set"
        return f"{label} is gated, and {access}. Accept its license at {page}, then {SET_TOKEN}"
    if response.status_code == 401 and message.startswith("Invalid credentials"):
        return f"{endpoint} does not recognize the token. Create one at {endpoint}/settings/tokens, then {SET_TOKEN}"
    if "RevisionNotFoundError" in kinds:
        return f"{label} has no revision {item['revision']}. Set it to a branch, tag or commit from {page}"
    if response.status_code in (401, 404):
        visibility = "the token's account cannot see it" if has_token else "it is private and no token is set"
        advice = f"Correct its name (data sets are listed separately), or {SET_TOKEN}"
        return f"{endpoint} has no {label}, or {visibility}. {advice}"
    return (
        f"{label}: {endpoint} responded with {response.status_code} {message}".rstrip()
        + ". Check its page, and run this again"
    )


def call_with_retries(call: Callable[[], Result], request: dict[str, Any], item: dict[str, Any]) -> Result:
    """Return the result of a call to the hub, retrying while that may help. Raise StepError."""
    pause, failing_since = 1.0, 0.0
    while True:
        started = time.monotonic()
        try:
            return call()
        except StepError:
            raise
        except Exception as error:
            response, message = find_response(error), explain(error, request, item)
            # "Not in the cache" is also reported as a ValueError, so check its cause.
            no_response = response is None and not isinstance(error_chain(error)[-1], (ValueError, TypeError))
            disk_full = any(isinstance(cause, OSError) and cause.errno == errno.ENOSPC for cause in error_chain(error))
            if disk_full or not (no_response or (response is not None and response.status_code in TRANSIENT_STATUSES)):
                raise StepError(message) from None
            if not failing_since or time.monotonic() - started > 60:  # earlier calls kept succeeding for a while
                failing_since, pause = time.monotonic(), 1.0
            wait = pause
            if response is not None and response.status_code == 429:
                wait = max(pause, retry_delay(response))
                message = f"{request['endpoint']} is not accepting any more requests for the next {wait:.0f} s (429)"
            if time.monotonic() + wait - failing_since > request.get("retry_timeout", RETRY_TIMEOUT):
                retry_time = time.strftime("%H:%M:%S UTC", time.gmtime(time.time() + wait))
                advice = f"Run this again after {retry_time}" if "429" in message else "Run this again"
                raise StepError(f"{message}. {advice}: complete files are kept") from None
            print_line(f"{message}. Trying again in {wait:.0f} s")
            time.sleep(wait)
            pause = min(30.0, 2 * pause)


def look_up_repository(request: dict[str, Any], item: dict[str, Any]) -> RepositorySnapshot:
    """Look up a requested repository in the hub, with one request. Raise StepError."""
    from huggingface_hub import HfApi

    api = HfApi(endpoint=request["endpoint"])
    info: Any = call_with_retries(
        lambda: api.repo_info(item["name"], repo_type=item["kind"], revision=item["revision"], files_metadata=True),
        request,
        item,
    )
    utils: Any = importlib.import_module("huggingface_hub.utils")
    selected = utils.filter_repo_objects(
        info.siblings or [],
        allow_patterns=item["allow"] or None,
        ignore_patterns=item["ignore"] or None,
        key=lambda sibling: sibling.rfilename,
    )
    files = tuple(
        RepositoryFile(
            str(sibling.rfilename),
            int(sibling.size or 0),
            sibling.lfs["sha256"] if sibling.lfs else "",
            str(sibling.blob_id),
        )
        for sibling in selected
    )
    unsafe = [sibling.path for sibling in files if not is_inside(sibling.path)]
    if unsafe:
        raise StepError(
            f"{request['endpoint']} lists the file {unsafe[0]!r} in {item['name']}, which is outside the repository. "
            "Nothing was written"
        )
    if not COMMIT.fullmatch(str(info.sha)):
        raise StepError(
            f"{request['endpoint']} lists {info.sha!r} as the commit of {item['name']}, which is not a commit hash. "
            "Nothing was written"
        )
    if not files:
        raise StepError(
            f"{item['name']} at {item['revision']} has no file that matches the patterns. Correct allow or ignore"
        )
    return RepositorySnapshot(item["kind"], item["name"], item["revision"], str(info.sha), files)
