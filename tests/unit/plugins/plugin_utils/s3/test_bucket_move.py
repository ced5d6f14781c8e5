"""Moving a bucket: functions that need no server."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._files.content import format_size
from ansible_collections.muster.training.plugins.plugin_utils._s3.bucket_move import (
    StoredObject,
    Survey,
    pair_objects,
    part_ranges,
    same_checksum,
)

KEYS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=4), unique=True).map(sorted)


@given(KEYS, KEYS)
def test_each_key_is_paired_once_with_the_objects_of_both_sides(source_keys: list[str], target_keys: list[str]) -> None:
    pairs = list(
        pair_objects(
            (StoredObject(key, 1, "a") for key in source_keys), (StoredObject(key, 2, "b") for key in target_keys)
        )
    )
    assert [source.key for source, _target in pairs if source] == source_keys
    assert [target.key for _source, target in pairs if target] == target_keys
    assert all(source is None or target is None or source.key == target.key for source, target in pairs)
    assert len(pairs) == len(set(source_keys) | set(target_keys))


@given(st.integers(1, 10**7), st.integers(1000, 10**6))
def test_parts_cover_the_object_without_gap_or_overlap(size: int, length: int) -> None:
    result = part_ranges(size, length)
    assert sum(last - first + 1 for first, last in result) == size
    assert result[0][0] == 0
    assert result[-1][1] == size - 1
    assert all(before[1] + 1 == after[0] for before, after in zip(result, result[1:], strict=False))


def test_number_of_parts_is_read_from_the_etag() -> None:
    assert StoredObject("k", 1, "d41d8cd98f00b204e9800998ecf8427e").parts == 0
    assert StoredObject("k", 1, "d41d8cd98f00b204e9800998ecf8427e-12").parts == 12


def test_only_checksums_of_the_same_kind_are_compared() -> None:
    assert same_checksum({"ChecksumSHA256": "a"}, {"ChecksumSHA256": "a"}) is True
    assert same_checksum({"ChecksumSHA256": "a"}, {"ChecksumSHA256": "b", "ChecksumCRC32": "c"}) is False
    assert same_checksum({"ChecksumSHA256": "a"}, {"ChecksumCRC32": "a"}) is None


def test_price_covers_transfer_and_requests() -> None:
    assert Survey(missing_size=2 * 10**12, requests=120_360).price(0.02, 0.005) == 40 + 0.6018


def test_sizes_have_units() -> None:
    assert [format_size(number) for number in (999, 1500, 2.5e6, 3e9, 4.25e12)] == [
        "999 B",
        "1.5 kB",
        "2.5 MB",
        "3.0 GB",
        "4.25 TB",
    ]
