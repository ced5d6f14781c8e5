# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One incomplete list of resources causes neither duplicate nor orphaned machines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._clouds.cloud import PlainAccount
from ansible_collections.muster.training.plugins.plugin_utils._clouds.engine.confirm import MISSING_TIMEOUT
from ansible_collections.muster.training.plugins.plugin_utils._clouds.engine.provision import provision
from ansible_collections.muster.training.plugins.plugin_utils._clouds.engine.teardown import teardown
from ansible_collections.muster.training.plugins.plugin_utils._clouds.journal import read_journal
from tests.support.minimal_cloud import Account, MinimalCloud, Request

pytestmark = pytest.mark.one_core


class ForgetfulCloud(MinimalCloud):
    """A provider that omits resources from the first lists of a command."""

    omitted: Iterator[set[str]] = iter(())

    def read_account(self) -> PlainAccount:
        names, resources = next(self.omitted, set()), super().read_account().resources
        complete: dict[str, Any] = dict(resources)
        listed = {kind: [item for item in items if item["name"] not in names] for kind, items in complete.items()}
        return PlainAccount(listed)  # type: ignore[arg-type]


class Bench:
    """A cluster of two machines named bert."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.account = directory, Account()
        self.messages: list[str] = []
        self.now = 1_800_000_000.0
        provision(self.cloud(), Request())
        self.now += 3600

    def cloud(self, *omitted: set[str]) -> ForgetfulCloud:
        journal = read_journal(self.directory, "bert", "minimal")
        cloud = ForgetfulCloud("bert", self.account, journal, "", self.messages.append, self.sleep, lambda: self.now)
        cloud.omitted = iter(omitted)
        return cloud

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def names(self) -> list[str]:
        return sorted(item["name"] for item in self.account.resources.values())


COMPLETE = ["bert-0", "bert-1", "muster-bert"]


@pytest.mark.parametrize("omitted", [{"bert-1"}, {"bert-0", "bert-1"}, {"muster-bert"}])
@pytest.mark.parametrize("times", [1, 2])
def test_unlisted_resource_is_not_created_again(tmp_path: Path, omitted: set[str], times: int) -> None:
    bench = Bench(tmp_path)
    result = provision(bench.cloud(*[omitted] * times), Request())
    assert not result.changed and bench.names() == COMPLETE
    assert any("not in the provider's list: checking for 15 s" in text for text in bench.messages)


def test_machine_that_no_longer_exists_is_created_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    (deleted,) = [key for key, item in bench.account.resources.items() if item["name"] == "bert-1"]
    del bench.account.resources[deleted]
    before = bench.now
    assert provision(bench.cloud(), Request()).changed and bench.names() == COMPLETE
    assert MISSING_TIMEOUT <= bench.now - before < 2 * MISSING_TIMEOUT


def test_complete_list_is_trusted_immediately(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    before = bench.now
    provision(bench.cloud(), Request(nnodes=3))
    assert bench.now == before and bench.names() == ["bert-0", "bert-1", "bert-2", "muster-bert"]


def test_teardown_removes_unlisted_machines(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    teardown(bench.cloud(set(COMPLETE), set(COMPLETE)))
    assert bench.names() == []
