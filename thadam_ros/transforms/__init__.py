# SPDX-License-Identifier: Apache-2.0
"""Transforms: named steps over the rows of a dataset, in the configured order (spec 3.5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from thadam_ros.transforms.gap import Gap
from thadam_ros.transforms.order import Order
from thadam_ros.transforms.rules import Filter, SetColumns
from thadam_ros.transforms.stale import Stale
from thadam_ros.transforms.step import StepContext, StepPlan
from thadam_ros.transforms.validate import Validate

#: kind -> how its options become a plan (None when they cannot; the context has the problems).
STEPS: Final[Mapping[str, Callable[[str, Mapping[str, object], StepContext], StepPlan | None]]] = {
    "filter": Filter.plan,
    "gap": Gap.plan,
    "order": Order.plan,
    "set": SetColumns.plan,
    "stale": Stale.plan,
    "validate": Validate.plan,
}

#: Kinds that a document may name and this version refuses.
NOT_BUILT: Final = ("pose", "joint_state", "sample", "dedup", "enrich", "object_ref", "window")
