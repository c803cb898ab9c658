# SPDX-License-Identifier: Apache-2.0
"""The lifecycle base class against real lifecycle services (spec 7.1)."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="needs rclpy")

from lifecycle_msgs.msg import Transition
from rclpy.context import Context
from rclpy.lifecycle import LifecycleNodeMixin
from rclpy.node import Node

from thadam_ros.errors import ConfigError, FatalError, Problem
from thadam_ros.node.managed_node import ManagedNode

from .support import LifecycleClient, wait_until


class Probe(ManagedNode):
    """Records what the base class asks of it and raises what the test says."""

    def __init__(self, context: Context) -> None:
        self.calls: list[str] = []
        self.raising: dict[str, BaseException] = {}
        self.holding: dict[str, threading.Event] = {}
        self.entered = threading.Event()
        super().__init__("probe", context=context)

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if name in self.holding:
            self.entered.set()
            assert self.holding[name].wait(30.0)
        if name in self.raising:
            raise self.raising[name]

    def prepare(self) -> None:
        self._called("prepare")

    def start(self) -> None:
        self._called("start")

    def stop(self, drain: bool) -> None:
        self._called("stop:drain" if drain else "stop:now")

    def release(self) -> None:
        self._called("release")


@pytest.fixture
def probe(context: Context, spin: Callable[..., Any]) -> Probe:
    node = Probe(context)
    node.spinner = spin(node)
    return node


@pytest.fixture
def client(probe: Probe, client_node: Node) -> LifecycleClient:
    made = LifecycleClient(client_node, "/probe")
    made.wait()
    return made


def activated(client: LifecycleClient) -> None:
    assert client.configure()
    assert client.activate()
    assert client.state() == "active"


def test_private_names_of_rclpy_exist_and_are_called_through_self() -> None:
    """The two overridden private methods exist, and the service handler reaches them."""
    assert "_LifecycleNodeMixin__change_state" in vars(LifecycleNodeMixin)
    assert "_LifecycleNodeMixin__execute_callback" in vars(LifecycleNodeMixin)
    handler = inspect.getsource(vars(LifecycleNodeMixin)["_LifecycleNodeMixin__on_change_state"])
    assert "self.__change_state(" in handler
    change = inspect.getsource(vars(LifecycleNodeMixin)["_LifecycleNodeMixin__change_state"])
    assert change.count("self.__execute_callback(") == 2


def test_private_attributes_of_rclpy_exist(probe: Probe) -> None:
    """The state machine and the callback table are where the base class looks for them."""
    assert probe._state_machine.current_state[1] == "unconfigured"
    assert len(probe._callbacks) == 6


def test_a_whole_life_calls_each_hook_once_and_drains(
    probe: Probe, client: LifecycleClient
) -> None:
    """configure, activate, deactivate, cleanup reach the four hooks in order."""
    activated(client)
    assert client.deactivate()
    assert client.state() == "inactive"
    assert client.cleanup()
    assert client.state() == "unconfigured"
    assert probe.calls == ["prepare", "start", "stop:drain", "release"]
    assert probe.cause is None


def test_a_static_error_keeps_the_node_unconfigured_and_names_every_problem(
    probe: Probe, client: LifecycleClient
) -> None:
    """A refused configuration answers FAILURE, releases, and keeps all problems as the cause."""
    problems = [Problem("a.b", 1, "is wrong"), Problem("c", None, "is missing")]
    probe.raising["prepare"] = ConfigError(problems)
    assert not client.configure()
    assert client.state() == "unconfigured"
    assert probe.calls == ["prepare", "release"]
    assert isinstance(probe.cause, ConfigError)
    assert [p.path for p in probe.cause.problems] == ["a.b", "c"]


def test_a_corrected_configuration_clears_the_cause(probe: Probe, client: LifecycleClient) -> None:
    """The cause of a refused configure is gone after one that works."""
    probe.raising["prepare"] = FatalError("data_dir is locked")
    assert not client.configure()
    del probe.raising["prepare"]
    assert client.configure()
    assert probe.cause is None


def test_a_refused_activation_stays_inactive(probe: Probe, client: LifecycleClient) -> None:
    """A ThadamError of start undoes the start and leaves the node inactive."""
    assert client.configure()
    probe.raising["start"] = FatalError("no")
    assert not client.activate()
    assert client.state() == "inactive"
    assert probe.calls[-2:] == ["start", "stop:now"]


def test_a_fault_while_active_ends_in_unconfigured_with_its_cause(
    probe: Probe, client: LifecycleClient
) -> None:
    """Stop without drain, release, unconfigured; configure and activate work again."""
    activated(client)
    fault = FatalError("the store refuses the schema")
    threading.Thread(target=probe.report_fault, args=(fault,)).start()
    wait_until(lambda: client.state() == "unconfigured", "unconfigured after a fault")
    assert "stop:drain" not in probe.calls
    assert probe.calls[-1] == "release"
    assert probe.cause is fault
    activated(client)
    assert probe.cause is None


@pytest.mark.parametrize("hook", ["start", "stop:drain"])
def test_a_fault_during_a_transition_is_not_lost(
    probe: Probe, client: LifecycleClient, hook: str
) -> None:
    """A fault reported while activating or deactivating acts as soon as the transition ends."""
    assert client.configure()
    gate = threading.Event()
    if hook == "stop:drain":
        assert client.activate()
    probe.holding[hook] = gate
    transition = (
        Transition.TRANSITION_ACTIVATE if hook == "start" else Transition.TRANSITION_DEACTIVATE
    )
    answer = client.change_async(transition)
    assert probe.entered.wait(30.0)
    fault = FatalError("too early")
    probe.report_fault(fault)
    gate.set()
    wait_until(answer.done, "the transition's answer")
    wait_until(lambda: client.state() == "unconfigured", "unconfigured after a waiting fault")
    assert probe.cause is fault


def test_a_fault_while_inactive_ends_in_unconfigured(probe: Probe, client: LifecycleClient) -> None:
    """A prepared component that breaks is released as well."""
    assert client.configure()
    probe.report_fault(FatalError("broken"))
    wait_until(lambda: client.state() == "unconfigured", "unconfigured after a fault")
    assert probe.calls[-1] == "release"


def test_a_fault_of_an_earlier_generation_is_ignored(probe: Probe, client: LifecycleClient) -> None:
    """A component that was released cannot take its successor down."""
    assert client.configure()
    stale = probe.fault_reporter()
    assert client.cleanup()
    activated(client)
    stale(FatalError("from the past"))
    assert client.deactivate()
    assert client.state() == "inactive"
    assert probe.cause is None


@pytest.mark.parametrize(
    "transition",
    [
        Transition.TRANSITION_ACTIVATE,
        Transition.TRANSITION_DEACTIVATE,
        Transition.TRANSITION_CLEANUP,
        99,
    ],
)
def test_illegal_transitions_are_refused_and_harmless(
    probe: Probe, client: LifecycleClient, transition: int
) -> None:
    """The answer is success=False, the executor lives, and a legal transition still works."""
    assert not client.change(transition)
    assert probe.spinner.alive
    assert client.state() == "unconfigured"
    activated(client)


def test_a_concurrent_transition_is_refused_while_get_state_answers(
    probe: Probe, client: LifecycleClient
) -> None:
    """Of two overlapping transitions the second is refused; get_state answers meanwhile."""
    gate = threading.Event()
    probe.holding["prepare"] = gate
    first = client.change_async(Transition.TRANSITION_CONFIGURE)
    assert probe.entered.wait(30.0)
    assert not client.configure()
    latencies = []
    for _ in range(50):
        begun = time.perf_counter()
        assert client.state() == "configuring"
        latencies.append(time.perf_counter() - begun)
    gate.set()
    wait_until(first.done, "the first transition")
    assert first.result().success
    assert client.state() == "inactive"
    print(f"get_state during a transition: p99 {sorted(latencies)[-1] * 1e3:.1f} ms")


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), SystemExit(1), GeneratorExit(), ValueError()]
)
@pytest.mark.parametrize("hook", ["prepare", "start", "stop:drain"])
def test_an_unexpected_exception_in_a_hook_ends_in_unconfigured(
    probe: Probe, client: LifecycleClient, hook: str, error: BaseException
) -> None:
    """BaseException included: never left in a transition state, and usable again."""
    probe.raising[hook] = error
    client.configure()
    if hook != "prepare":
        client.activate()
    if hook == "stop:drain":
        client.deactivate()
    wait_until(lambda: client.state() == "unconfigured", "unconfigured after an exception")
    assert probe.cause is error
    assert probe.spinner.alive
    probe.raising.clear()
    activated(client)


def test_a_node_that_cannot_release_is_finalized_and_says_so(
    probe: Probe, client: LifecycleClient
) -> None:
    """on_error that raises leads to finalized and tells the process."""
    told = threading.Event()
    probe.on_finalized = told.set
    activated(client)
    probe.raising["release"] = RuntimeError("a thread does not stop")
    probe.report_fault(FatalError("broken"))
    wait_until(lambda: client.state() == "finalized", "finalized")
    assert told.wait(30.0)


def test_shutdown_from_active_drains_and_releases(probe: Probe, client: LifecycleClient) -> None:
    """The shutdown transition is an ordinary way out and does not count as a failure."""
    told = threading.Event()
    probe.on_finalized = told.set
    activated(client)
    assert client.change(Transition.TRANSITION_ACTIVE_SHUTDOWN)
    assert client.state() == "finalized"
    assert probe.calls[-2:] == ["stop:drain", "release"]
    assert not told.is_set()
