"""The software compatibility tables: their consistency, and their copies in docs/software.md."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._software.choose import format_minor, format_range
from ansible_collections.muster.training.plugins.plugin_utils._software.platforms import format_build
from ansible_collections.muster.training.plugins.plugin_utils._software.tables import (
    FLASH_ATTENTION,
    MANAGED_PYTHONS,
    TORCH,
)
from ansible_collections.muster.training.plugins.plugin_utils._software.versions import MIN_DRIVER, version_tuple

MANUAL = Path(__file__).resolve().parents[5] / "docs" / "software.md"


def table(head: str, rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    names = head.split(" | ")
    lines = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def archs_shown(builds: Mapping[int, str]) -> str:
    """Return builds with their compute capabilities: 11.8 (3.7 5.0), 12.1 (5.0)."""

    def capability(arch: str) -> str:
        digits = arch.removeprefix("sm_")
        return f"{digits[:-1]}.{digits[-1]}"

    return "; ".join(
        f"{format_build(build)}: {' '.join(map(capability, archs.split()))}" for build, archs in builds.items()
    )


def tables() -> list[str]:
    """Return the tables in the format of the manual, newest first."""
    torch = [
        [format_minor(minor), item.newest, format_range(item.pythons), archs_shown(item.builds)]
        for minor, item in reversed(TORCH.items())
    ]
    flash = [
        [
            release,
            ", ".join(map(format_minor, item.torches)),
            ", ".join(f"{major} (cu{tag})" for major, tag in item.cudas.items()),
            format_range(item.pythons),
            format_minor(item.glibc),
        ]
        for release, item in reversed(FLASH_ATTENTION.items())
    ]
    drivers = [[f"{major}.x", ".".join(map(str, least))] for major, least in sorted(MIN_DRIVER.items())]
    return [
        table(
            "torch | Newest release | Python | CUDA builds, each with the compute capabilities of its kernels", torch
        ),
        table("flash-attention | torch | CUDA (in the name of the wheel) | Python | minimum glibc", flash),
        table("CUDA | minimum NVIDIA driver", drivers),
    ]


@pytest.mark.parametrize("expected", tables())
def test_the_manual_shows_the_tables(expected: str) -> None:
    assert expected in MANUAL.read_text(), f"docs/software.md must have:\n\n{expected}\n"


def test_the_tables_are_sorted() -> None:
    assert list(TORCH) == sorted(TORCH)
    assert list(FLASH_ATTENTION) == sorted(FLASH_ATTENTION, key=version_tuple)
    for minor, item in TORCH.items():
        assert version_tuple(item.newest)[:2] == minor
        assert list(item.builds) == sorted(item.builds)
        assert {build // 10 for build in item.builds} <= set(MIN_DRIVER)


def test_installed_python_supports_every_torch_and_newer_flash_attention() -> None:
    for release in TORCH.values():
        assert any(release.pythons[0] <= python <= release.pythons[1] for python in MANAGED_PYTHONS)
    newer = [item for release, item in FLASH_ATTENTION.items() if version_tuple(release) >= (2, 6)]
    assert all(item.pythons[0] <= MANAGED_PYTHONS[0] <= item.pythons[1] for item in newer)


def test_newer_torch_supports_pascal_and_volta_only_in_cuda_12_6_builds() -> None:
    for minor, item in TORCH.items():
        pascal = [build for build, archs in item.builds.items() if "sm_60" in archs.split()]
        volta = [build for build, archs in item.builds.items() if "sm_70" in archs.split()]
        assert minor < (2, 8) or pascal == [126]
        assert minor < (2, 11) or volta == [126]
