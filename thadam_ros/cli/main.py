# SPDX-License-Identifier: Apache-2.0
"""Entry of the command ``thadam``.

Exit codes:
    0    fine
    1    found problems: damage, losses, rejects, components that do not work
    2    the configuration, or the command line, is wrong
    3    could not run: a lock, a missing file, no ROS, a bug
    130  interrupted

Errors are one sentence on stderr (a list of problems for configurations); with ``--json`` they are
a document on stdout. ``THADAM_DEBUG=1`` shows tracebacks.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

from thadam_ros import __version__
from thadam_ros.cli.registry import VERBS, NeedsRosError, Verb, load_verb, ros_verbs
from thadam_ros.cli.terminal import print_json, problem_document
from thadam_ros.config.kinds import nearest
from thadam_ros.errors import ConfigError, ThadamError

OK = 0
FOUND = 1
CONFIGURATION = 2
FAILED = 3
INTERRUPTED = 130


class _Parser(argparse.ArgumentParser):
    """argparse whose errors are one sentence and exit code 2."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message} (see {self.prog} --help)", file=sys.stderr)
        raise SystemExit(CONFIGURATION)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_overview())
        return OK if arguments else CONFIGURATION
    if arguments[0] in ("-V", "--version"):
        print(f"thadam {__version__}")
        return OK
    as_json = "--json" in arguments
    try:
        return _run(arguments)
    except SystemExit as exc:
        return exc.code if isinstance(exc.code, int) else FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has gone, as `| head` does; nothing more can be said to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except Exception as exc:  # noqa: BLE001 - the edge of the process: said in one sentence
        if os.environ.get("THADAM_DEBUG") == "1":
            traceback.print_exc()
        return _report(exc, as_json)


def _run(arguments: list[str]) -> int:
    name = arguments[0]
    try:
        verb = load_verb(name)
    except KeyError:
        valid = sorted((*VERBS, *ros_verbs()))
        close = nearest(name, valid)
        hint = f" Did you mean {close!r}?" if close else ""
        print(f"thadam: {name!r} is not a verb; valid: {', '.join(valid)}.{hint}", file=sys.stderr)
        return CONFIGURATION
    parser = make_parser(verb)
    return verb.run(parser.parse_args(arguments[1:]))


def make_parser(verb: Verb) -> argparse.ArgumentParser:
    """Return the argument parser of a verb, ``--json`` included."""
    parser = _Parser(prog=f"thadam {verb.NAME}", description=verb.HELP, conflict_handler="resolve")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    verb.add_arguments(parser)
    return parser


def _overview() -> str:
    lines = ["usage: thadam VERB [arguments]        thadam VERB --help", "", "verbs:"]
    for name in VERBS:
        lines.append(f"  {name:<12}{_help_of(name)}")
    for name in sorted(ros_verbs()):
        lines.append(f"  {name:<12}needs ROS 2")
    lines += [
        "",
        "exit codes: 0 fine, 1 found problems, 2 configuration or arguments, 3 could not run",
        "THADAM_DEBUG=1 shows tracebacks.",
    ]
    return "\n".join(lines)


def _help_of(name: str) -> str:
    try:
        return load_verb(name).HELP
    except ImportError as exc:
        return f"not available here: {exc}"


def _report(exc: Exception, as_json: bool) -> int:
    code = CONFIGURATION if isinstance(exc, ConfigError) else FAILED
    if as_json:
        document: dict[str, object] = {"error": _sentence(exc), "exit_code": code}
        if isinstance(exc, ConfigError):
            document["problems"] = [problem_document(p) for p in exc.problems]
        print_json(document)
    elif isinstance(exc, ConfigError):
        for problem in exc.problems:
            print(problem, file=sys.stderr)
    else:
        print(f"thadam: {_sentence(exc)}", file=sys.stderr)
    return code


def _sentence(exc: Exception) -> str:
    if isinstance(exc, ConfigError):
        count = len(exc.problems)
        return f"the configuration has {count} problem{'s' if count != 1 else ''}"
    if isinstance(exc, (ThadamError, NeedsRosError)):
        return str(exc)
    if isinstance(exc, OSError):
        where = f"{exc.filename}: " if exc.filename else ""
        return f"{where}{exc.strerror or exc}"
    if isinstance(exc, ModuleNotFoundError):
        return f"the Python module {exc.name} is missing; install it with: pip install {exc.name}"
    return f"unexpected {type(exc).__name__}: {exc}; this is a bug, THADAM_DEBUG=1 shows where"


if __name__ == "__main__":
    sys.exit(main())
