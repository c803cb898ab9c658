# SPDX-License-Identifier: Apache-2.0
"""``~/ready``, ``~/capturing`` and ``~/pause`` of ``thadam`` (spec 7.3)."""

from __future__ import annotations

from rclpy.callback_groups import ReentrantCallbackGroup
from std_srvs.srv import SetBool, Trigger

from thadam_ros.node.edge_node import EdgeNode
from thadam_ros.node.edge_view import EdgeView
from thadam_ros.node.speaker import Speaker


def add_services(edge: EdgeNode, view: EdgeView, speaker: Speaker) -> None:
    """Create the services; they answer in every lifecycle state."""

    def ready(request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        response.success, response.message = view.ready()
        return response

    def capturing(request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        response.success = edge.capturing
        paused = any(capture.paused for capture in edge.captures)
        response.message = "paused on request" if paused else f"thadam is {edge.state_label}"
        return response

    def pause(request: SetBool.Request, response: SetBool.Response) -> SetBool.Response:
        response.success = edge.pause(request.data)
        if not response.success:
            response.message = f"thadam is {edge.state_label}; only an active one captures"
        elif request.data:
            response.message = "paused: messages are refused and counted"
        else:
            response.message = "capturing"
        speaker.changed()
        return response

    group = ReentrantCallbackGroup()
    edge.create_service(Trigger, "~/ready", ready, callback_group=group)
    edge.create_service(Trigger, "~/capturing", capturing, callback_group=group)
    edge.create_service(SetBool, "~/pause", pause, callback_group=group)
