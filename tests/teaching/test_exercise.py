import json
import signal
from typing import Any

import pytest

from course_utils.teaching import exercise as module
from course_utils.teaching.exercise import (
    VERDICT_MIME,
    Verdict,
    check,
    exercise,
    expect,
    right,
    todo,
    wrong,
)
from keepfed.errors import KeepfedError


@pytest.fixture(autouse=True)
def _double(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_EXERCISES", {})

    @exercise("90.1", title="Double a number", seconds=0.2)
    def double(attempt: Any) -> Verdict:
        found = attempt(2)
        if found == 0:
            return todo()
        if found == 2:
            return wrong("You gave the number back.", "Multiply by two.")
        expect(found == 4, "You added something.", "Multiply by two.")
        return right("Doubled.")


def _stub(x: int) -> int:
    """Double x."""
    ...


def _loop_for_ever(x: int) -> int:
    while True:
        x += 1


def _catch_all_errors(x: int) -> int:
    for again in (True, False):
        try:
            while x:
                pass
        except BaseException:
            if not again:
                raise
    return x


def _leave(x: int) -> int:
    raise SystemExit(x)


def test_attempts_get_their_verdicts() -> None:
    for attempt, status, message in (
        (_stub, "todo", "Write _stub: replace every `...`, then"),
        (..., "todo", "Write the answer"),
        (lambda x: 0, "todo", "Run this cell again"),
        (lambda x: x, "wrong", "You gave the number back."),
        (lambda x: x + 1, "wrong", "You added something."),
        (lambda x: x.size, "wrong", "Your code stopped: line"),
        (_leave, "wrong", "SystemExit: 2"),
        (lambda x: 2 * x, "right", "Doubled."),
    ):
        verdict = check("90.1", attempt)
        assert (verdict.status, verdict.title) == (status, "Double a number"), message
        assert (verdict.exercise, message in verdict.message) == ("90.1", True), message
    exercise("90.3", title="Nothing")(lambda x: wrong("You gave None.", "Give a number."))
    assert check("90.3", None).message == "You gave None."
    exercise("90.2", title="A number")(int)  # type: ignore[arg-type]
    verdict = check("90.2", "x")
    assert verdict.message.startswith("The check cannot use your answer: ValueError: invalid")
    with pytest.raises(KeepfedError, match=r"no exercise '90.7'. Choose one of: 00.1, .*, 90.1"):
        check("90.7", 1)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no alarms on Windows")
def test_infinite_loop_is_stopped_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AGAIN_S", 0.1)
    for attempt in (_loop_for_ever, _catch_all_errors):
        verdict = check("90.1", attempt)
        assert verdict.status == "wrong"
        assert f"of {attempt.__name__}" in verdict.message
        assert "TimeoutError: it took longer than 0.2 s" in verdict.message
        assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no alarms on Windows")
def test_probe_that_expects_an_error_is_stopped_too() -> None:
    @exercise("90.4", title="Raise an error", seconds=0.2)
    def raises(attempt: Any) -> Verdict:
        try:
            attempt()
        except Exception:
            return right("It raises an error.")
        return wrong("It raises no error.", "Raise one.")

    assert check("90.4", lambda: 1 / 0).status == "right"
    assert "it took longer than 0.2 s" in check("90.4", lambda: _loop_for_ever(1)).message


def test_interrupt_is_not_a_verdict() -> None:
    def interrupted(x: int) -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check("90.1", interrupted)


def test_verdict_has_text_html_and_json() -> None:
    bundle = check("90.1", lambda x: x)._repr_mimebundle_()
    assert bundle["text/plain"] == (
        "Not right yet: exercise 90.1, Double a number\nYou gave the number back.\nMultiply by two."
    )
    assert "<b>Not right yet" in str(bundle["text/html"])
    assert json.loads(json.dumps(bundle[VERDICT_MIME]))["status"] == "wrong"
