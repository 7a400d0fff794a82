"""05.3: a prefetcher in a thread, judged by counts and events, never by speed."""

from course_utils.teaching.exercise import Verdict, exercise, right
from notebooks.stories.prefetchers import Broken, Clause, DiskError, Make, Trial, hangs, judge_all

ITEMS = (0, None, "", False, 4, (), 6, 7)  # whatever may lie in a batch, nothing is special


def _runs_ahead(depth: int) -> Clause:
    asked = f"asked to load {depth} ahead"
    return Clause(
        Trial(lambda: None, gpus=0, depth=depth, ahead=depth, leave_after=1),
        Broken(
            lambda seen: seen.hung and not seen.leaving,
            "The first item never arrives: the whole source is read before, and it may be endless.",
            "Hand over an item as soon as there is one.",
        ),
        Broken(
            lambda seen: seen.ahead < depth,
            "While the loop is busy with an item, the thread has {seen.ahead} ready or in "
            f"hand; {asked}. The two take turns instead of working at the same time.",
            "Start the thread once, let it run on, and wait only for the next item.",
        ),
        Broken(
            lambda seen: seen.ahead > depth + 1,
            "While the loop is busy with an item, {seen.ahead} more are taken from the "
            f"source; {asked}, {depth + 1} are the most. An unlimited queue fills the memory.",
            "Queue(maxsize=depth) makes the thread wait when it is far enough ahead.",
        ),
    )


CLAUSES = (
    Clause(
        Trial(lambda: ITEMS, pinned=False, gpus=0, depth=2),
        hangs(
            "The loop never ends: the thread is through, and the consumer still waits for more.",
            "Put an object of your own behind the last item, and stop when it arrives.",
        ),
        Broken(
            lambda seen: seen.count < seen.wanted,
            "{seen.wanted} items go in, {seen.count} come out. None, 0 and an empty list are items "
            "like others; they do not mean the end.",
            "Mark the end with an object of your own, end = object(), and compare with `is`.",
        ),
        Broken(
            lambda seen: seen.count > seen.wanted,
            "{seen.wanted} items go in, {seen.count} come out: {seen.found}.",
            "Hand over what the source gives, and nothing else; the mark of the end is not an "
            "item.",
        ),
        Broken(
            lambda seen: any(a is not b for a, b in zip(seen.found, ITEMS, strict=True)),
            f"The items come out changed or in another order: {{seen.found}} for {list(ITEMS)}.",
            "One thread and one queue.Queue keep the order; hand over the items themselves.",
        ),
    ),
    _runs_ahead(1),
    _runs_ahead(3),
    Clause(
        Trial(lambda: ITEMS, pinned=False, gpus=0, depth=2, epochs=3),
        hangs(
            "The second epoch waits for ever. The thread was started once, in __init__, and is "
            "gone.",
            "Start a thread, with a queue of its own, in every __iter__.",
        ),
        Broken(
            lambda seen: seen.counts != [seen.wanted] * 3,
            "Three epochs serve {seen.counts} items; each has {seen.wanted}. Something of the "
            "first is used up, or left in the queue.",
            "Make the queue and the thread, and begin the source anew, in every __iter__.",
        ),
    ),
    Clause(
        Trial(lambda: ITEMS, pinned=False, gpus=0, depth=1, fails_at=3, slow=True),
        hangs(
            "The source raises, and the loop waits for ever. An exception ends the thread it is "
            "raised in, and nobody tells the consumer.",
            "Catch it in the thread, send it through the queue, and raise it in the consumer.",
        ),
        Broken(
            lambda seen: seen.error is None,
            "The source raises after 3 items, and the loop ends after {seen.count} as if all were "
            "well. A broken file becomes a short epoch.",
            "Send the exception through the queue, and raise it in the consumer.",
        ),
        Broken(
            lambda seen: not isinstance(seen.error, DiskError),
            "The source raises a DiskError, the loop gets {seen.said}.",
            "Raise the very exception that the thread caught.",
        ),
        Broken(
            lambda seen: seen.count != 3,
            "The source gives 3 items and raises then, and a slow loop gets {seen.count} of them: "
            "the exception overtakes items that wait in the queue.",
            "Send the exception through the same queue, behind the items, and look nowhere else.",
        ),
    ),
    Clause(
        Trial(lambda: None, gpus=0, depth=2, ahead=2, leave_after=3),
        hangs(
            "The loop does not get out of its break: it waits for a thread that waits for room in "
            "the queue.",
            "Tell the thread to stop, and let it look while it waits: put(item, timeout=0.1).",
        ),
        Broken(
            lambda seen: seen.threads,
            "Long after a break the thread is still there, {seen.busy}: an endless source, its "
            "files and its workers stay too.",
            "In __iter__, put the loop into try ... finally, set a threading.Event there, and let "
            "the thread look at it: put(item, timeout=0.1) in a loop.",
        ),
        Broken(
            lambda seen: seen.is_open,
            "After a break the thread is gone, but the source is still open: somebody holds its "
            "iterator.",
            "Keep iter(source) in the thread's function alone, or close it there.",
        ),
    ),
)


@exercise("05.3", title="Prefetch in a thread", seconds=180)
def prefetch_in_a_thread(prefetcher_class: Make) -> Verdict:
    """Judge a prefetcher: order, how far ahead, two epochs, an exception, and leaving early."""
    judge_all(prefetcher_class, CLAUSES)
    return right(
        "Everything arrives in order and ahead of time, twice if asked twice; an exception reaches "
        "the loop, and a break leaves no thread behind."
    )
