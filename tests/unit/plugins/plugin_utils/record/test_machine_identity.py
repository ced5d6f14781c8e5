"""A machine's identity in the facts of its node."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._record.machine_identity import summarize_identity


def test_identity_in_facts_includes_the_uuids_of_gpus() -> None:
    expected = {"serial": "", "asset": "i-0abcdef1234567890", "machine_id": "4ac3b7d1"}
    health = {"identity": expected, "gpus": [{"uuid": "GPU-a"}, {"uuid": ""}]}
    assert summarize_identity(health) == {**expected, "gpus": ["GPU-a"]}
    assert summarize_identity(None) == {"gpus": []}
