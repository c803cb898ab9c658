# SPDX-License-Identifier: Apache-2.0
"""Deliberate breakages of the decoders, each caught by a named test (spec 8.1)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

VALID = "test_cdr_columns.py::test_columns_equal_the_reference_on_valid_messages"
DAMAGED = "test_cdr_columns.py::test_columns_equal_the_reference_on_damaged_messages"
FIXED = "test_cdr_columns.py::test_lists_of_fixed_structures_are_padded_like_the_reference"
OUTCOME = "test_malformed.py::test_a_malformed_payload_has_its_defined_outcome"
GOLDEN = "test_golden.py::test_stored_golden_bytes_decode"


@dataclass(frozen=True)
class Mutation:
    """``old`` becomes ``new`` in ``file`` of the decode package; ``test`` must fail."""

    file: str
    old: str
    new: str
    test: str


MUTATIONS = (
    Mutation(
        "walk.py", "np.where(counts > 0, (pos + (step.size - 1)) & -step.size, pos)",
        "(pos + (step.size - 1)) & -step.size", VALID),
    Mutation(
        "walk.py", "bad = counts > step.bound\n", "bad = counts > step.bound + 1\n",
        f"{OUTCOME}[sequence-over-bound]"),
    Mutation(
        "walk.py", "last = cursor.body + (end - 1)", "last = cursor.body + (end - 2)", VALID),
    Mutation(
        "walk.py", "cursor.room - (cursor.pos + 4)", "cursor.room - (cursor.pos + 8)", VALID),
    Mutation("walk.py", "going &= ~self.dead[active.rows]", "pass", DAMAGED),
    Mutation(
        "walk.py", "places.append(firsts[index] + done)", "places.append(firsts[index])", VALID),
    Mutation(
        "walk.py", "cursor.jump(end, min(4, step.size))", "cursor.jump(end, step.size)", VALID),
    Mutation("scan.py", 'self._emit(f"if n: pos = (pos', 'self._emit(f"pos = (pos', VALID),
    Mutation("scan.py", "(4 if step.wide else 1), 0", "4, 0", DAMAGED),
    Mutation(
        "scan.py", 'self._fail("buf[body + end - 1]", "terminator", step, "pos")', "pass", DAMAGED),
    Mutation("scan.py", "(n - 1) * ends[pos & 7]", "(n - 1) * ends[0]", FIXED),
    Mutation("cursor.py", "np.asarray(pos, np.int64) & 7", "np.asarray(pos, np.int64) & 3", FIXED),
    Mutation("cursor.py", "if step.first_align == step.widest_align:", "if True:", FIXED),
    Mutation("cursor.py", "ragged_range(firsts[place], part", "ragged_range(place, part", VALID),
    Mutation("plan.py", "-(residue + offset) % item.align", "-offset % item.align", VALID),
    Mutation(
        "arrays.py", "if not bool((places[1:] >= ends[:-1]).all()):", "if False:",
        "test_cdr_columns.py::test_messages_may_come_in_any_order_and_overlap"),
    Mutation(
        "arrays.py", "if data.size and data.max() >= 0x80:", "if False:",
        f"{OUTCOME}[string-not-utf8]"),
    Mutation(
        "arrays.py", "values.view(np.uint8) > 1", "values.view(np.uint8) > 2",
        f"{OUTCOME}[boolean-not-0-or-1]"),
    Mutation(
        "arrays.py", "offset + size], copy=True", "offset + size], copy=False",
        "test_cdr_columns.py::test_columns_are_aligned_in_memory"),
    Mutation("arrays.py", 'entries, side="right"', 'entries, side="left"', DAMAGED),
    Mutation(
        "cdr_columns.py", "for text in (True, False):", "for text in (False, True):",
        f"{OUTCOME}[text-before-booleans]"),
    Mutation("cdr_columns.py", "if not other.dead[index] and not", "if not", DAMAGED),
    Mutation(
        "cdr_columns.py", "(room % 4 != 0)", "(room % 4 != 1)", f"{OUTCOME}[padding-to-4]"),
    Mutation(
        "limits.py", "return 4 if kind.wide else 5", "return 4",
        "test_limits.py::test_the_smallest_size_of_a_value_leaves_out_padding"),
    Mutation(
        "limits.py", "if name in path:", "if False:",
        "test_definition.py::test_a_hostile_definition_is_refused"),
    Mutation("estimate.py", "self.estimate += 4 if kind.wide else 0", "pass", GOLDEN),
    Mutation("schema.py", '"type_id": family + type_id', '"type_id": type_id', GOLDEN),
    Mutation(
        "wire.py", "trailing > PADDING_BYTES_MAX or", "trailing > 4 or", f"{OUTCOME}[surplus]"),
    Mutation(
        "catalog.py", "for prefix in self._prefixes:", "for prefix in reversed(self._prefixes):",
        "test_catalog.py::test_earlier_prefixes_win_as_in_an_overlay"),
    Mutation(
        "idl.py", r"[*/%|&^~\\]|", "",
        "test_definition.py::test_a_hostile_definition_is_refused"),
)  # fmt: skip


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: f"{m.file}: {m.old[:40]}")
def test_every_mutation_still_applies(mutation: Mutation, checkout: Path) -> None:
    """The line that a mutation breaks is still there, once."""
    source = (checkout / "thadam_ros" / "decode" / mutation.file).read_text(encoding="utf-8")
    assert source.count(mutation.old) == 1


@pytest.mark.long
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: f"{m.file}: {m.old[:40]}")
def test_a_mutation_is_caught_by_its_test(
    mutation: Mutation, checkout: Path, tmp_path: Path
) -> None:
    """In a copy of the tree the named test, which passes without the mutation, fails."""
    skip = shutil.ignore_patterns("__pycache__")
    shutil.copytree(checkout / "thadam_ros", tmp_path / "thadam_ros", ignore=skip)
    shutil.copytree(checkout / "test" / "decode", tmp_path / "test" / "decode", ignore=skip)
    for name in ("pyproject.toml", "test/conftest.py"):
        shutil.copy(checkout / name, tmp_path / name)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    command.append(f"test/decode/{mutation.test}")
    path = tmp_path / "thadam_ros" / "decode" / mutation.file
    source = path.read_text(encoding="utf-8")
    path.write_text(source.replace(mutation.old, mutation.new), encoding="utf-8")
    broken = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert broken.returncode == 1, broken.stdout[-2_000:]
