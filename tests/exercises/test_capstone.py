"""The rescue of a training: fixed scripts pass, and each fault or other training is refused."""

import os
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from course_utils.errors import CourseError
from course_utils.exercises.nb13 import ex1_rescue_the_run as judge
from course_utils.exercises.nb13.learning_run import LearningRun
from course_utils.stories.capstone import (
    all_faults,
    best,
    hand_out,
    load,
    results,
    script_with,
    seed_of,
)
from course_utils.teaching.exercise import check
from course_utils.teaching.notebook import data_path
from tests.exercises.solutions import assert_refused

FAULTS = {fault.name: fault for fault in all_faults()}
RIGHT = script_with([])


@pytest.fixture(scope="module", autouse=True)
def _scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Separate scripts, their modules and results from those of the course."""
    folder = tmp_path_factory.mktemp("capstone")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path])  # a loaded script adds its folder to both
        patch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        for module in ("script", "result"):
            patch.setattr(f"course_utils.stories.capstone.{module}.scratch_folder", lambda: folder)
        yield


@pytest.fixture
def train_of(tmp_path: Path) -> Callable[[str], Any]:
    def load_text(text: str) -> Any:
        script = tmp_path / "rescue_0.py"
        script.write_text(text, "utf-8")
        return load(script).train

    return load_text


@pytest.fixture
def _quick_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the GPU take no time, where only the events count."""
    monkeypatch.setattr("course_utils.stories.capstone.job.STEP_MS", 0.1)


def change(*changes: str, of: str = RIGHT) -> str:
    """Return the fixed script after pairs of old and new text."""
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        assert of.count(old) == 1, old
        of = of.replace(old, new)
    return of


FOLLOWED = "        for batch in job.follow(loader):\n"
STEP = "losses.append(job.compute(learn, model, optimizer, task, job.upload(batch)))"
SEEN = "seen = [job.compute(evaluate, model, task, job.upload(batch)) for batch in held_out]"
NOTED = "        job.note(task, losses, seen)\n"
EPOCH = "        losses = []\n"
EVENTS = 'self.events = job.events("npy")\n'
SCHEDULE = 'optimizer.param_groups[0]["lr"] = RATE * (1 - part)'
LOSS = "loss = model.loss(task, batch)\n    loss.backward"
AMP = f"with torch.autocast('cpu', torch.bfloat16):\n        {LOSS}"
NEW_OPTIMIZER = "        optimizer = torch.optim.AdamW(model.parameters(), RATE * (1 - part))\n"
DEALT = """
        mine = stream.split(stream.shuffled(self.chunks, rng), stream.WorkerSlot.here())
        for chunks in stream.batched(mine, TOGETHER):
"""
SAME_BATCHES = """
        order = stream.shuffled(self.chunks, stream.epoch_rng(SEED, 0))
        groups = stream.shuffled([*stream.batched(order, TOGETHER)], rng)
        for chunks in stream.split(groups, stream.WorkerSlot.here()):
            rng = stream.epoch_rng(SEED, chunks[0][0])
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
        return [tokenize(sample, self.sensors) for sample in samples]


class Blocks(stream.BlockSampler):
    def __iter__(self):
        self.set_epoch(self.epoch.value + 1)
        return super().__iter__()


def make_loader(data):
    sampler = Blocks(len(data), 16, together=4)
    return DataLoader(data, BATCH, sampler=sampler, num_workers=3, persistent_workers=True)


def learn("""


def keeping(what: str) -> str:
    """Return a script that keeps something of every batch."""
    keep = "    for epoch, task", "    history = []\n    for epoch, task"
    return change(FOLLOWED, f"{FOLLOWED}            history.append({what})\n", *keep)


OTHER_REPAIRS = {
    "map-style": change(
        "def learn(", MAP_STYLE, "= TokenStream(job, job.t", "= Tokens2(job, job.t"
    ),
    "four workers": change("WORKERS = 2", "WORKERS = 4"),
    "further ahead": change(
        "worker_init_fn=worker_init,", "worker_init_fn=worker_init, prefetch_factor=4,"
    ),
    "means": keeping('batch["features"][..., 1].mean(1)'),
    "histogram": keeping('np.bincount(batch["sensor"].ravel().clip(0, 20))'),
    "bfloat16": change(LOSS, AMP),
    "losses as tensors": change(
        "task, losses, seen", "task, [torch.tensor(loss) for loss in losses], seen"
    ),
    "zeroed later": change(
        "    optimizer.zero_grad()\n", "", "    optimizer.step()\n",
        "    optimizer.step()\n    optimizer.zero_grad()\n",
    ),
}  # fmt: skip

OTHER_LEARNING = {
    change("enumerate(job.plan)", "[(0, 'masked')]"): "number of epochs in job.note is 1",
    change(FOLLOWED, f"{FOLLOWED}            if len(losses) == 2:\n                continue\n"): (
        "number of events in its steps is"
    ),
    change(FOLLOWED, f"{FOLLOWED}            batch = first = first or batch\n",
           EPOCH, "        losses, first = [], None\n"): "number of events in its steps",
    change("compute(learn, model, optimizer, task", "compute(evaluate, model, task"): (
        "number of events in its steps is 0"
    ),
    change("    optimizer.step()\n", ""): "does not change all weights",
    change("    optimizer.zero_grad()\n", ""): "changes the weights in another way",
    change(LOSS, LOSS.replace("model", "2 * model")): "returns the loss",
    change(STEP, STEP.replace(" task,", ' "masked",')): "in epoch 1, step 0 returns the loss",
    change(SCHEDULE, "pass"): "has lr=0.002 in the optimizer instead of lr=0.001",
    change("torch.optim.AdamW(", "torch.optim.SGD("): "has betas=None in the optimizer",
    change("model.parameters(), RATE)", "model.encoder.parameters(), RATE)"): "only a part of it",
    change(EPOCH, NEW_OPTIMIZER + EPOCH): "uses a new optimizer",
    change("    return model.loss", "    return 0.5 + 0 * model.loss"): "the evaluation returns",
    change(NOTED, NOTED.replace("losses", "losses[:1]")): "number of losses of its steps",
    change(NOTED, NOTED.replace("seen", "seen[-1:]")): "number of losses of its evaluation",
    change(SEEN, "seen = []"): "number of events in the evaluation is 0, but must be 17",
    change("LONGEST = 64", "LONGEST = 32"): "sees another 'features'",
    change("self.epoch.value)", "self.epoch.value % 2)"): "epochs 0 and 2 have the same order",
}  # fmt: skip

OTHER_LOADING = {
    change("BATCH = 16", "BATCH = 32"): "Most batches of job.follow have 32 events",
    change("job.follow(loader)", "loader"): "Most batches of job.follow have 0 events",
    change("job.training)", "[*job.training, *job.training[:5]])"): "5 come several times",
    change("job.training)", "job.training[:400])"): "395 of 795 events are never served",
    change("job.training)", "[*range(5), *job.training])"): "5 others are not events to learn from",
    change("for sample in stream.shuffled(samples, rng):", "for sample in samples:"): (
        "neighbors on disk"
    ),
    change("stream.shuffled(self.chunks, rng)", "self.chunks"): "from one end to the other",
    change(DEALT, SAME_BATCHES): "have the same order or the same batches",
    change(EVENTS, EVENTS + "        self.events = self.events.events\n"): "are in memory",
    change("job.follow(loader)", "job.follow(list(loader))"): "are in memory",
    keeping('batch["sensor"].numpy()'): "are in memory",
    keeping("{name: part.clone() for name, part in batch.items()}"): "are in memory",
}  # fmt: skip


def differences(train_of: Callable[[str], Any], cases: dict[str, str]) -> list[tuple[str, str]]:
    """Return the cases whose problem lacks the expected words, and the problem."""
    found = []
    for text, words in cases.items():
        job = LearningRun(data_path("events", "S"))
        with judge.one_thread():
            job.run(train_of(text))
        problem, _ = next(judge.another_training(job), ("", ""))
        if words not in problem or bool(words) != bool(problem):
            found.append((words, problem))
    return found


@pytest.mark.slow
def test_other_training_is_refused_and_the_same_accepted(train_of: Callable[[str], Any]) -> None:
    assert not differences(train_of, {**dict([*OTHER_LEARNING.items()][::5]), RIGHT: ""})


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:This DataLoader will create .* worker processes")
def test_each_other_training_is_refused(train_of: Callable[[str], Any]) -> None:
    assert not differences(train_of, OTHER_LEARNING | dict.fromkeys(OTHER_REPAIRS.values(), ""))


def problems_of(train: Any) -> str:
    job = judge.loading_run(train)
    objections = chain(judge.other_events(job), judge.not_mixed(job), judge.over_the_limits(job))
    return next(objections, ("", ""))[0]


@pytest.mark.full
@pytest.mark.usefixtures("_quick_gpu")
@pytest.mark.filterwarnings("ignore:This DataLoader will create .* worker processes")
def test_other_events_or_orders_are_refused(train_of: Callable[[str], Any]) -> None:
    for text, words in (OTHER_LOADING | dict.fromkeys(OTHER_REPAIRS.values(), "")).items():
        problem = problems_of(train_of(text))
        assert words in problem, (problem, text)
        assert bool(words) == bool(problem), (problem, text)


@pytest.mark.full
@pytest.mark.usefixtures("_quick_gpu")
def test_each_fault_that_costs_no_au_is_found(train_of: Callable[[str], Any]) -> None:
    for name, fault in FAULTS.items():
        if fault.costs != "au":
            problem = problems_of(train_of(script_with([fault])))
            assert bool(problem) == (fault.costs != "nothing"), (name, problem)


@pytest.mark.slow
@pytest.mark.usefixtures("_quick_gpu")
def test_duplicates_and_kept_batches_are_found(train_of: Callable[[str], Any]) -> None:
    faults = [FAULTS["each worker serves all"], FAULTS["all batches are kept"]]
    assert "795 come several times" in problems_of(train_of(script_with(faults[:1])))
    assert "Up to 795 events are in memory" in problems_of(train_of(script_with(faults[1:])))


@pytest.mark.full
def test_each_fault_that_costs_au_costs_five_points(
    train_of: Callable[[str], Any], retry: Any
) -> None:
    def costs(name: str) -> float:
        fixed = judge.loading_run(judge.fixed.train).au
        return fixed - judge.loading_run(train_of(script_with([FAULTS[name]]))).au

    for name in (name for name, fault in FAULTS.items() if fault.costs == "au"):
        assert retry(lambda name=name: costs(name), lambda points: points >= 0.05) >= 0.05, name


@pytest.mark.full
def test_repaired_script_is_right_and_stored(tmp_path: Path) -> None:
    script = tmp_path / "rescue_0.py"
    script.write_text(RIGHT, "utf-8")
    verdict = check("13.1", script)
    assert verdict.status == "right", verdict
    result = results()[-1]
    assert result == best(0)
    assert (result.points, result.samples, result.distinct, result.lost) == (100, 1590, 1590, 0)
    script.write_text(script_with([FAULTS["no workers"]]), "utf-8")
    assert_refused(check("13.1", script), "The main process loads the batches itself")


@pytest.mark.full
@pytest.mark.parametrize("seed", range(6))
def test_a_script_as_handed_out_starves_the_gpu(seed: int, tmp_path: Path) -> None:
    job = judge.loading_run(load(hand_out(seed, tmp_path)).train)
    assert job.late
    assert job.au < 0.2


def test_seed_is_in_the_first_line_and_not_in_the_name(tmp_path: Path) -> None:
    script = hand_out(7, tmp_path).rename(tmp_path / "rescue_3.py")
    assert seed_of(script) == 7
    verdict = check("13.1", script)
    assert verdict.status == "todo"
    assert "as your colleague wrote it" in verdict.message
    script.write_text("# mine\n", "utf-8")
    with pytest.raises(CourseError, match=r"The first line of rescue_3\.py is missing"):
        seed_of(script)


def test_something_else_than_a_script_is_refused(tmp_path: Path) -> None:
    for answer in ("nowhere.py", 13, b"rescue_0.py"):
        assert_refused(check("13.1", answer), "There is no script")
    script = tmp_path / "rescue_0.py"
    for text, words in {
        change("def train(", "def run("): "with a function `train`",
        change("# rescue_0.py", "# mine.py"): "The first line of rescue_0.py is missing",
        change("    data = TokenStream(", "    data = TokenStreams("): (
            "in rescue_0.py, `data = TokenStreams("  # not in its copy
        ),
        change("def train(job: Job)", "def train(job: Job"): "of rescue_0.py is not valid Python",
        change("learn, model, optimizer, task, job", "learn, job"): "Call it as your colleague did",
    }.items():
        script.write_text(text, "utf-8")
        assert_refused(check("13.1", script), words)
