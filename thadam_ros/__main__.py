# SPDX-License-Identifier: Apache-2.0
"""``python -m thadam_ros`` is the command ``thadam``."""

import sys

from thadam_ros.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
