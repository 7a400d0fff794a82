"""Changes to a loop that leave the code of the dataset and of the step alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Kind = Literal["arguments", "whole batches", "one thread", "all cores", "thread ahead"]


@dataclass(frozen=True)
class Change:
    """A change to the loader that leaves the dataset and the step alone."""

    words: str
    kind: Kind = "arguments"
    arguments: Mapping[str, Any] = field(default_factory=dict)  # new arguments of the `DataLoader`


def with_arguments(**arguments: Any) -> Change:
    """Return a change of arguments of the `DataLoader`."""
    words = ", ".join(f"{name}={value}" for name, value in arguments.items())
    return Change(words, arguments=arguments)


def with_persistent_workers(change: Change) -> Change:
    """Return the same change with persistent workers added."""
    persistent = with_arguments(persistent_workers=True)
    words = f"{change.words}, {persistent.words}"
    return replace(change, words=words, arguments={**change.arguments, **persistent.arguments})
