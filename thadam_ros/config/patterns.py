# SPDX-License-Identifier: Apache-2.0
"""Leaf kinds with a syntax of their own: pointers, globs, column types, identity values, URLs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from thadam_ros.config.kinds import NAME_PATTERN, Expanded, Kind, Refused, Text, nearest

#: Scalar column types (spec 3.2); or ``list<T>`` of one.
COLUMN_TYPES: Final = (
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "string",
    "binary",
    "timestamp",
    "object_ref",
)

#: Reference tokens of RFC 6901: anything but an unescaped ``~``; ``/`` separates them.
_TOKENS: Final = r"(?:/(?:[^/~]|~[01])*)+"
_TEMPLATE: Final = re.compile(r"\{([^{}]*)\}")
_TEMPLATE_WORDS: Final = re.compile(r"namespace|device|topic\.-?\d{1,3}")


@dataclass(frozen=True, slots=True)
class Pointer:
    """A JSON Pointer (RFC 6901); ``./x`` (an exploded element's) where ``element`` allows it."""

    element: bool = False

    ros_type = "string"

    def check(self, value: object) -> str:
        prefix = r"\.?" if self.element else ""
        if not isinstance(value, str) or re.fullmatch(prefix + _TOKENS, value, re.DOTALL) is None:
            suggestion = None
            if isinstance(value, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_./]{0,200}", value):
                suggestion = "/" + value.replace(".", "/").strip("/")
            raise Refused(f"is not {self.describe()}", suggestion)
        return str(value)

    def render(self, value: str) -> object:
        return value

    def schema(self) -> dict[str, object]:
        prefix = r"\.?" if self.element else ""
        return {
            "anyOf": [
                {"type": "string", "pattern": f"^{prefix}{_TOKENS}$"},
                {"type": "string", "pattern": r"\$\(env "},
            ]
        }

    def describe(self) -> str:
        text = "a JSON Pointer such as /header/stamp"
        return f"{text}, or ./x for a value of the exploded element" if self.element else text


class ColumnType:
    """A column type: a scalar or ``list<T>`` of scalars."""

    ros_type = "string"

    def check(self, value: object) -> str:
        if isinstance(value, str) and len(value) <= 200:
            inner, in_list = value.replace(" ", ""), False
            if inner.startswith("list<") and inner.endswith(">"):
                inner, in_list = inner[5:-1], True
            if inner in COLUMN_TYPES:
                return f"list<{inner}>" if in_list else inner
            raise Refused(f"is not a column type; valid: {self.describe()}", self._nearest(inner))
        raise Refused(f"must be a column type; valid: {self.describe()}")

    @staticmethod
    def _nearest(text: str) -> str | None:
        aliases = {
            "bool": "boolean",
            "int32": "int",
            "integer": "int",
            "int64": "long",
            "float32": "float",
            "float64": "double",
            "str": "string",
            "bytes": "binary",
        }
        return aliases.get(text) or nearest(text, COLUMN_TYPES)

    def render(self, value: str) -> object:
        return value

    def schema(self) -> dict[str, object]:
        names = "|".join(COLUMN_TYPES)
        pattern = rf"^(({names})|list<\s*({names})\s*>)$"
        return {
            "anyOf": [
                {"type": "string", "pattern": pattern},
                {"type": "string", "pattern": r"\$\(env "},
            ]
        }

    def describe(self) -> str:
        return ", ".join((*COLUMN_TYPES, "list<T>"))


class IdentityValue:
    """A dataset's identity level: constant, pointer, or ``{namespace} {device} {topic.N}``."""

    ros_type = "string"

    def check(self, value: object) -> str:
        if not isinstance(value, str) or not value:
            hint = f"; quote it: '{value}'" if isinstance(value, (int, float)) else ""
            raise Refused(f"must be {self.describe()}{hint}")
        if value.startswith("/") and not isinstance(value, Expanded):
            return str(Pointer().check(value))
        for word in _TEMPLATE.findall(value):
            if not _TEMPLATE_WORDS.fullmatch(word):
                close = nearest(word, ("namespace", "device", "topic.0"))
                raise Refused(
                    f"has the unknown placeholder {{{word}}}; valid: {{namespace}}, {{device}}, "
                    "{topic.N} with N from 0, or negative from the end",
                    f"{{{close}}}" if close else None,
                )
        if _TEMPLATE.sub("", value).strip("\x00") != _TEMPLATE.sub("", value):
            raise Refused("contains characters that are not text")
        return Text().check(value)

    def render(self, value: str) -> object:
        return value

    def schema(self) -> dict[str, object]:
        return {"type": "string", "minLength": 1}

    def describe(self) -> str:
        return "a constant, a pointer such as /sensor_id, {namespace}, {device} or {topic.N}"


@dataclass(frozen=True, slots=True)
class Template:
    """A name with placeholders, such as ``{dataset}``."""

    words: tuple[str, ...]

    ros_type = "string"

    def check(self, value: object) -> str:
        text = Text(what=self.describe()).check(value)
        for word in _TEMPLATE.findall(text):
            if word not in self.words:
                close = nearest(word, self.words)
                raise Refused(
                    f"has the unknown placeholder {{{word}}}; valid is {self.describe()}",
                    f"{{{close}}}" if close else None,
                )
        return text

    def render(self, value: str) -> object:
        return value

    def schema(self) -> dict[str, object]:
        return {"type": "string", "minLength": 1}

    def describe(self) -> str:
        return "a name, which may contain " + ", ".join(f"{{{w}}}" for w in self.words)


@dataclass(frozen=True, slots=True)
class Url:
    """A URL without credentials; which schemes fit is checked per type."""

    ros_type = "string"

    def check(self, value: object) -> str:
        text = Text(what=self.describe()).check(value)
        try:
            parts = urlsplit(text)
            port_is_valid = parts.port is None or parts.port > 0
            secret = parts.password
        except ValueError:
            raise Refused(f"is not {self.describe()}") from None
        if secret is not None:
            raise Refused("must not contain a password; use user and password_env or password_file")
        if not port_is_valid:
            raise Refused("has the port 0; give the server's port")
        return text

    def render(self, value: str) -> object:
        return value

    def schema(self) -> dict[str, object]:
        return {"type": "string", "minLength": 1}

    def describe(self) -> str:
        return "a URL such as s3://bucket/prefix, https://host:8443, or an absolute folder"


@dataclass(frozen=True, slots=True)
class Constant:
    """A number, a boolean or text, kept as written: lookup and enumeration values."""

    ros_type = "string"

    def check(self, value: object) -> Any:
        if isinstance(value, (bool, int, str)):
            if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 1 << 63:
                raise Refused("does not fit 64 bits")
            return Text(empty=True).check(value) if isinstance(value, str) else value
        if isinstance(value, float) and value == value and abs(value) != float("inf"):
            return value
        raise Refused(f"must be {self.describe()}")

    def render(self, value: Any) -> object:
        return value

    def schema(self) -> dict[str, object]:
        return {"type": ["string", "number", "boolean"]}

    def describe(self) -> str:
        return "text, a finite number, or true or false"


def AbsolutePath(what: str = "an absolute path") -> Text:  # noqa: N802
    """Return the kind of an absolute path: a service has no folder of its own to be relative to."""
    return Text(r"/[^\x00]*", f"{what} (absolute, starting with /)")


def Secret(what: str) -> Text:  # noqa: N802
    """Return the kind of an environment variable's name that holds a secret."""
    return Text("[A-Za-z_][A-Za-z0-9_]*", f"the name of an environment variable with {what}")


def Expression() -> Text:  # noqa: N802
    """Return the kind of an expression; its grammar is checked with the dataset's columns."""
    return Text(what="an expression over column names, such as abs(x) <= 1.5")


NAME: Final[Kind] = Text(
    NAME_PATTERN[1:-1],
    "a name: a lower case letter, then lower case letters, digits or _ (at most 63)",
)
#: Topic patterns of all sources; what a source's type allows is checked with the source.
TOPIC: Final[Kind] = Text(r"[^\s\x00]+", "a topic name or pattern without spaces")
ROS_TYPE: Final[Kind] = Text(
    r"[a-zA-Z][a-zA-Z0-9_]*/(msg|srv|action)/[A-Z][A-Za-z0-9_]*",
    "a ROS message type such as sensor_msgs/msg/Imu",
)
UNIT: Final[Kind] = Text(what="a unit such as m/s, degC or rad")
GLOB: Final[Kind] = Text(r"(/([^/~]|~[01])*)+", "a pointer with * or **, such as /*_covariance")
