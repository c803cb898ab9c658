# SPDX-License-Identifier: Apache-2.0
"""Identities: stable, distinct, remembered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thadam_ros.quarantine import identity as identity_module
from thadam_ros.quarantine.identity import IdentityIndex, identity_of

from .reject_fixtures import reject

KEYS = st.lists(st.lists(st.binary(min_size=16, max_size=16), max_size=20), max_size=20)


def test_an_identity_never_changes() -> None:
    """It is on disk: another value for the same reject would write it twice."""
    assert identity_of(reject(1)).hex() == "0f602b27800626e868593c9c2a37b3da"


def test_neighbouring_texts_do_not_run_into_each_other() -> None:
    """dataset "ab" with hash "c" is not dataset "a" with hash "bc"."""
    first = reject(1, dataset="ab", row_hash="c")
    second = reject(1, dataset="a", row_hash="bc")
    assert identity_of(first) != identity_of(second)


@given(KEYS)
def test_the_index_knows_exactly_what_was_added(batches: list[list[bytes]]) -> None:
    """Like a set, over merges too, zero bytes at either end included."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(identity_module, "_RECENT_MAX", 8)
        index = IdentityIndex()
        model: set[bytes] = set()
        for batch in [*batches, [bytes(16), b"\0" * 15 + b"\1", b"\1" + b"\0" * 15]]:
            probes = [*batch, *list(model)[:10], b"\xff" * 16, bytes(16)]
            assert index.known(probes) == [key in model for key in probes]
            fresh = set(batch) - model
            index.add(fresh)
            model |= fresh
            assert len(index) == len(model)
