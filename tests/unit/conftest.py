"""Make the checkout importable as ansible_collections.muster.training under plain pytest, whatever venv it runs in."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

CHECKOUT = Path(__file__).resolve().parents[2]
# The duration of an example depends on the load of this machine, not on the code.
# `make test` generates fewer examples than `make test-all`.
EXAMPLES = 100 if os.environ.get("ROWS") == "all" else 40
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=EXAMPLES)
settings.load_profile("busy")


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # started with & by a script; programs under test inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        from ansible.plugins.loader import init_plugin_loader
        from ansible.utils.collection_loader import AnsibleCollectionConfig
    except ImportError:  # `ansible-test units` runs module tests where the controller's code is not available
        return
    if AnsibleCollectionConfig.collection_finder is not None:  # `ansible-test units` has already done it
        return
    tree = tempfile.TemporaryDirectory(prefix="muster-unit-")
    config.add_cleanup(tree.cleanup)
    namespace = Path(tree.name, "ansible_collections", "muster")
    namespace.mkdir(parents=True)
    (namespace / "training").symlink_to(CHECKOUT)
    init_plugin_loader([tree.name])


@pytest.fixture(autouse=True)
def interrupt_handler() -> Iterator[None]:
    """Restore the handler of SIGINT, which each callback object replaces."""
    previous = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, previous)
