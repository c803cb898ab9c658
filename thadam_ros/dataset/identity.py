# SPDX-License-Identifier: Apache-2.0
"""Identity levels: constants, topic templates and pointers as label columns (spec 3.2)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from thadam_ros.model.message import TopicDeclaration

_PLACE = re.compile(r"\{([^{}]*)\}")
_TOPIC = re.compile(r"topic\.(-?\d{1,3})")


class TemplateError(ValueError):
    """An identity value is no template; one sentence."""


@dataclass(frozen=True, slots=True)
class Template:
    """Text with places that a topic fills.

    Attributes:
        parts: Literal text, an int for ``{topic.N}``, or None for ``{namespace}``.
    """

    parts: tuple[str | int | None, ...]

    @property
    def constant(self) -> bool:
        """It does not depend on the topic."""
        return all(isinstance(part, str) for part in self.parts)

    def render(self, declaration: TopicDeclaration) -> str | None:
        """Return the level's value for a topic; None when the topic has no such segment.

        Segments count from 0 without the leading slash, negative ones from the end.
        ``{namespace}`` is the capturing node's namespace without its leading slash.
        """
        segments = declaration.name.strip("/").split("/")
        texts = []
        for part in self.parts:
            if part is None:
                texts.append(declaration.namespace.strip("/"))
            elif isinstance(part, str):
                texts.append(part)
            elif -len(segments) <= part < len(segments):
                texts.append(segments[part])
            else:
                return None
        return "".join(texts)


def parse_template(text: str) -> Template:
    """Parse an identity value that is no pointer.

    Raises:
        TemplateError: If a place in braces is unknown.
    """
    parts: list[str | int | None] = []
    end = 0
    for match in _PLACE.finditer(text):
        if match.start() > end:
            parts.append(text[end : match.start()])
        end = match.end()
        topic = _TOPIC.fullmatch(match[1])
        if topic:
            parts.append(int(topic[1]))
        elif match[1] == "namespace":
            parts.append(None)
        elif match[1] == "device":
            raise TemplateError("has {device}, which only sparkplug_b datasets have.")
        else:
            raise TemplateError(
                f"has the unknown place {match[0]}; valid: {{topic.N}}, {{namespace}}, {{device}}."
            )
    if end < len(text):
        parts.append(text[end:])
    return Template(tuple(parts) or ("",))
