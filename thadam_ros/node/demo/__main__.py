# SPDX-License-Identifier: Apache-2.0
"""``python -m thadam_ros.node.demo``."""

from __future__ import annotations

import os
import signal
import sys

EXIT_INTERRUPTED = 130


def main() -> int:
    """Run the demo; the exit code says how it went."""
    # Nothing is started yet, and an exception inside the import of a native library may crash it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(EXIT_INTERRUPTED))
    from thadam_ros.node.demo.run import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
