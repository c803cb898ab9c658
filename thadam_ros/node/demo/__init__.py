# SPDX-License-Identifier: Apache-2.0
"""The demo: a simulated robot, a real edge, two faults, and a balance sheet (spec 7.7).

``python -m thadam_ros.node.demo`` is what ``scripts/demo`` runs. Parts::

    expectations   what the robot sends and what must become of it; pure
    ledger         what was really published, written by the publishing process itself
    messages       ROS messages of the robot
    robot, player  the publishing processes: the robot, or somebody's own bag
    arrivals       what the write-ahead log holds of the ledger's messages
    balance        the sheet, from ledger, arrivals and the chains' stamped states
    checks         everything else that must be exact: rows, flags, rejects, files
    children       processes that never outlive the demo
    story          the run itself: start, break, kill, restart, drain
    screen         the live table
    queries        SQL to paste
"""
