# SPDX-License-Identifier: Apache-2.0
"""What a column decoder hands to the dataset layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class DecodedColumns:
    """Columns of n messages, in the order in which they were given.

    Attributes:
        n: Number of messages.
        columns: Pointer -> array of n values with the message's own Arrow type; null where the
            message could not be decoded.
        ok: bool[n], False where the message is a reject.
        errors: Message index -> (reject code, reason); has exactly the indices where ``ok`` is
            False.
        surplus: bool[n], True where bytes follow the message that are not alignment padding
            (the row is kept, spec 3.3 DECODE_ERROR); False where ``ok`` is False.
    """

    n: int
    columns: Mapping[str, pa.Array]
    ok: npt.NDArray[np.bool_]
    errors: Mapping[int, tuple[str, str]]
    surplus: npt.NDArray[np.bool_]
