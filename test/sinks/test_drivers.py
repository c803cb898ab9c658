# SPDX-License-Identifier: Apache-2.0
"""Drivers are found by type and imported late."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from thadam_ros.errors import FatalError
from thadam_ros.sinks import DRIVERS, DriverEntry, load_driver
from thadam_ros.sinks.contract import SinkDriver
from thadam_ros.sinks.parquet.driver import ParquetDriver


def test_the_parquet_driver_is_loaded_by_its_type() -> None:
    """`type: parquet` gives the class."""
    assert load_driver("parquet") is ParquetDriver


@pytest.mark.parametrize("sink_type", ["clickhouse", "kafka", "nats", "mqtt"])
def test_a_known_type_without_a_driver_is_refused_in_a_sentence(sink_type: str) -> None:
    """The message says that the name is right and the version is not."""
    assert sink_type in DRIVERS
    with pytest.raises(FatalError, match=r"no driver in this version; .* parquet"):
        load_driver(sink_type)


def test_an_unknown_type_is_refused_with_the_valid_ones() -> None:
    """A typing error names what would be valid."""
    with pytest.raises(FatalError, match=r"no sink type 'parqet'; .* parquet"):
        load_driver("parqet")


def test_a_missing_library_is_answered_with_the_extra_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hint can be pasted; a missing module of our own is not hidden behind it."""
    (tmp_path / "late_driver.py").write_text("import no_such_library\n")
    (tmp_path / "late_bug.py").write_text("import no_such_module_of_ours\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    drivers = {
        "late": DriverEntry("late_driver:Driver", "late", ("no_such_library",)),
        "bug": DriverEntry("late_bug:Driver", "late", ("no_such_library",)),
    }
    with pytest.raises(FatalError, match=r"pip install 'thadam_ros\[late\]'"):
        load_driver("late", drivers)
    with pytest.raises(ModuleNotFoundError, match="no_such_module_of_ours"):
        load_driver("bug", drivers)


def test_naming_the_drivers_imports_none_of_their_libraries() -> None:
    """`validate` must work on a laptop that has no store's library."""
    root = str(Path(__file__).parents[2])
    code = "import sys, thadam_ros.sinks; print('pyarrow' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == "False"


def test_the_contract_has_at_most_six_methods_and_the_driver_has_them_all() -> None:
    """A store is small; every method says whether it may be called again."""
    methods = {
        name: member
        for name, member in vars(SinkDriver).items()
        if inspect.isfunction(member) and not name.startswith("_")
    }
    assert len(methods) <= 6
    for name, member in methods.items():
        assert inspect.getdoc(member)
        assert list(inspect.signature(member).parameters) == list(
            inspect.signature(getattr(ParquetDriver, name)).parameters
        )
