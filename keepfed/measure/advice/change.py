"""A change of a loop that needs none of the dataset or the step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Kind = Literal["arguments", "whole batches", "one thread", "all cores", "thread ahead"]


@dataclass(frozen=True)
class Change:
    """What may be done about a loop without touching dataset or step."""

    words: str
    kind: Kind = "arguments"
    arguments: Mapping[str, Any] = field(default_factory=dict)  # of the `DataLoader`


def with_arguments(**arguments: Any) -> Change:
    """Return the change to other arguments of the `DataLoader`."""
    words = ", ".join(f"{name}={value}" for name, value in arguments.items())
    return Change(words, arguments=arguments)


def with_persistent_workers(change: Change) -> Change:
    """Return the change, with workers that last from epoch to epoch besides."""
    lasting = with_arguments(persistent_workers=True)
    words = f"{change.words}, {lasting.words}"
    return replace(change, words=words, arguments={**change.arguments, **lasting.arguments})
