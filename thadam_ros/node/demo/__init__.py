# SPDX-License-Identifier: Apache-2.0
"""The demo: a simulated robot, a real edge, two faults, and a balance sheet (spec 7.7).

``python -m thadam_ros.node.demo`` is what ``scripts/demo`` runs. Parts::

    expectations   what the robot sends and what must become of it; pure
    messages       the robot's messages; without ROS
    ledger         what was really published, written by the publishing process itself
    robot, player  the publishing processes: the robot, or somebody's own bag (publishing: both)
    run            from the command line (options) to the exit code
    stage          who publishes, with which configuration (bag_stage, shipped)
    story          the run itself: start, break, kill, restart, drain
    screen         the live table and everything else that is shown
    children       processes that never outlive the demo (shared_memory, domain)
    arrivals       what the write-ahead log holds of the ledger's messages
    balance        the sheet, from ledger, arrivals and the chains' stamped states
    losses         which messages may be missing, and the loss window of a kill
    tables         what stands in the Parquet folders
    checks         everything that must be exact, each with both figures
    verdict        the end: sheet, checks, queries to paste
"""
