"""Compare an answer with a plain reference, and show the smallest case in which the two differ."""

import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from course_utils.teaching.exercise import refuse

Case = TypeVar("Case")
Show = Callable[[Case], str]

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = 8
_SCALARS = (int, float, str, bytes, type(None))


@dataclass(frozen=True)
class Raised:
    """What a call raised instead of returning a result. The text of the error is not compared."""

    kind: str
    text: str = field(default="", compare=False)

    def __str__(self) -> str:
        """Return the error as Python prints it."""
        return f"{self.kind}: {self.text}" if self.text else self.kind


class Slip(NamedTuple):
    """A known mistake: when it was made, given (case, got, wanted), and the message for it.

    The two texts may contain the fields `case`, `got` and `wanted`.
    """

    when: Callable[[Any, Any, Any], object]
    misconception: str
    next_step: str


def differs(*facts: str) -> Callable[[Any, Any, Any], bool]:
    """Return the condition of a slip: one of these facts is wrong. Results are dicts of facts."""
    return lambda _, got, wanted: any(got.get(fact) != wanted.get(fact) for fact in facts)


def compare(
    answer: Callable[[Case], Any],
    reference: Callable[[Case], Any],
    cases: Iterable[Case],
    *slips: Slip,
    same: Callable[[Any, Any], bool] | None = None,
    show: Show[Case] | None = None,
    call: Show[Case] | None = None,
) -> None:
    """Refuse an answer that differs from the reference in one of the cases.

    The first slip that applies to a case names the mistake. If no slip applies, the message shows
    the case and the first part of the result that differs.

    Args:
        answer: The learner's function, called with one case.
        reference: The plain solution. It must not share state with the answer.
        cases: Arguments for both, the smallest case first.
        slips: Known mistakes, the most specific one first. Four at most.
        same: Returns whether a result is as good as the reference's. Default: it must be equal.
        show: Returns the case in words. Default: the call, or else a short `repr`.
        call: Returns code that runs the case, if a learner can run it in a cell.
    """
    assert len(slips) <= 4, "an exercise has at most four messages of its own"
    before: tuple[Any, Any] = None, None
    for case in cases:
        wanted, got = reference(case), answer(case)
        if same is None and difference(*before):
            refuse(
                "Your answer returned a right result, but the next call changed it. A loader keeps "
                "several batches ready, so they must not share memory.",
                "Create new objects in each call.",
            )
        before = got, wanted
        for slip in slips:
            if slip.when(case, got, wanted):
                fields = {"case": case, "got": got, "wanted": wanted}
                refuse(slip.misconception.format(**fields), slip.next_step.format(**fields))
        if same is None:
            differs = difference(got, wanted)
        else:
            differs = "" if same(got, wanted) else _instead("the result", got, wanted)
        if differs:
            refuse(f"For {(show or call or short)(case)}, {differs}.", how_to_run(call, case, show))


def how_to_run(call: Show[Case] | None, case: Case, show: Show[Case] | None = None) -> str:
    """Return the next step for a case that differs: with its code, if it is not shown already."""
    if call is None:
        return "Follow your code for this case line by line, on paper or with print."
    code = f": `{call(case)}`" if show else ""
    return f"Run this call in a cell, and follow it line by line{code}."


def difference(got: Any, wanted: Any, name: str = "the result") -> str:
    """Return in words where two results first differ, or "" if they are equal.

    Structure, types, dtypes, shapes and values must be equal. A list may replace a tuple.
    """
    if isinstance(wanted, torch.Tensor | np.ndarray):
        return _array_difference(got, wanted, name)
    if isinstance(wanted, Mapping):
        if not isinstance(got, Mapping | Raised):
            return f"{name} is a {type(got).__name__}, but must be a dict"
        if isinstance(got, Raised) or {*got} != {*wanted}:
            return _instead(name, got, wanted)
        parts = ((key, got[key], wanted[key]) for key in wanted)
    elif isinstance(wanted, Sequence) and not isinstance(wanted, str | bytes):
        if not isinstance(got, Sequence):
            return f"{name} is a {type(got).__name__}, but must be a {type(wanted).__name__}"
        if len(got) != len(wanted):
            alike = any(hasattr(value, "shape") for value in wanted) or short(got) == short(wanted)
            counts = f"{name} has {len(got)} entries, but must have {len(wanted)}"
            return counts if alike else _instead(name, got, wanted)
        if len(got) <= _SHORT.maxlist and all(isinstance(x, _SCALARS) for x in (*got, *wanted)):
            return "" if [*got] == [*wanted] else _instead(name, got, wanted)
        parts = ((place, *pair) for place, pair in enumerate(zip(got, wanted, strict=True)))
    else:
        single = getattr(got, "ndim", 0) == 0  # an array of several compares number by number
        return "" if single and got == wanted else _instead(name, got, wanted)
    differences = (difference(got, wanted, _part(name, key)) for key, got, wanted in parts)
    return next(filter(None, differences), "")


def equal(got: Any, wanted: Any) -> bool:
    """Return whether two results are equal in structure, types, dtypes, shapes and values."""
    return not difference(got, wanted)


def _part(name: str, key: object) -> str:
    """Return the name of an entry; a fact that a check has found is named in words."""
    if isinstance(key, str) and " " in key:
        return f'"{key}"'
    return f"{name.removeprefix('the ')}[{key!r}]"


def _array_difference(got: Any, wanted: Any, name: str) -> str:
    kind = type(wanted)
    if not isinstance(got, kind):
        return f"{name} is a {type(got).__name__}, but must be a {kind.__name__}"
    if getattr(got, "layout", None) != getattr(wanted, "layout", None):
        return f"{name} is not a dense tensor"
    if got.dtype != wanted.dtype:
        return f"{name} has dtype {got.dtype}, but must have {wanted.dtype}"
    if got.shape != wanted.shape:
        return f"{name} has shape {tuple(got.shape)}, but must have {tuple(wanted.shape)}"
    values = got.detach() if isinstance(got, torch.Tensor) else got
    both_nan = (values != values) & (wanted != wanted)
    differ = np.asarray((values != wanted) & ~both_nan)  # NumPy has no bfloat16, but torch has
    if not differ.any():
        return ""
    place = tuple(int(axis[0]) for axis in np.nonzero(differ))
    return f"{name}{[*place] or ''} is {got[place]}, but must be {wanted[place]}"


def _instead(name: str, got: Any, wanted: Any) -> str:
    if isinstance(wanted, Raised):
        result = f"raises {got}" if isinstance(got, Raised) else f"returns {short(got)}"
        return f"your answer {result}, but must raise {wanted.kind}"
    if isinstance(got, Raised):
        return f"your answer raises {got}, but must return {short(wanted)}"
    shown, must = short(got), short(wanted)
    if shown == must and isinstance(got, str) and isinstance(wanted, str):
        pairs = enumerate(zip_longest(got, wanted))
        place = next(number for number, (here, there) in pairs if here != there)
        shown, must = (
            f"{text[place : place + 20]!r} from character {place} of {len(text):,}"
            for text in (got, wanted)
        )
    elif shown == must:
        shown, must = f"{shown} ({type(got).__name__})", f"{must} ({type(wanted).__name__})"
    return f"{name} is {shown}, but must be {must}"


def short(value: Any) -> str:
    """Return a value in at most about 100 characters: tensors with shape and dtype."""
    if isinstance(value, torch.Tensor | np.ndarray):
        if value.ndim == 0:
            return str(value.item())
        values = value.tolist() if getattr(value, "layout", torch.strided) == torch.strided else ""
        shape = ", ".join(map(str, value.shape))
        kind = str(value.dtype).removeprefix("torch.")
        return f"{_SHORT.repr(values)} ({kind}, shape {shape})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {short(part)}" for key, part in value.items()) + "}"
    return _SHORT.repr(value)
