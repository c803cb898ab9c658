# SPDX-License-Identifier: Apache-2.0
"""Lifecycle base class of every node (spec 7.1).

rclpy registers no error transition out of *active*, dies of an illegal transition on Jazzy, and is
left in *activating* by a BaseException. This class closes those holes; it overrides two private
methods of rclpy's mixin, which ``test/node/test_managed_node.py`` checks on each distribution.

Subclasses implement four plain methods, which raise when they cannot do what they are asked::

    prepare()         everything static: read, check, lock          on_configure
    start()           begin to work                                 on_activate
    stop(drain)       stop working; drain=False means at once       on_deactivate
    release()         undo prepare; may be called again             on_cleanup, _error, _shutdown

=====================  ===========================================================================
raised in              becomes
=====================  ===========================================================================
prepare, start         ThadamError, OSError: FAILURE after the undo, the cause is kept and logged;
                       anything else: ERROR, then error processing
stop                   ERROR, then error processing
release in on_error    FAILURE, hence *finalized*, and ``on_finalized`` is told
=====================  ===========================================================================

A fault of a running component goes through :meth:`ManagedNode.report_fault` from any thread: a
guard condition wakes the executor, which deactivates without drain and goes through error
processing to *unconfigured*. A fault reported in the middle of a transition waits for its end.
"""

from __future__ import annotations

import contextlib
import threading
import traceback
from collections.abc import Callable
from typing import Any

from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.impl.implementation_singleton import rclpy_implementation as _rclpy
from rclpy.lifecycle import LifecycleNodeMixin, LifecycleState, TransitionCallbackReturn
from rclpy.node import Node

from thadam_ros.errors import ConfigError, ThadamError

_SUCCESS = TransitionCallbackReturn.SUCCESS
_FAILURE = TransitionCallbackReturn.FAILURE
_ERROR = TransitionCallbackReturn.ERROR


class ManagedNode(LifecycleNodeMixin, Node):  # not LifecycleNode: that one takes no callback group
    """A lifecycle node that survives its own faults and its clients' mistakes.

    Attributes:
        cause: What made the last transition fail or the component leave *active*; None while all
            is well. Cleared by the next ``configure``.
        on_finalized: Called once when error processing could not release; the process leaves then.
        on_change: Called after every finished transition, from the thread that ran it.
    """

    def __init__(self, node_name: str, **node_arguments: Any) -> None:
        Node.__init__(self, node_name, **node_arguments)
        self.cause: BaseException | None = None
        self.on_finalized: Callable[[], None] | None = None
        self.on_change: Callable[[], None] | None = None
        self._transition = threading.Lock()
        self._fault_lock = threading.Lock()
        self._pending_fault: BaseException | None = None
        self._generation = 0
        self._unreleasable = False
        # Reentrant: get_state must answer while change_state runs.
        self.lifecycle_group = ReentrantCallbackGroup()
        LifecycleNodeMixin.__init__(self, callback_group=self.lifecycle_group)
        self._fault_guard = self.create_guard_condition(
            self._leave_after_fault, callback_group=self.lifecycle_group
        )

    # What a subclass does.

    def prepare(self) -> None:
        """Do everything that can fail for a static reason."""

    def start(self) -> None:
        """Begin to work."""

    def stop(self, drain: bool) -> None:
        """Stop working, at once unless ``drain``."""

    def release(self) -> None:
        """Give back what :meth:`prepare` took. Called again without harm."""

    # What others ask.

    @property
    def state_label(self) -> str:
        """Label of the current primary or transition state, such as ``active``."""
        label: str = self._state_machine.current_state[1]
        return label

    def report_fault(self, cause: BaseException, generation: int | None = None) -> None:
        """Leave *active* (or *inactive*) because of ``cause``; from any thread, returns at once.

        Args:
            cause: The first one reported wins.
            generation: Value of :attr:`generation` when the component was made; a fault of a
                component that was released since is ignored.
        """
        with self._fault_lock:
            if generation is not None and generation != self._generation:
                return
            if self._pending_fault is None:
                self._pending_fault = cause
        # A thread of a component may outlive the node for a moment.
        with contextlib.suppress(_rclpy.InvalidHandle):
            self._fault_guard.trigger()

    @property
    def generation(self) -> int:
        """Number of ``configure`` transitions begun so far."""
        return self._generation

    def fault_reporter(self) -> Callable[[BaseException], None]:
        """Return a callback that reports faults of the present generation only."""
        generation = self._generation
        return lambda cause: self.report_fault(cause, generation)

    # Lifecycle callbacks; rclpy calls them by name.

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        with self._fault_lock:
            self._generation += 1
            self._pending_fault = None
        self.cause = None
        try:
            self.prepare()
        except (ThadamError, OSError) as exc:
            self._refuse("configure", exc)
            self.release()
            return _FAILURE
        return super().on_configure(state)

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        try:
            self.start()
        except (ThadamError, OSError) as exc:
            self._refuse("activate", exc)
            self.stop(drain=False)
            return _FAILURE
        return super().on_activate(state)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        # Managed publishers stay enabled unless the mixin's own callback runs.
        result = super().on_deactivate(state)
        if self._take_fault():
            self.stop(drain=False)
            return _ERROR
        self.stop(drain=True)
        return result

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        if self._take_fault():
            return _ERROR
        self.release()
        return super().on_cleanup(state)

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        if state.label == "active":
            self.stop(drain=True)
        self.release()
        return super().on_shutdown(state)

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        try:
            self.stop(drain=False)
            self.release()
        except BaseException as exc:  # noqa: BLE001 - whatever it is, this node cannot go on
            self._unreleasable = True
            self._log_failure("cannot release after an error", exc)
            return _FAILURE
        with self._fault_lock:
            self._pending_fault = None
        super().on_error(state)
        return _SUCCESS

    # The fault path.

    def _take_fault(self) -> bool:
        with self._fault_lock:
            fault, self._pending_fault = self._pending_fault, None
        if fault is None:
            return False
        self.cause = fault
        self._log_failure("failed", fault)
        return True

    def _leave_after_fault(self) -> None:
        """Executor thread: start the transition that leads a faulty node to *unconfigured*."""
        with self._fault_lock:
            if self._pending_fault is None:
                return
        label = self.state_label
        if label == "active":
            self.trigger_deactivate()
        elif label == "inactive":
            self.trigger_cleanup()
        elif label in ("unconfigured", "finalized"):
            self._take_fault()
        # In any transition state the end of that transition looks again.

    def _LifecycleNodeMixin__change_state(self, transition_id: int) -> TransitionCallbackReturn:  # noqa: N802
        if not self._transition.acquire(blocking=False):
            self.get_logger().warning(
                f"transition {transition_id} refused: another one is still running"
            )
            return _FAILURE
        try:
            result: TransitionCallbackReturn = super()._LifecycleNodeMixin__change_state(  # type: ignore[misc]
                transition_id
            )
        except _rclpy.RCLError as exc:
            self.get_logger().warning(
                f"transition {transition_id} refused in state {self.state_label}: {exc}"
            )
            result = _FAILURE
        finally:
            self._transition.release()
            self._after_transition()
        return result

    def _after_transition(self) -> None:
        with self._fault_lock:
            waiting = self._pending_fault is not None
        if waiting:
            self._fault_guard.trigger()
        if self.on_change is not None:
            self.on_change()
        if self._unreleasable and self.on_finalized is not None:
            self.on_finalized()

    def _LifecycleNodeMixin__execute_callback(  # noqa: N802
        self, state_id: int, previous: LifecycleState
    ) -> TransitionCallbackReturn:
        callback = self._callbacks.get(state_id)
        if callback is None:
            return _SUCCESS
        try:
            return callback(previous)
        except BaseException as exc:  # noqa: BLE001 - rclpy would stay in the transition for ever
            if self.cause is None:
                self.cause = exc
            self._log_failure("unexpected exception in a transition", exc)
            return _ERROR

    # Speaking.

    def _refuse(self, transition: str, exc: BaseException) -> None:
        self.cause = exc
        if isinstance(exc, ConfigError):
            for problem in exc.problems:
                self.get_logger().error(str(problem))
            self.get_logger().error(f"{transition} refused: {len(exc.problems)} problem(s)")
        else:
            self.get_logger().error(f"{transition} refused: {exc}")

    def _log_failure(self, what: str, exc: BaseException) -> None:
        if isinstance(exc, ThadamError):
            self.get_logger().error(f"{what}: {exc}")
            return
        text = "".join(traceback.format_exception(type(exc), exc, exc.__traceback__))
        self.get_logger().error(f"{what}: {text}")
