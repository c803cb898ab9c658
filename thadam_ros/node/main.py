# SPDX-License-Identifier: Apache-2.0
"""``thadam_edge``: the process of the lifecycle nodes (spec 7.1).

Default: ``thadam`` and one ``thadam_<sink>`` per sink in this process. With ``isolate_chains`` each
chain is a process of its own (``--chain SINK``): same code, same files, started and started again
by this one.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import rclpy
from rclpy.context import Context
from rclpy.signals import SignalHandlerOptions

from thadam_ros.errors import ConfigError, ThadamError
from thadam_ros.model.clock import SystemClock
from thadam_ros.node.arguments import Arguments, parse_arguments, without_name_remaps
from thadam_ros.node.chain_node import ChainNode
from thadam_ros.node.configuration import ConfigSource
from thadam_ros.node.edge_node import EdgeNode
from thadam_ros.node.edge_view import ChainView, EdgeView
from thadam_ros.node.isolation import ChainProcesses
from thadam_ros.node.process import EXIT_FAILED, EXIT_USAGE, Process
from thadam_ros.node.services import add_services
from thadam_ros.node.speaker import Speaker
from thadam_ros.node.supervisor import Supervisor
from thadam_ros.storage.filesystem import OsFileSystem

#: Seconds a thread may keep the interpreter while another waits for it. The default of 5 ms would
#: make the capturing thread wait that long for each of the chains' threads in turn.
SWITCH_INTERVAL_S = 0.001
#: ``thadam`` itself has no sink that says how often to try again.
EDGE_RETRY_S = 300.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the process; return its exit code."""
    arguments = parse_arguments(list(sys.argv if argv is None else argv))
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    context = Context()
    try:
        rclpy.init(
            args=list(arguments.ros),
            context=context,
            signal_handler_options=SignalHandlerOptions.NO,
        )
    except Exception as exc:  # noqa: BLE001 - rclpy raises many kinds for a wrong command line
        print(f"thadam: the ROS arguments are refused: {exc}", file=sys.stderr)
        return EXIT_USAGE
    try:
        process = (
            make_edge(context, arguments)
            if arguments.chain is None
            else make_chain(context, arguments, arguments.chain)
        )
    except ThadamError as exc:
        print(f"thadam: {exc}", file=sys.stderr)
        context.try_shutdown()
        return EXIT_USAGE if isinstance(exc, ConfigError) else EXIT_FAILED
    return process.run()


def make_edge(context: Context, arguments: Arguments) -> Process:
    """Build the whole edge, or capture alone when chains are isolated."""
    fs, clock, started_ns = OsFileSystem(), SystemClock(), time.time_ns()
    source = ConfigSource(fs, lock_path=arguments.lock_path)
    edge = EdgeNode(source, fs, clock, context=context)
    sinks = source.sink_names()
    edge.sinks = sinks
    chains: list[ChainNode] = []
    children: ChainProcesses | None = None
    if edge.isolate_chains:
        children = ChainProcesses(sinks, arguments, edge)
    else:
        chains = [
            ChainNode(
                sink,
                source,
                fs,
                clock,
                context=context,
                use_global_arguments=False,
                cli_args=without_name_remaps(arguments.ros[1:]),
            )
            for sink in sinks
        ]
    for chain in chains:
        chain.sinks = sinks
        chain.drain_timeout = edge.drain_timeout

    def wake_chains() -> None:
        for chain in chains:
            chain.wake()

    edge.on_durable = wake_chains
    view = EdgeView(edge, chains, clock, started_ns, children)
    edge.own_topics = view.own_topics
    speaker = Speaker(edge, view.snapshot, view.status_directory, clock, edge=True)
    add_services(edge, view, speaker)
    supervisor = Supervisor(
        [(edge, lambda: EDGE_RETRY_S), *((c, c.retry_every) for c in chains)],
        clock,
        source.document_signature,
    )
    return Process(
        context,
        edge,
        chains,
        supervisor,
        speaker,
        autostart=edge.autostart,
        children=children,
    )


def make_chain(context: Context, arguments: Arguments, sink: str) -> Process:
    """Build the process of one isolated chain."""
    fs, clock, started_ns = OsFileSystem(), SystemClock(), time.time_ns()
    source = ConfigSource(fs, lock_path=arguments.lock_path)
    chain = ChainNode(
        sink,
        source,
        fs,
        clock,
        context=context,
        use_global_arguments=False,
        cli_args=without_name_remaps(arguments.ros[1:]),
        alone=True,
    )
    view = ChainView(chain, clock, started_ns)
    speaker = Speaker(chain, view.snapshot, view.status_directory, clock, edge=False)
    supervisor = Supervisor([(chain, chain.retry_every)], clock, source.document_signature)
    return Process(
        context,
        None,
        [chain],
        supervisor,
        speaker,
        autostart=chain.autostart,
        children=None,
    )


if __name__ == "__main__":
    sys.exit(main())
