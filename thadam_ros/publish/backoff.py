# SPDX-License-Identifier: Apache-2.0
"""Backoff between tries: 0.5 s doubling to 30 s, full jitter (spec 4.2)."""

from __future__ import annotations

from collections.abc import Callable

FIRST_NS = 500_000_000
CEILING_NS = 30_000_000_000


class Backoff:
    """Delays that grow with every failure in a row.

    Args:
        draw: Returns a number in [0, 1); ``random.random`` in production.
    """

    def __init__(
        self, draw: Callable[[], float], first_ns: int = FIRST_NS, ceiling_ns: int = CEILING_NS
    ) -> None:
        self._draw = draw
        self._first_ns = first_ns
        self._ceiling_ns = ceiling_ns
        self.failures = 0
        self.retry_at_ns = 0

    def failed(self, now_ns: int) -> None:
        """Plan the next try after one more failure; ``now_ns`` is monotonic."""
        # The exponent is capped: 2 ** failures must not grow for ever during a long outage.
        ceiling = min(self._ceiling_ns, self._first_ns << min(self.failures, 16))
        self.failures += 1
        self.retry_at_ns = now_ns + int(self._draw() * ceiling)

    def succeeded(self) -> None:
        """Forget past failures."""
        self.failures = 0
        self.retry_at_ns = 0

    def ready(self, now_ns: int) -> bool:
        """Tell whether the next try is due."""
        return now_ns >= self.retry_at_ns
