# SPDX-License-Identifier: Apache-2.0
"""The demo from the command line to the exit code."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from thadam_ros.errors import ThadamError
from thadam_ros.node.demo.children import Children
from thadam_ros.node.demo.domain import free_domain
from thadam_ros.node.demo.options import Options, parse_options, prepare_output, remove_output
from thadam_ros.node.demo.screen import Screen
from thadam_ros.node.demo.shared_memory import sweep
from thadam_ros.node.demo.stage import make_stage
from thadam_ros.node.demo.story import (
    Story,
    StoryFailedError,
    StoryInterruptedError,
    describe_failure,
)
from thadam_ros.node.demo.verdict import give_verdict

EXIT_WRONG = 1
EXIT_COULD_NOT_RUN = 3
EXIT_INTERRUPTED = 130
#: How long children may take to end by themselves.
_PATIENCE_S = 6.0


class _Signals:
    """The first SIGINT or SIGTERM asks the loop to end, the second ends everything at once.

    Attributes:
        is_loop_over: Nobody asks any more: one signal is enough.
    """

    def __init__(self, children: Children) -> None:
        self._children = children
        self._asked = threading.Event()
        self.is_loop_over = False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._came)

    def is_asked(self) -> bool:
        return self._asked.is_set()

    def _came(self, number: int, frame: FrameType | None) -> None:
        if self._asked.is_set() or self.is_loop_over:
            self._children.kill()
            os._exit(EXIT_INTERRUPTED)
        self._asked.set()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; the exit code says how it went."""
    children = Children()
    signals = _Signals(children)
    options = parse_options(sys.argv[1:] if argv is None else argv)
    code = EXIT_COULD_NOT_RUN
    try:
        code = _run(options, children, signals)
    except StoryInterruptedError:
        print("interrupted; everything the demo started is ended", file=sys.stderr)
        code = EXIT_INTERRUPTED
    except (StoryFailedError, ThadamError, OSError) as exc:
        print(f"the demo could not run: {describe_failure(exc)}", file=sys.stderr)
    finally:
        children.close(_PATIENCE_S)
        if code == EXIT_INTERRUPTED:
            remove_output(options)
    return code


@contextmanager
def _swept(children: Children, domain: int) -> Iterator[None]:
    """End all children and sweep up what killed ones leave in /dev/shm."""
    try:
        yield
    finally:
        children.close(_PATIENCE_S)
        sweep(children.segments(), domain)


def _run(options: Options, children: Children, signals: _Signals) -> int:
    prepare_output(options)
    with free_domain() as domain, _swept(children, domain), Screen() as screen:
        stage = make_stage(options, options.output / "ledger.jsonl")
        screen.say(f"ROS domain {domain}, loopback only; everything is written to {options.output}")
        for note in stage.notes:
            screen.say(note)
        story = Story(
            options.output, stage, options.seconds, domain, screen, children, signals.is_asked
        )
        story.run()
    signals.is_loop_over = True
    if signals.is_asked():
        raise StoryInterruptedError
    is_fine = give_verdict(story, stage, screen)
    return 0 if is_fine else EXIT_WRONG
