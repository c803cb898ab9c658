# SPDX-License-Identifier: Apache-2.0
"""Sealing, stamping, voiding and the budget of the ``parquet`` driver (spec 5.1)."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import orjson
import pyarrow.parquet as pq
import pytest
import xxhash

from thadam_ros.errors import FatalError, StorageFullError, TransientError
from thadam_ros.sinks.parquet.encoder import LINEAGE_KEY

from .sink_fixtures import (
    EPOCH,
    HOUR,
    HookedFs,
    ManualClock,
    deliver_all,
    failing_fs,
    imu_rows,
    make_driver,
    plain_fs,
    sealed_names,
    unit_of,
    visible_files,
    visible_positions,
)


@pytest.fixture
def chain_dir(tmp_path: Path) -> Path:
    """The chain's own folder."""
    return tmp_path / "chains" / "lake"


@pytest.fixture
def url(tmp_path: Path) -> Path:
    """The visible folder, not there yet; its parent is."""
    return tmp_path / "lake"


def test_rows_become_visible_only_after_their_cut_is_stamped(chain_dir: Path, url: Path) -> None:
    """Sealed files stay invisible however often work() is called."""
    driver = make_driver(chain_dir, url)
    driver.open(0)
    assert driver.publish(unit_of(1, imu_rows(0, 5))) == ()
    assert driver.work() is False
    assert visible_files(url) == []
    driver.stamped(0)
    deliver_all(driver)
    assert visible_files(url) == []
    driver.stamped(1)
    deliver_all(driver)
    assert visible_positions(url) == [0, 1, 2, 3, 4]
    assert sealed_names(chain_dir) == []


def test_a_file_is_named_after_epoch_cut_number_and_content(chain_dir: Path, url: Path) -> None:
    """`<prefix>-<epoch>-<cut_no>-<n>-<16 hex of the content hash>.parquet` under Hive folders."""
    driver = make_driver(chain_dir, url)
    driver.open(0)
    driver.publish(unit_of(7, imu_rows(0, 5)))
    driver.publish(unit_of(7, imu_rows(5, 5)))
    driver.publish(unit_of(7, imu_rows(9, 5, synced=False), synced=False))
    driver.stamped(7)
    deliver_all(driver)
    found = {str(p.relative_to(url)): p for p in visible_files(url)}
    folders = sorted(os.path.dirname(name) for name in found)
    assert folders == [
        "imu/date=2025-11-28/hour=20",
        "imu/date=2025-11-28/hour=20",
        "imu/unsynced/date=2025-11-28/hour=20",
    ]
    numbers = []
    for path in found.values():
        match = re.fullmatch(rf"part-{EPOCH}-7-(\d+)-([0-9a-f]{{16}})\.parquet", path.name)
        assert match
        assert match[2] == xxhash.xxh3_64_hexdigest(path.read_bytes())
        numbers.append(match[1])
    assert sorted(numbers) == ["0", "0", "1"]


def test_open_voids_unstamped_files_by_cut_number_and_delivers_the_rest(
    chain_dir: Path, url: Path
) -> None:
    """Positions do not decide: here the voided cut holds the lowest ones."""
    first = make_driver(chain_dir, url)
    first.open(0)
    first.publish(unit_of(1, imu_rows(500, 5)))
    first.publish(unit_of(3, imu_rows(0, 5)))
    first.publish(unit_of(2, imu_rows(900, 5)))
    again = make_driver(chain_dir, url)
    again.open(2)
    statistics = again.statistics()
    assert statistics.voided_files_total == 1
    assert len(statistics.voided_names) == 1
    assert f"-{EPOCH}-3-0-" in statistics.voided_names[0]
    assert statistics.waiting_files == 2
    assert statistics.waiting_bytes == sum(
        (chain_dir / "sealed" / name).stat().st_size for name in sealed_names(chain_dir)
    )
    deliver_all(again)
    assert visible_positions(url) == [*range(500, 505), *range(900, 905)]


def test_open_may_be_called_again_on_a_running_driver(chain_dir: Path, url: Path) -> None:
    """A rebuilt lane starts from what lies on disk; an abort ends with it."""
    driver = make_driver(chain_dir, url)
    driver.open(0)
    driver.publish(unit_of(1, imu_rows(0, 5)))
    driver.abort()
    with pytest.raises(TransientError, match="aborted"):
        driver.publish(unit_of(1, imu_rows(5, 5)))
    with pytest.raises(TransientError, match="aborted"):
        driver.work()
    driver.open(0)
    assert sealed_names(chain_dir) == []
    driver.publish(unit_of(1, imu_rows(0, 5)))
    driver.stamped(1)
    deliver_all(driver)
    driver.close()
    driver.close()
    assert visible_positions(url) == [0, 1, 2, 3, 4]


def test_open_sweeps_unfinished_files_and_leaves_foreign_ones(chain_dir: Path, url: Path) -> None:
    """A temp is garbage, a file of somebody else is reported and not touched."""
    (chain_dir / "sealed").mkdir(parents=True)
    (chain_dir / "sealed" / "imu@2025-11-28T20@synced@x-1-1-0-00.parquet.tmp").write_bytes(b"x")
    (chain_dir / "sealed" / "notes.txt").write_bytes(b"mine")
    driver = make_driver(chain_dir, url)
    driver.open(9)
    assert driver.statistics().swept_temps_total == 1
    assert driver.statistics().foreign_files == ("notes.txt",)
    assert driver.work() is False
    assert sealed_names(chain_dir) == ["notes.txt"]


def test_publish_syncs_file_then_folder_before_it_returns(chain_dir: Path, url: Path) -> None:
    """Write, fsync, rename, fsync of the folder: in this order and all before the return."""
    fs = plain_fs()
    driver = make_driver(chain_dir, url, fs=fs)
    driver.open(0)
    fs.calls.clear()
    driver.publish(unit_of(1, imu_rows(0, 5)))
    steps = [name for name, _ in fs.calls if name in ("pwrite_all", "fsync", "rename", "fsync_dir")]
    assert steps == ["pwrite_all", "fsync", "rename", "fsync_dir"]


def test_delivery_syncs_the_folder_before_the_sealed_file_goes(chain_dir: Path, url: Path) -> None:
    """Link, fsync of the visible folder, then unlink; new folders are synced up to the url."""
    fs = plain_fs()
    driver = make_driver(chain_dir, url, fs=fs)
    driver.open(0)
    driver.publish(unit_of(1, imu_rows(0, 5)))
    driver.stamped(1)
    fs.calls.clear()
    deliver_all(driver)
    names = [name for name, _ in fs.calls]
    folder = str(url / "imu/date=2025-11-28/hour=20")
    synced = [str(arguments[0]) for name, arguments in fs.calls if name == "fsync_dir"]
    assert {str(url), str(url / "imu"), str(url / "imu/date=2025-11-28"), folder} <= set(synced)
    last_sync = max(i for i, call in enumerate(fs.calls) if call == ("fsync_dir", (folder,)))
    assert names.index("link") < last_sync < names.index("unlink")


@pytest.mark.parametrize("call", ["open", "pwrite_all", "fsync", "rename", "fsync_dir"])
@pytest.mark.parametrize(
    "error", [RuntimeError, MemoryError, KeyboardInterrupt, SystemExit], ids=lambda e: e.__name__
)
def test_a_publish_that_raises_leaves_nothing_and_may_be_repeated(
    chain_dir: Path, url: Path, call: str, error: type[BaseException]
) -> None:
    """Whatever is raised at whichever step of the second part of a unit: all or nothing."""
    seen: list[str] = []

    def hook(number: int, name: str, arguments: tuple[object, ...]) -> None:
        seen.append(name)
        if armed and name == call and seen.count(call) == (1 if call == "fsync_dir" else 2):
            raise error(call)

    armed = False
    driver = make_driver(chain_dir, url, fs=HookedFs(hook), max_rows=4)
    driver.open(0)
    unit = unit_of(1, imu_rows(0, 10))
    seen.clear()
    armed = True
    with pytest.raises(error):
        driver.publish(unit)
    armed = False
    assert sealed_names(chain_dir) == []
    assert driver.statistics().unstamped_files == 0
    driver.publish(unit)
    driver.stamped(1)
    deliver_all(driver)
    assert visible_positions(url) == list(range(10))
    assert driver.statistics().sealed_rows_total == 10


def test_what_an_interrupted_cleanup_left_is_removed_before_the_next_seal(
    chain_dir: Path, url: Path
) -> None:
    """Even when the removal itself fails, the rows do not end up in two files of one cut."""

    def hook(number: int, name: str, arguments: tuple[object, ...]) -> None:
        if armed and name in ("fsync_dir", "unlink"):
            raise OSError(errno.EIO, "Input/output error")

    armed = False
    driver = make_driver(chain_dir, url, fs=HookedFs(hook))
    driver.open(0)
    armed = True
    with pytest.raises(TransientError):
        driver.publish(unit_of(1, imu_rows(0, 10)))
    assert len(sealed_names(chain_dir)) == 1
    with pytest.raises(TransientError):
        driver.publish(unit_of(1, imu_rows(0, 10)))
    armed = False
    driver.publish(unit_of(1, imu_rows(0, 10)))
    driver.stamped(1)
    deliver_all(driver)
    assert visible_positions(url) == list(range(10))


def test_a_unit_that_is_already_sealed_for_its_cut_is_not_written_again(
    chain_dir: Path, url: Path
) -> None:
    """The lane may have been interrupted just after the last step of publish."""
    driver = make_driver(chain_dir, url, max_rows=4)
    driver.open(0)
    driver.publish(unit_of(1, imu_rows(0, 10)))
    before = sealed_names(chain_dir)
    driver.publish(unit_of(1, imu_rows(0, 10)))
    assert sealed_names(chain_dir) == before
    assert len(before) == 3


def test_a_unit_without_rows_writes_nothing(chain_dir: Path, url: Path) -> None:
    """Neither no batch nor an empty one makes a file."""
    driver = make_driver(chain_dir, url)
    driver.open(0)
    driver.publish(unit_of(1))
    driver.publish(unit_of(1, imu_rows(0, 5).slice(0, 0)))
    assert sealed_names(chain_dir) == []
    driver.publish(unit_of(1, imu_rows(0, 5).slice(0, 0), imu_rows(0, 2)))
    assert len(sealed_names(chain_dir)) == 1


def test_a_unit_beyond_max_rows_is_split_by_size(chain_dir: Path, url: Path) -> None:
    """Parts keep the order; lineage counts them and says what each holds."""
    driver = make_driver(chain_dir, url, max_rows=4)
    driver.open(0)
    driver.publish(unit_of(1, imu_rows(0, 3), imu_rows(3, 7)))
    driver.stamped(1)
    deliver_all(driver)
    by_part = {}
    for path in visible_files(url):
        file = pq.ParquetFile(path)
        lineage = orjson.loads(file.metadata.metadata[LINEAGE_KEY.encode()])
        assert lineage["rows"] == file.metadata.num_rows
        assert lineage["positions"] == [[str(EPOCH), 0], [str(EPOCH), 3]]
        assert 0 < lineage["bytes"] < path.stat().st_size
        by_part[lineage["part"]] = file.read(["_wal_pos"])["_wal_pos"].to_pylist()
    assert by_part == {0: [0, 1, 2, 3], 1: [4, 5, 6, 7], 2: [8, 9]}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("call", ["open", "pwrite_all", "fsync", "rename", "fsync_dir"])
def test_a_full_disk_is_transient_and_leaves_no_half_file(
    chain_dir: Path, url: Path, code: int, call: str
) -> None:
    """ENOSPC and EDQUOT are StorageFullError at every step of a seal."""
    fs = failing_fs(call, lambda: OSError(code, os.strerror(code), "/x"))
    fs.failing = False
    driver = make_driver(chain_dir, url, fs=fs)
    driver.open(0)
    fs.failing = True
    with pytest.raises(StorageFullError, match="free some space"):
        driver.publish(unit_of(1, imu_rows(0, 5)))
    assert sealed_names(chain_dir) == []
    fs.failing = False
    driver.publish(unit_of(1, imu_rows(0, 5)))
    assert len(sealed_names(chain_dir)) == 1


@pytest.mark.parametrize(
    ("code", "expected"),
    [(errno.EROFS, FatalError), (errno.EACCES, FatalError), (errno.EIO, TransientError)],
)
def test_errors_of_the_own_folder_are_told_apart_by_type(
    chain_dir: Path, url: Path, code: int, expected: type[Exception]
) -> None:
    """What waiting does not cure is fatal; the supervisor tries again later."""
    fs = failing_fs("pwrite_all", lambda: OSError(code, os.strerror(code), "/x"))
    driver = make_driver(chain_dir, url, fs=fs)
    driver.open(0)
    with pytest.raises(expected, match=r"sink lake: cannot write .*sealed"):
        driver.publish(unit_of(1, imu_rows(0, 5)))


def test_sealing_goes_on_without_the_folder_until_the_budget_and_resumes_with_it(
    chain_dir: Path, url: Path
) -> None:
    """Cuts stamp while what waits is inside delivery.budget; beyond it publish is refused."""
    url.write_bytes(b"a file where the folder should be")
    driver = make_driver(chain_dir, url, budget_bytes=10_000)
    driver.open(0)
    cut_no = 0
    while driver.statistics().waiting_bytes < 10_000:
        cut_no += 1
        driver.publish(unit_of(cut_no, imu_rows(10 * cut_no, 10)))
        driver.stamped(cut_no)
        with pytest.raises(TransientError, match="nothing is lost"):
            driver.work()
    assert cut_no > 1
    with pytest.raises(StorageFullError, match="budget"):
        driver.publish(unit_of(cut_no + 1, imu_rows(0, 10)))
    failing = driver.statistics()
    assert failing.delivery_failures_total == cut_no
    assert failing.delivery_failing_since_ns > 0
    assert "cannot deliver" in failing.delivery_error
    url.unlink()
    deliver_all(driver)
    driver.publish(unit_of(cut_no + 1, imu_rows(0, 10)))
    healthy = driver.statistics()
    assert healthy.delivery_error == ""
    assert healthy.delivery_failing_since_ns == 0
    assert healthy.delivered_files_total == cut_no
    assert len(visible_positions(url)) == 10 * cut_no


def test_unstamped_files_never_lock_their_own_cut_out(chain_dir: Path, url: Path) -> None:
    """A cut larger than the budget still completes: only waiting files count."""
    driver = make_driver(chain_dir, url, budget_bytes=1)
    driver.open(0)
    for start in range(0, 30, 10):
        driver.publish(unit_of(1, imu_rows(start, 10)))
    driver.stamped(1)
    with pytest.raises(StorageFullError):
        driver.publish(unit_of(2, imu_rows(100, 10)))
    deliver_all(driver)
    driver.publish(unit_of(2, imu_rows(100, 10)))


@pytest.mark.parametrize(
    ("order", "expected"), [("live_first", [3, 2, 1]), ("oldest_first", [1, 2, 3])]
)
def test_delivery_follows_the_configured_order(
    chain_dir: Path, url: Path, order: str, expected: list[int]
) -> None:
    """Newest cut first by default: after an outage live data appears at once."""
    driver = make_driver(chain_dir, url, order=order)
    driver.open(0)
    for cut_no in (1, 2, 3):
        driver.publish(unit_of(cut_no, imu_rows(cut_no, 1)))
        driver.stamped(cut_no)
    seen: list[int] = []
    while driver.statistics().waiting_files:
        driver.work()
        seen += [p for p in visible_positions(url) if p not in seen]
    assert seen == expected


def test_the_rate_limit_spaces_files_by_their_size(chain_dir: Path, url: Path) -> None:
    """After a file, work() has nothing to do until its bytes fit the rate."""
    clock = ManualClock()
    driver = make_driver(chain_dir, url, clock=clock, rate_limit=1000)
    driver.open(0)
    for start in (0, 10):
        driver.publish(unit_of(1, imu_rows(start, 10)))
    driver.stamped(1)
    driver.work()
    size = visible_files(url)[0].stat().st_size
    clock.now_ns += size * 1_000_000 - 1
    assert driver.work() is False
    assert len(visible_files(url)) == 1
    clock.now_ns += 1
    driver.work()
    assert len(visible_files(url)) == 2


def test_rows_of_an_undeclared_dataset_are_a_bug_not_a_file(chain_dir: Path, url: Path) -> None:
    """A unit whose dataset has no schema, or other columns, raises ValueError."""
    driver = make_driver(chain_dir, url)
    driver.open(0)
    with pytest.raises(ValueError, match="no dataset 'tf'"):
        driver.publish(unit_of(1, imu_rows(0, 5), dataset="tf"))
    with pytest.raises(ValueError, match="rows have columns"):
        driver.publish(unit_of(1, imu_rows(0, 5, unit="ns")))
    assert sealed_names(chain_dir) == []


def test_counters_name_everything_that_happened(chain_dir: Path, url: Path) -> None:
    """One snapshot, frozen, with what is where."""
    driver = make_driver(chain_dir, url)
    driver.open(0)
    driver.publish(unit_of(1, imu_rows(0, 5)))
    driver.publish(unit_of(2, imu_rows(5, 6)))
    driver.stamped(1)
    snapshot = driver.statistics()
    assert (snapshot.unstamped_files, snapshot.waiting_files) == (1, 1)
    assert snapshot.sealed_files_total == 2
    assert snapshot.sealed_rows_total == 11
    assert snapshot.sealed_bytes_total == snapshot.unstamped_bytes + snapshot.waiting_bytes
    deliver_all(driver)
    assert driver.statistics().delivered_files_total == 1
    assert driver.statistics().delivered_bytes_total == snapshot.waiting_bytes
    assert driver.statistics().waiting_bytes == 0
    assert visible_rows_hour(url) == HOUR


def visible_rows_hour(url: Path) -> int:
    """Hour of the first visible row's ingest time."""
    times = pq.ParquetFile(visible_files(url)[0]).read(["_ingest_time"])["_ingest_time"]
    return int(times.cast("int64")[0].as_py()) // 3_600_000_000
