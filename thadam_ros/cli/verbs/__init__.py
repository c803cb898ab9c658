# SPDX-License-Identifier: Apache-2.0
"""The verbs that need no ROS. Each module has NAME, HELP, add_arguments(parser), run(args)."""
