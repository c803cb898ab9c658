# SPDX-License-Identifier: Apache-2.0
"""Where the files of ``config/`` are: in the source tree, else in the installed package."""

from __future__ import annotations

import os
from pathlib import Path


def shipped_config(name: str) -> Path:
    """Return the path of ``config/<name>``.

    Raises:
        FileNotFoundError: If it is in neither place.
    """
    in_tree = Path(__file__).resolve().parents[3] / "config" / name
    if in_tree.is_file():
        return in_tree
    for prefix in os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep):
        path = Path(prefix) / "share" / "thadam_ros" / "config" / name
        if prefix and path.is_file():
            return path
    raise FileNotFoundError(f"config/{name} is neither in the source tree nor installed")
