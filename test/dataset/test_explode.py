# SPDX-License-Identifier: Apache-2.0
"""Arrays into rows, against plain lists."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from thadam_ros.dataset.explode import explode
from thadam_ros.dataset.plan import PlannedExplode

LISTS = st.none() | st.lists(st.integers(0, 9), max_size=3)


@settings(deadline=None)
@given(
    st.lists(st.tuples(LISTS, LISTS, st.booleans()), max_size=8), st.booleans(), st.integers(1, 3)
)
def test_parallel_arrays_give_the_rows_of_plain_lists(messages, empty_as_null, explode_max):
    """Unusable, null, unequal, empty and overlong arrays in every mixture, also sliced ones."""
    columns = {}
    for i, pointer in enumerate(("/a", "/b")):
        values = [[7, 7], *(m[i] for m in messages)]
        columns[pointer] = pa.array(values, pa.list_(pa.int64())).slice(1)
    usable = np.array([m[2] for m in messages], np.bool_)
    plan = PlannedExplode(("/a", "/b"), empty_as_null)
    found = explode(plan, columns, usable, explode_max)
    rows, unequal, too_many = [], [], []
    for index, (a, b, wanted) in enumerate(messages):
        a, b = a or [], b or []
        length = max(len(a), len(b))
        fits = all(len(x) == length or (empty_as_null and not x) for x in (a, b))
        unequal.append(wanted and not fits)
        too_many.append(wanted and fits and length > explode_max)
        if wanted and fits and length <= explode_max:
            pad = [None] * length
            rows += [(index, i, (a or pad)[i], (b or pad)[i]) for i in range(length)]
    assert found.unequal.tolist() == unequal
    assert found.too_many.tolist() == too_many
    elements = [found.elements[p].to_pylist() for p in ("/a", "/b")]
    assert list(zip(found.record.tolist(), found.sample.tolist(), *elements, strict=True)) == rows
