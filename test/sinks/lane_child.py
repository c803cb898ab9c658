# SPDX-License-Identifier: Apache-2.0
"""A process that runs the little lane and ends with os._exit at a filesystem call.

Usage: lane_child.py CHAIN_DIR URL CALL   (CALL 0: run to the end and print the number of calls)
"""

from __future__ import annotations

import os
import sys

from sink_fixtures import HookedFs, run_lane


def main() -> None:
    chain_dir, url, at_call = sys.argv[1], sys.argv[2], int(sys.argv[3])

    def hook(number: int, name: str, arguments: tuple[object, ...]) -> None:
        if number == at_call:
            os._exit(137)

    fs = HookedFs(hook)
    run_lane(chain_dir, url, fs)
    print(len(fs.calls))


if __name__ == "__main__":
    main()
