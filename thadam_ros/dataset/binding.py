# SPDX-License-Identifier: Apache-2.0
"""A plan held against the definition that came with the data.

The plan was made from the definition at hand when the configuration was loaded; a message is
decoded with the definition its publisher declared. They usually are the same. Where they differ
the plan still applies as long as every pointer exists and its column can hold the type.
"""

from __future__ import annotations

from thadam_ros.dataset.message import Leaf, Shape, element_leaf, find_leaf
from thadam_ros.dataset.plan import DatasetPlan, PlannedField, Source
from thadam_ros.decode.cdr_columns import CdrColumnDecoder
from thadam_ros.decode.definition import normalize_type_name, parse_definition
from thadam_ros.decode.schema import MessageSchema
from thadam_ros.errors import RecordError
from thadam_ros.model.message import TopicDeclaration

_CDR = "cdr"


class Binding:
    """A decoder for one definition and the leaf of each source in it."""

    def __init__(self, decoder: CdrColumnDecoder, leaves: dict[Source, Leaf]) -> None:
        self.decoder = decoder
        self.leaves = leaves


def bind(plan: DatasetPlan, declaration: TopicDeclaration) -> Binding:
    """Prepare decoding of a topic for a dataset.

    Raises:
        RecordError: When no message of this declaration can become a row.
    """
    if declaration.encoding != _CDR:
        raise RecordError(
            "decode.encoding", f"the topic is {declaration.encoding}, the dataset decodes cdr"
        )
    if not declaration.type_name:
        raise RecordError("decode.type_unknown", "the topic declares no type")
    if normalize_type_name(declaration.type_name) != plan.type_name:
        raise RecordError(
            "decode.type_mismatch",
            f"the topic has {declaration.type_name}, the dataset {plan.type_name}",
        )
    if not declaration.definition.strip() and not plan.type_name.endswith("/Empty"):
        raise RecordError("decode.type_unknown", f"{plan.type_name} came without a definition")
    schema = parse_definition(declaration.definition, declaration.type_name)
    leaves: dict[Source, Leaf] = {}
    for field in plan.fields:
        if field.source is not None:
            leaves[field.source] = _checked(schema, field)
    others = [*(part.source for part in plan.key), *plan.fetched.values()]
    if plan.time is not None:
        others.append(plan.time.source)
    for source in others:
        if source is not None:
            leaves[source] = _same(schema, source)
    return Binding(CdrColumnDecoder(schema, plan.pointers), leaves)


def _checked(schema: MessageSchema, field: PlannedField) -> Leaf:
    assert field.source is not None
    leaf = _find(schema, field.source)
    natural = leaf.natural
    planned = field.source.leaf
    if leaf.shape is planned.shape and natural == planned.natural:
        return leaf
    flexible = field.tick_ns is None and field.conversion is None and not field.identity
    same_parts = (leaf.shape in _TIMES) == (planned.shape in _TIMES)
    if flexible and same_parts and natural is not None and field.type.accepts(natural):
        return leaf
    raise RecordError(
        "decode.type_mismatch",
        f"{field.source.pointer} is {leaf} in this definition, {planned} was planned",
    )


_TIMES = (Shape.TIME, Shape.DURATION)


def _same(schema: MessageSchema, source: Source) -> Leaf:
    leaf = _find(schema, source)
    if leaf.shape is not source.leaf.shape or leaf.natural != source.leaf.natural:
        raise RecordError(
            "decode.type_mismatch",
            f"{source.pointer} is {leaf} in this definition, {source.leaf} was planned",
        )
    return leaf


def _find(schema: MessageSchema, source: Source) -> Leaf:
    leaf: Leaf | None
    if source.array is None:
        leaf = find_leaf(schema, source.leaf.pointer)
    else:
        leaf = find_leaf(schema, source.array)
        if leaf is not None and leaf.shape in (Shape.LIST, Shape.STRUCTS):
            element = element_leaf(leaf)
            if not source.leaf.pointer:
                leaf = Leaf("", element.shape, element.type_name)
            elif element.shape is Shape.STRUCT:
                leaf = find_leaf(schema, source.leaf.pointer, element.type_name)
            else:
                leaf = None
        else:
            leaf = None
    if leaf is None:
        raise RecordError(
            "schema.pointer_unknown", f"{schema.type_name} has no field {source.pointer}"
        )
    return leaf
