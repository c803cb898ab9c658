# SPDX-License-Identifier: Apache-2.0
"""A ROS domain that nothing else on this machine uses."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from thadam_ros.errors import TransientError

#: The port that stands for domain 0; ``domain_coordinator`` reserves by the same ports, so tests
#: that use it and demos keep out of each other's way.
_PORT_BASE = 32_768
_DOMAINS = range(1, 101)


@contextmanager
def free_domain() -> Iterator[int]:
    """Reserve a ROS_DOMAIN_ID for the time of the context.

    The user's own domain is never taken, and the choice is random: a graph that reserves nothing
    is unlikely to be met.

    Raises:
        TransientError: If all are taken.
    """
    domains = [number for number in _DOMAINS if str(number) != os.environ.get("ROS_DOMAIN_ID")]
    random.shuffle(domains)
    for number in domains:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as reservation:
            try:
                reservation.bind(("", _PORT_BASE + number))
            except OSError:
                continue
            yield number
            return
    raise TransientError("all ROS domains from 1 to 100 are reserved by other runs; try again")
