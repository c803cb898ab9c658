# SPDX-License-Identifier: Apache-2.0
"""From ``sealed/`` into the visible folder: repeated, across filesystems, into trouble."""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from thadam_ros.errors import FatalError, StorageFullError, TransientError
from thadam_ros.sinks.parquet import delivery

from .sink_fixtures import (
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
def far(tmp_path: Path) -> Iterator[Path]:
    """A folder on another filesystem than the chain's."""
    shm = Path("/dev/shm")
    if not shm.is_dir() or os.stat(shm).st_dev == os.stat(tmp_path).st_dev:
        pytest.skip("/dev/shm is not another filesystem here")
    with tempfile.TemporaryDirectory(dir=shm) as folder:
        yield Path(folder)


def _sealed(chain_dir: Path, url: Path | str, **settings: object) -> Path:
    """Seal and stamp rows 0..9 and return the one sealed file."""
    driver = make_driver(chain_dir, url, **settings)  # type: ignore[arg-type]
    driver.open(0)
    driver.publish(unit_of(1, imu_rows(0, 10)))
    return chain_dir / "sealed" / sealed_names(chain_dir)[0]


def _target(url: Path, sealed: Path) -> Path:
    return url / "imu/date=2025-11-28/hour=20" / sealed.name.split("@")[-1]


def test_a_name_that_exists_with_the_same_bytes_is_delivered_again_to_itself(
    chain_dir: Path, tmp_path: Path
) -> None:
    """A crash between link and unlink leaves both names; the visible one is not touched."""
    url = tmp_path / "lake"
    sealed = _sealed(chain_dir, url)
    target = _target(url, sealed)
    target.parent.mkdir(parents=True)
    shutil.copyfile(sealed, target)
    inode = target.stat().st_ino
    driver = make_driver(chain_dir, url)
    driver.open(1)
    deliver_all(driver)
    assert target.stat().st_ino == inode
    assert driver.statistics().already_there_total == 1
    assert sealed_names(chain_dir) == []
    assert visible_positions(url) == list(range(10))


@pytest.mark.parametrize("damage", ["shorter", "same size"])
def test_a_visible_file_that_does_not_hold_what_its_name_says_is_replaced(
    chain_dir: Path, tmp_path: Path, damage: str
) -> None:
    """Its content hash is in its name, so a damaged twin is no excuse to drop the rows."""
    url = tmp_path / "lake"
    sealed = _sealed(chain_dir, url)
    target = _target(url, sealed)
    target.parent.mkdir(parents=True)
    good = sealed.read_bytes()
    target.write_bytes(good[:-1] if damage == "shorter" else b"X" + good[1:])
    driver = make_driver(chain_dir, url)
    driver.open(1)
    deliver_all(driver)
    assert target.read_bytes() == good
    assert driver.statistics().replaced_total == 1
    assert sealed_names(chain_dir) == []


def test_a_copy_to_another_filesystem_stays_hidden_until_it_is_whole(
    chain_dir: Path, far: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pieces, outside every dataset folder, under a name that does not end in .parquet."""
    monkeypatch.setattr(delivery, "COPY_STEP_BYTES", 1000)
    url = far / "lake"
    size = _sealed(chain_dir, url).stat().st_size
    driver = make_driver(chain_dir, url)
    driver.open(1)
    steps = 0
    while driver.statistics().waiting_files:
        driver.work()
        steps += 1
        names = [str(p.relative_to(url)) for p in url.rglob("*") if p.is_file()]
        if driver.statistics().waiting_files:
            assert all(re.fullmatch(r"\.incoming/[^/]+\.tmp", name) for name in names)
    assert steps > size // 1000
    assert visible_positions(url) == list(range(10))
    assert list((url / ".incoming").iterdir()) == []
    assert sealed_names(chain_dir) == []


def test_an_unfinished_copy_is_made_again_from_the_start(
    chain_dir: Path, far: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its garbage is overwritten, not appended to, and does not stay behind."""
    monkeypatch.setattr(delivery, "COPY_STEP_BYTES", 1000)
    url = far / "lake"
    _sealed(chain_dir, url)
    first = make_driver(chain_dir, url)
    first.open(1)
    for _ in range(3):
        first.work()
    first.close()
    [temp] = url.rglob("*.tmp")
    temp.write_bytes(b"garbage of another attempt" * 10_000)
    second = make_driver(chain_dir, url)
    second.open(1)
    deliver_all(second)
    assert list(url.rglob("*.tmp")) == []
    assert visible_positions(url) == list(range(10))


def test_a_copy_is_synced_before_it_gets_its_name(chain_dir: Path, far: Path) -> None:
    """fsync of the temp, rename, fsync of the folder, and only then the sealed file goes."""
    fs = plain_fs()
    _sealed(chain_dir, far / "lake")
    driver = make_driver(chain_dir, far / "lake", fs=fs)
    driver.open(1)
    deliver_all(driver)
    names = [name for name, _ in fs.calls if name in ("fsync", "rename", "fsync_dir", "unlink")]
    assert names[-4:] == ["fsync", "rename", "fsync_dir", "unlink"]


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK])
def test_a_folder_without_hard_links_gets_copies(
    chain_dir: Path, tmp_path: Path, code: int
) -> None:
    """Not every filesystem has links; delivery needs none."""
    url = tmp_path / "lake"
    driver = make_driver(
        chain_dir, url, fs=failing_fs("link", lambda: OSError(code, os.strerror(code)))
    )
    driver.open(0)
    driver.publish(unit_of(1, imu_rows(0, 10)))
    driver.stamped(1)
    deliver_all(driver)
    assert visible_positions(url) == list(range(10))


def test_a_folder_that_vanishes_is_waited_for_and_never_made_again(
    chain_dir: Path, tmp_path: Path
) -> None:
    """An unmounted disk leaves its mount point's parent: filling that would hide the rows."""
    url = tmp_path / "disk" / "lake"
    url.parent.mkdir()
    driver = make_driver(chain_dir, url)
    driver.open(0)
    driver.publish(unit_of(1, imu_rows(0, 10)))
    driver.stamped(1)
    deliver_all(driver)
    url.rename(tmp_path / "elsewhere")
    driver.publish(unit_of(2, imu_rows(10, 10)))
    driver.stamped(2)
    for restarted in (driver, make_driver(chain_dir, url)):
        restarted.open(2)
        with pytest.raises(TransientError, match="it was there before"):
            restarted.work()
        assert not url.exists()
    (tmp_path / "elsewhere").rename(url)
    deliver_all(driver)
    assert visible_positions(url) == list(range(20))


def test_a_folder_whose_parent_is_missing_is_waited_for(chain_dir: Path, tmp_path: Path) -> None:
    """Never ``mkdir -p`` below a mount point that is not there yet; open() itself succeeds."""
    url = tmp_path / "not" / "mounted"
    driver = make_driver(chain_dir, url)
    driver.open(0)
    driver.publish(unit_of(1, imu_rows(0, 10)))
    driver.stamped(1)
    with pytest.raises(TransientError, match="mount or create it"):
        driver.work()
    assert not url.parent.exists()
    url.parent.mkdir()
    deliver_all(driver)
    assert visible_positions(url) == list(range(10))


@pytest.mark.parametrize("what", ["url", "parent", "dataset", "partition"])
def test_a_file_in_the_place_of_a_folder_is_transient_and_named(
    chain_dir: Path, tmp_path: Path, what: str
) -> None:
    """At every level: the sentence says which folder, the rows arrive once it is a folder."""
    url = tmp_path / "disk" / "lake"
    block = {
        "url": url,
        "parent": url.parent,
        "dataset": url / "imu",
        "partition": url / "imu/date=2025-11-28",
    }[what]
    block.parent.mkdir(parents=True, exist_ok=True)
    block.write_bytes(b"")
    driver = make_driver(chain_dir, url)
    driver.open(0)
    driver.publish(unit_of(1, imu_rows(0, 10)))
    driver.stamped(1)
    for _ in range(2):
        with pytest.raises(TransientError, match=r"sink lake: .*lake.*nothing is lost"):
            driver.work()
    assert len(sealed_names(chain_dir)) == 1
    block.unlink()
    block.mkdir()
    deliver_all(driver)
    assert visible_positions(url) == list(range(10))


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.EIO, errno.ESTALE])
@pytest.mark.parametrize("call", ["link", "makedirs", "fsync_dir", "unlink"])
def test_every_error_of_the_visible_folder_is_transient(
    chain_dir: Path, tmp_path: Path, code: int, call: str
) -> None:
    """The folder is somebody else's and may come back; the sealed file stays until it does."""
    url = tmp_path / "lake"
    _sealed(chain_dir, url)

    def at_target(arguments: tuple[object, ...]) -> bool:
        return call == "unlink" or str(url) in str(arguments)

    fs = failing_fs(call, lambda: OSError(code, os.strerror(code), "/t"), when=at_target)
    fs.failing = False
    driver = make_driver(chain_dir, url, fs=fs)
    driver.open(1)
    fs.failing = True
    with pytest.raises(TransientError, match="cannot deliver to"):
        deliver_all(driver)
    assert len(sealed_names(chain_dir)) == 1
    fs.failing = False
    deliver_all(driver)
    assert visible_positions(url) == list(range(10))
    assert sealed_names(chain_dir) == []


@pytest.mark.parametrize("call", ["pwrite_all", "fsync", "rename"])
def test_a_full_target_disk_leaves_no_visible_half(chain_dir: Path, far: Path, call: str) -> None:
    """ENOSPC while copying: StorageFullError, nothing visible, the next attempt succeeds."""
    url = far / "lake"
    url.mkdir()
    _sealed(chain_dir, url)
    fs = failing_fs(call, lambda: OSError(errno.ENOSPC, "No space left on device", "/t"))
    driver = make_driver(chain_dir, url, fs=fs)
    driver.open(1)
    with pytest.raises(StorageFullError):
        deliver_all(driver)
    assert visible_files(url) == []
    fs.failing = False
    deliver_all(driver)
    assert visible_positions(url) == list(range(10))


def test_a_network_folder_without_fsync_of_folders_is_accepted(
    chain_dir: Path, tmp_path: Path
) -> None:
    """EINVAL from fsync of a folder means that there is none, not that it failed."""
    url = tmp_path / "lake"
    _sealed(chain_dir, url)
    fs = failing_fs(
        "fsync_dir",
        lambda: OSError(errno.EINVAL, "Invalid argument"),
        when=lambda arguments: str(url) in str(arguments),
    )
    driver = make_driver(chain_dir, url, fs=fs)
    driver.open(1)
    deliver_all(driver)
    assert visible_positions(url) == list(range(10))


def test_a_sealed_file_that_somebody_removed_is_fatal_and_names_the_way_out(
    chain_dir: Path, tmp_path: Path
) -> None:
    """Rows that were stamped and are nowhere: said aloud once, the rest goes on."""
    url = tmp_path / "lake"
    sealed = _sealed(chain_dir, url)
    driver = make_driver(chain_dir, url)
    driver.open(1)
    sealed.unlink()
    with pytest.raises(FatalError, match="removed by somebody"):
        driver.work()
    assert driver.work() is False
    assert driver.statistics().waiting_bytes == 0


@pytest.mark.parametrize("form", ["plain", "file url"])
def test_a_folder_with_spaces_and_umlauts_works_in_both_spellings(
    chain_dir: Path, tmp_path: Path, form: str
) -> None:
    """A plain path is literal, a file:// url is percent-decoded."""
    url = tmp_path / "my läke 100%"
    spelled = str(url) if form == "plain" else url.as_uri()
    driver = make_driver(chain_dir, spelled)
    driver.open(0)
    driver.publish(unit_of(1, imu_rows(0, 10)))
    driver.stamped(1)
    deliver_all(driver)
    assert visible_positions(url) == list(range(10))
