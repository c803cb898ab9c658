# SPDX-License-Identifier: Apache-2.0
"""File names carry everything that recovery needs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thadam_ros.errors import FatalError
from thadam_ros.sinks.contract import PartitionKey
from thadam_ros.sinks.parquet.layout import (
    SealedFile,
    check_prefix,
    file_name,
    local_folder,
    parse_sealed_name,
    partition_folder,
)


@given(
    dataset=st.from_regex(r"[a-z][a-z0-9_]{0,62}", fullmatch=True),
    hour=st.integers(0, 2_500_000),
    synced=st.booleans(),
    prefix=st.sampled_from(["part", "r-1-2-3-0123456789abcdef", "a@b", "x.parquet"]),
    epoch=st.integers(1, 2**63 - 1),
    cut_no=st.integers(0, 2**70),
    n=st.integers(0, 10**6),
    content_hash=st.from_regex(r"[0-9a-f]{16}", fullmatch=True),
)
def test_a_sealed_name_gives_back_what_made_it(
    dataset: str,
    hour: int,
    synced: bool,
    prefix: str,
    epoch: int,
    cut_no: int,
    n: int,
    content_hash: str,
) -> None:
    """Partition and cut survive the round trip for every name a configuration allows."""
    name = file_name(prefix, epoch, cut_no, n, content_hash)
    file = SealedFile(PartitionKey(dataset, hour, synced), cut_no, name, content_hash, 7)
    assert parse_sealed_name(file.sealed_name, 7) == file


@pytest.mark.parametrize(
    "name",
    [
        "notes.txt",
        "part-1-2-3-0123456789abcdef.parquet",
        "imu@2025-11-28T20@synced@part-1-2-0123456789abcdef.parquet",
        "imu@2025-11-28T20@maybe@part-1-2-3-0123456789abcdef.parquet",
        "imu@2025-13-28T20@synced@part-1-2-3-0123456789abcdef.parquet",
        "imu@2025-11-28T24@synced@part-1-2-3-0123456789abcdef.parquet",
        "imu@2025-11-28T20@synced@part-1-2-3-0123456789ABCDEF.parquet",
        "../imu@2025-11-28T20@synced@part-1-2-3-0123456789abcdef.parquet",
    ],
)
def test_a_name_of_somebody_else_is_not_parsed(name: str) -> None:
    """Anything that this software did not write is left alone."""
    assert parse_sealed_name(name, 1) is None


def test_partitions_are_hive_folders_of_utc_hours() -> None:
    """Unsynced rows stand apart; hour 0 is the first of 1970."""
    assert partition_folder(PartitionKey("imu", 0, True)) == "imu/date=1970-01-01/hour=00"
    assert (
        partition_folder(PartitionKey("imu", 490_100, False))
        == "imu/unsynced/date=2025-11-28/hour=20"
    )


@pytest.mark.parametrize("prefix", ["", "../up", "a/b", ".hidden", "_skipped", "x" * 65, "a b"])
def test_a_prefix_that_cannot_name_a_file_is_refused(prefix: str) -> None:
    """No way out of the folder, and no file that readers skip."""
    with pytest.raises(FatalError, match=r"sinks\.lake\.file_prefix"):
        check_prefix(prefix, "lake")


@pytest.mark.parametrize(
    ("url", "folder"),
    [
        ("/data/lake", "/data/lake"),
        ("/data/lake/", "/data/lake"),
        ("/data/a b%20c", "/data/a b%20c"),
        ("file:///data/lake", "/data/lake"),
        ("file:///data/a%20b", "/data/a b"),
        ("FILE://localhost/data", "/data"),
    ],
)
def test_a_url_names_a_local_folder(url: str, folder: str) -> None:
    """Plain paths are literal, file:// urls are decoded."""
    assert local_folder(url, "lake") == folder


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("s3://bucket/lake", "s3:// is not in this version"),
        ("https://host/lake", "https:// is not in this version"),
        ("file://nas/lake", "another host"),
        ("lake", "absolute"),
        ("", "absolute"),
    ],
)
def test_any_other_url_is_refused_with_the_reason(url: str, reason: str) -> None:
    """The message names the value and what would be valid."""
    with pytest.raises(FatalError, match=reason) as caught:
        local_folder(url, "lake")
    assert "sinks.lake.url" in str(caught.value)
