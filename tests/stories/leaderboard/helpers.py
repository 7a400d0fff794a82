"""A valid result, and the fields of its post."""

from typing import Any

from course_utils.stories.leaderboard import Result

GOOD = Result(
    seed=0,
    points=85,
    refused="",
    au=0.91,
    start_up_s=0.4,
    held=100,
    events=2000,
    samples=4000,
    distinct=4000,
    lost=0,
    when="2026-11-22T18:40:00",
)


def post_fields(name: Any = "Marie", **changed: Any) -> dict[str, Any]:
    return {**GOOD.to_json(), "name": name, **changed}
