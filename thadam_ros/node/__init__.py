# SPDX-License-Identifier: Apache-2.0
"""The ROS 2 layer: lifecycle nodes, capture, diagnostics; nothing else imports rclpy."""
