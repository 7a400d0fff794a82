"""The rescue of a training: what is mended passes, each fault alone is found, and so are others."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from course_exercises.nb13 import ex1_rescue_the_run as judge
from course_stories.capstone import (
    Result,
    all_faults,
    best,
    hand_out,
    load,
    results,
    script_with,
)
from course_utils.teaching.exercise import Verdict, check
from tests.exercises.solutions import assert_refused

FAULTS = {fault.name: fault for fault in all_faults()}
QUICK = {"no workers", "each worker serves all"}
Grade = Callable[[str], Result]
full = pytest.mark.full
# Clocks count what a process computes with all its threads, and other tests leave threads behind.
pytestmark = pytest.mark.first


@pytest.fixture(scope="module", autouse=True)
def _scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep scripts, their modules and results apart from those of the course."""
    folder = tmp_path_factory.mktemp("capstone")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path])  # a loaded script adds its folder to both
        patch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        for module in ("script", "result"):
            patch.setattr(f"course_stories.capstone.{module}.scratch_folder", lambda: folder)
        yield


@pytest.fixture
def verdict_of(tmp_path: Path) -> Callable[[str], Verdict]:
    def judge_text(text: str) -> Verdict:
        script = tmp_path / "rescue_0.py"
        script.write_text(text, "utf-8")
        return check("13.1", script)

    return judge_text


@pytest.fixture
def mended(grade: Grade, retry: Any) -> Result:
    """Grade the mended script; on a very busy machine even computing takes longer."""
    result: Result = retry(lambda: grade(script_with([])), lambda result: result.rescued)
    return result


@pytest.fixture
def grade(tmp_path: Path) -> Grade:
    def grade_text(text: str) -> Result:
        script = tmp_path / "rescue_0.py"
        script.write_text(text, "utf-8")
        return judge.grade(script, load(script).train)[0]

    return grade_text


@pytest.mark.slow
def test_the_mended_script_feeds_the_gpu_with_each_event_once(
    verdict_of: Callable[[str], Verdict], retry: Any
) -> None:
    before = len(results())
    verdict = retry(lambda: verdict_of(script_with([])), lambda it: it.status == "right")
    assert verdict.status == "right", verdict
    result = results()[-1]
    assert len(results()) > before
    assert result == best(0)
    assert result.points == 100
    assert (result.samples, result.distinct, result.lost) == (1590, 1590, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else full) for name in FAULTS]
)
def test_a_fault_alone_costs_five_points_of_au_or_is_refused(
    name: str, grade: Grade, mended: Result
) -> None:
    faulty = grade(script_with([FAULTS[name]]))
    assert mended.rescued
    if FAULTS[name].costs == "au":
        assert mended.au - faulty.au >= 0.05
    else:
        assert faulty.refused
    assert faulty.points < mended.points


@full
@pytest.mark.parametrize("seed", range(6))
def test_a_script_as_handed_out_starves_the_gpu(seed: int, tmp_path: Path) -> None:
    script = hand_out(seed, tmp_path)
    result, _, _ = judge.grade(script, load(script).train)
    assert result.au < 0.15
    assert (result.seed, result.rescued) == (seed, False)


def test_a_script_that_nobody_touched_is_not_attempted(tmp_path: Path) -> None:
    verdict = check("13.1", hand_out(4, tmp_path))
    assert verdict.status == "todo"
    assert "as your colleague left it" in verdict.message


@pytest.mark.parametrize("answer", ["nowhere.py", 13, b"rescue_0.py"])
def test_something_else_than_a_script_is_refused(answer: object) -> None:
    assert_refused(check("13.1", answer), "There is no script")


def change(old: str, new: str) -> str:
    text = script_with([])
    assert text.count(old) == 1
    return text.replace(old, new)


FOLLOWED = "        for batch in job.follow(loader):\n"
READ = "samples = [sample for chunk in chunks for sample in self.events.__getitems__(chunk)]"
YIELDED = "                yield tokenise(sample, self.sensors)\n"
DIRECTION_OF_THE_LAST = """
                tokens, first = tokenise(sample, self.sensors), samples[0]
                tokens["direction"], first["direction"] = first["direction"], tokens["direction"]
                yield tokens
"""
FEWER_LATER = """
                tokens = tokenise(sample, self.sensors)
                tokens["mask"] &= np.arange(LONGEST) < (16 if self.epoch.value else LONGEST)
                yield tokens
"""
ONLY_LOOKED_AT = """\
            if not losses:
                losses.append(job.compute(evaluate, model, task, job.upload(batch)))
                continue
"""
DEALT = """
        mine = stream.split(stream.shuffled(self.chunks, rng), stream.WorkerSlot.here())
        for chunks in stream.batched(mine, TOGETHER):
"""
THE_SAME_BATCHES = """
        order = stream.shuffled(self.chunks, stream.epoch_rng(SEED, 0))
        groups = stream.shuffled([*stream.batched(order, TOGETHER)], rng)
        for chunks in stream.split(groups, stream.WorkerSlot.here()):
            rng = stream.epoch_rng(SEED, chunks[0][0])
"""
SHARED = "        self.epoch = SharedEpoch()\n"
KEPT_TOKENS = """\
                tokens = tokenise(sample, self.sensors)
                yield self.done.setdefault(sample["event_id"], tokens)
"""
KEEP = "    for epoch, task", "    history = []\n    for epoch, task"
STEP = "losses.append(job.compute(learn, model, optimiser, task, job.upload(batch)))"
WHOLE = "    loss.backward()\n    optimiser.step()\n"
EVERY_OTHER = "    loss.backward()\n    if number % 2 == 0:\n        optimiser.step()\n"
FIXED_BATCHES = """
        order = stream.shuffled(self.chunks, stream.epoch_rng(SEED, 0))
        fixed = [
            [index for chunk in some for index in chunk[n::4]]
            for some in stream.batched(order, 4) for n in range(4)
        ]
        batches = [[one] for one in sorted(stream.shuffled(fixed, rng), key=len, reverse=True)]
        for chunks in stream.split(batches, stream.WorkerSlot.here()):
"""
MAP_STYLE = """
class Tokens2(torch.utils.data.Dataset):
    def __init__(self, job, wanted):
        self.events, self.wanted = job.events("npy"), list(wanted)
        self.sensors = read_sensors(job.folder, job.storage)
        self.epoch = SharedEpoch()

    def __len__(self):
        return len(self.wanted)

    def __getitems__(self, indices):
        samples = self.events.__getitems__([self.wanted[index] for index in indices])
        return [tokenise(sample, self.sensors) for sample in samples]


class Blocks(stream.BlockSampler):
    def __iter__(self):
        self.set_epoch(self.epoch.value + 1)
        return super().__iter__()


def make_loader(data):
    sampler = Blocks(len(data), 16, together=4)
    return DataLoader(data, BATCH, sampler=sampler, num_workers=3, persistent_workers=True)


def learn("""


@full
@pytest.mark.parametrize(
    "text",
    [
        change("def learn(", MAP_STYLE).replace("= TokenStream(job, job.t", "= Tokens2(job, job.t"),
        change("WORKERS = 2", "WORKERS = 4"),
        change("CHUNK = 16", "CHUNK = 32").replace("TOGETHER = 4", "TOGETHER = 2"),
        change("worker_init_fn=worker_init,", "worker_init_fn=worker_init, prefetch_factor=4,"),
        change("WORKERS = 2", "WORKERS = 1"),
        change(
            FOLLOWED, f'{FOLLOWED}            history.append(batch["features"][..., 1].mean(1))\n'
        ).replace(*KEEP),
    ],
    ids=["map-style", "four workers", "larger chunks", "further ahead", "one worker", "means"],
)
@pytest.mark.filterwarnings("ignore:This DataLoader will create .* worker processes")
def test_other_ways_to_mend_it_pass(text: str, verdict_of: Callable[[str], Verdict]) -> None:
    verdict = verdict_of(text)
    assert verdict.status == "right", verdict


ANOTHER_TRAINING = {  # what the verdict says of it; the first two take no training
    change("def train(", "def run("): "no function `train`",
    change("BATCH = 16", "BATCH = 32"): "that is another training",
    change("LONGEST = 64", "LONGEST = 32"): "are others than before",
    change(FOLLOWED, FOLLOWED.replace("job.follow(loader)", "loader")): "samples came in 0 of them",
    change(FOLLOWED, FOLLOWED.replace("loader", "list(loader)")): "Pass the DataLoader itself",
    change(
        FOLLOWED, f"{FOLLOWED}            if len(losses) % 2:\n                continue\n"
    ): "that is another training",
    change(READ, READ.replace("self.events", "self.events.events")): (
        "came from memory, or past the job"
    ),
    change(
        "for sample in stream.shuffled(samples, rng):", "for sample in samples:"
    ): "are not mixed",
    change("stream.shuffled(self.chunks, rng)", "self.chunks"): (
        "from one end to the other, so batches are not mixed"
    ),
    change(FOLLOWED, f'{FOLLOWED}            history.append(batch["features"])\n').replace(
        "    for epoch, task", "    history = []\n    for epoch, task"
    ): "are held at a time",
    change("for epoch, task in enumerate(job.plan):", "for epoch, task in [(0, 'masked')]:"): (
        "samples came in 1 of them"
    ),
    change("return np.asarray((~far & ~late).sum(1) - 1)", "return np.zeros(len(time))"): (
        "are others than before"
    ),
    change("WORKERS = 2", "WORKERS = 0").replace(
        "    for epoch, task", "    cached = list(loader)\n    for epoch, task"
    ): "are held at a time",
    change("TOGETHER = 4", "TOGETHER = 1"): "come beside their neighbours on disk",
    change(YIELDED, DIRECTION_OF_THE_LAST): "with the direction of another one",
    change(YIELDED, FEWER_LATER): "are others than before",
    change(FOLLOWED, f'{FOLLOWED}            batch["features"] /= 2\n'): "are others than before",
    change(FOLLOWED, f"{FOLLOWED}            batch = first = first or batch\n").replace(
        "        losses = []", "        losses, first = [], None"
    ): "and no step learns from it",
    change(FOLLOWED, f"{FOLLOWED}{ONLY_LOOKED_AT}"): "2 of 100 steps get no optimiser",
    change(DEALT, THE_SAME_BATCHES): "the same events share a batch each time",
    change("BATCH = 16", "BATCH = 8"): "of 8 events usually",
    change("job.training)", "[*job.training, *job.training[:5]])"): "and all others once",
    change("job.training)", "job.training + job.held_out)"): "none that the job wants learnt",
    change("enumerate(job.plan)", "enumerate(job.plan * 2)"): "samples came in 4 of them",
    change("compute(learn, model, optimiser, task", "compute(evaluate, model, task"): (
        "learns something else than before"
    ),
    change(YIELDED, KEPT_TOKENS).replace(SHARED, SHARED + "        self.done = {}\n"): (
        "are held at a time"
    ),
    change(FOLLOWED, f'{FOLLOWED}            history.append(batch["sensor"].numpy())\n').replace(
        "    for epoch, task", "    history = []\n    for epoch, task"
    ): "are held at a time",
    change("CHUNK = 16", "CHUNK = 64").replace("TOGETHER = 4", "TOGETHER = 1"): (
        "come beside their neighbours on disk"
    ),
    change(DEALT, FIXED_BATCHES): "the same batches in another one",
    change(
        "worker_init_fn=worker_init,",
        "worker_init_fn=worker_init, collate_fn=lambda some: np.stack(some),",
    ): "one of your functions cannot be pickled",
    change(STEP, STEP.replace(" task,", ' "masked",')): "In epoch 1 of the plan",
    change(WHOLE, EVERY_OTHER)
    .replace(
        'task: str, batch: Any) -> torch.Tensor:\n    """Take one',
        'task: str, number: int, batch: Any) -> torch.Tensor:\n    """Take one',
    )
    .replace(
        STEP, STEP.replace(" task,", " task, len(losses),")
    ): "learns something else than before",
    change("        job.note(task, losses, seen)\n", ""): "Nobody hears any more how it went",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "misconception"),
    [
        pytest.param(*case, marks=full if number >= 2 else ())
        for number, case in enumerate(ANOTHER_TRAINING.items())
    ],
)
def test_what_is_another_training_is_refused(
    text: str, misconception: str, verdict_of: Callable[[str], Verdict]
) -> None:
    assert_refused(verdict_of(text), misconception)


def test_no_fault_of_the_learners_code_ends_the_notebook(
    verdict_of: Callable[[str], Verdict],
) -> None:
    verdict = verdict_of(change("    data = TokenStream(", "    data = TokenStreams("))
    assert_refused(verdict, "Your code stopped")
    assert "in rescue_0.py, `data = TokenStreams(" in verdict.message  # not in its copy
    verdict = verdict_of(change("job.follow(loader)", "job.follow(iter(loader))"))
    assert_refused(verdict, "job.follow(iter(loader)):`: job.follow did not receive a DataLoader")
    assert_refused(
        verdict_of(change("def train(job: Job)", "def train(job: Job")),
        "of rescue_0.py is not valid Python",
    )
