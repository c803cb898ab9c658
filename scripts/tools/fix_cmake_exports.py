# SPDX-License-Identifier: Apache-2.0
"""Replaces the build machine's include folders in the CMake files of ROS 2 wheels.

Usage: ``python fix_cmake_exports.py SHARE_DIR`` with the interpreter of the environment.
May run again: what is already replaced stays.
"""

from __future__ import annotations

import re
import sys
import sysconfig
from pathlib import Path

import numpy as np

PYTHON_INCLUDE = re.compile(r"/opt/python/[^/;\"]+/include/python3\.\d+")
NUMPY_INCLUDE = re.compile(r"/opt/python/[^;\"]+?/numpy/(?:_core|core)/include")
LEFT_OVER = re.compile(r"/opt/python/[^;\"\s)]*")


def fix_text(text: str, python_include: str, numpy_include: str) -> str:
    """The text with both kinds of folders replaced."""
    text = PYTHON_INCLUDE.sub(lambda _: python_include, text)
    return NUMPY_INCLUDE.sub(lambda _: numpy_include, text)


def main(share_dir: str) -> int:
    """Fixes every CMake file below ``share_dir``; 1 when a foreign folder is left."""
    python_include = sysconfig.get_path("include")
    changed = 0
    left: set[str] = set()
    for path in sorted(Path(share_dir).glob("*/cmake/*.cmake")):
        before = path.read_text(encoding="utf-8", errors="surrogateescape")
        after = fix_text(before, python_include, np.get_include())
        left.update(LEFT_OVER.findall(after))
        if after != before:
            path.write_text(after, encoding="utf-8", errors="surrogateescape")
            changed += 1
    print(f"{changed} CMake files changed")
    if left:
        print("folders of the build machine are left:", *sorted(left), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
