"""The rescue of a training: fixed scripts pass, and each fault or other training is refused."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from course_utils.errors import CourseError
from course_utils.exercises.nb13 import ex1_rescue_the_run as judge
from course_utils.stories.capstone import (
    Job,
    Result,
    all_faults,
    best,
    hand_out,
    load,
    results,
    script_with,
    seed_of,
)
from course_utils.stories.capstone.job import read_only
from course_utils.teaching.exercise import Verdict, check
from course_utils.teaching.notebook import data_path
from tests.exercises.solutions import assert_refused

FAULTS = {fault.name: fault for fault in all_faults()}
QUICK = {"no workers", "each worker serves all"}
Grade = Callable[[str], Result]
full = pytest.mark.full
# Clocks count the CPU time of all threads of a process, and other tests leave threads behind.
pytestmark = pytest.mark.first


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
def verdict_of(tmp_path: Path) -> Callable[[str], Verdict]:
    def judge_text(text: str) -> Verdict:
        script = tmp_path / "rescue_0.py"
        script.write_text(text, "utf-8")
        return check("13.1", script)

    return judge_text


@pytest.fixture
def fixed(grade: Grade, retry: Any) -> Result:
    """Grade the fixed script. On a very busy machine, even computing takes longer."""
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
def test_fixed_script_feeds_the_gpu_with_each_event_once(
    verdict_of: Callable[[str], Verdict], retry: Any
) -> None:
    before = len(results())
    verdict = retry(lambda: verdict_of(script_with([])), lambda it: it.status == "right")
    assert verdict.status == "right", verdict
    result = results()[-1]
    assert len(results()) > before
    assert result == best(0)
    assert result.points == 100
    assert (result.samples, result.distinct, result.lost) == (2385, 2385, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else full) for name in FAULTS]
)
def test_a_fault_alone_costs_five_points_of_au_or_is_refused(
    name: str, grade: Grade, fixed: Result
) -> None:
    faulty = grade(script_with([FAULTS[name]]))
    assert fixed.rescued
    if FAULTS[name].costs == "nothing":
        assert faulty.rescued
        assert faulty.points == fixed.points
        return
    if FAULTS[name].costs == "au":
        assert fixed.au - faulty.au >= 0.05
    else:
        assert faulty.refused
    assert faulty.points < fixed.points


@full
@pytest.mark.parametrize("seed", range(6))
def test_a_script_as_handed_out_starves_the_gpu(seed: int, tmp_path: Path) -> None:
    script = hand_out(seed, tmp_path)
    result, _ = judge.grade(script, load(script).train)
    assert result.au < 0.15
    assert (result.seed, result.rescued) == (seed, False)


def test_a_script_that_nobody_touched_is_not_attempted(tmp_path: Path) -> None:
    verdict = check("13.1", hand_out(4, tmp_path))
    assert verdict.status == "todo"
    assert "as your colleague wrote it" in verdict.message


def test_seed_is_in_the_first_line_and_not_in_the_name(tmp_path: Path) -> None:
    script = hand_out(7, tmp_path).rename(tmp_path / "rescue_3.py")
    assert seed_of(script) == 7
    script.write_text("# mine\n", "utf-8")
    with pytest.raises(CourseError, match=r"The first line of rescue_3\.py is missing"):
        seed_of(script)


def test_job_of_a_script_is_read_only() -> None:
    job = Job(data_path("events", "S"), ["masked"])
    script = read_only(job)
    script.training.clear()
    assert script.training == job.training != []
    with pytest.raises(CourseError, match=r"The script changes job\.storage"):
        script.storage = None
    with pytest.raises(AttributeError, match=r"no access to job\.losses"):
        _ = script.losses


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
NOTED = "        job.note(task, losses, seen)\n"
SEEN = "seen = [job.compute(evaluate, model, task, job.upload(batch)) for batch in held_out]"
EPOCH = "        losses = []\n"
SCHEDULE = 'optimiser.param_groups[0]["lr"] = RATE * (1 - part)'
NEW_MODEL = """\
        model = PulseTransformer(read_sensors(job.folder, job.storage)).to(job.device)
        optimiser = torch.optim.AdamW(model.parameters(), RATE * (1 - part))
"""
NEW_OPTIMISER = "        optimiser = torch.optim.AdamW(model.parameters(), RATE * (1 - part))\n"
SMALL = "PulseTransformer(read_sensors(job.folder, job.storage), width=32)"
PEEK = """def peek(model, optimiser, task, batch):
    return evaluate(model, task, batch)


"""
LOOK_LATER = STEP.replace(
    "learn, model, optimiser",
    "*([learn, model, optimiser] if len(losses) < 2 else [evaluate, model])",
)
EVENTS = 'self.events = job.events("npy")\n'
PAST = "        from course_utils.loading.events import MemmapEvents\n"
CACHE = """
    def cached(self, chunk: Sequence[int]) -> list[Sample]:
        known = [index for index in chunk if index % 8 == 0]
        if not all(index in self.kept for index in known):
            self.kept.update(zip(chunk, self.events.__getitems__(chunk), strict=True))
            return [self.kept[i] if i % 8 == 0 else self.kept.pop(i) for i in chunk]
        others = [index for index in chunk if index % 8]
        found = dict(zip(others, self.events.__getitems__(others), strict=True))
        return [found[i] if i in found else self.kept[i] for i in chunk]

    def __iter__("""
CACHED = (
    change(READ, READ.replace("self.events.__getitems__", "self.cached"))
    .replace("    def __iter__(", CACHE[1:])
    .replace(
        "        self.epoch = SharedEpoch()\n",
        "        self.epoch = SharedEpoch()\n        self.kept = {}\n",
    )
)
LOSS = "loss = model.loss(task, batch)\n    loss.backward"
AMP = f"with torch.autocast('cpu', torch.bfloat16):\n        {LOSS}"
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
        CACHED,
        change(LOSS, AMP),
        change(NOTED, "        job.note(task, [torch.tensor(loss) for loss in losses], seen)\n"),
        change("    torch.manual_seed(SEED)\n", "    torch.manual_seed(7)\n"),
    ],
    ids=[
        *("map-style", "four workers", "larger chunks", "further ahead", "one worker", "means"),
        *("cache of an eighth", "bfloat16", "losses as tensors", "another start"),
    ],
)
@pytest.mark.filterwarnings("ignore:This DataLoader will create .* worker processes")
def test_other_ways_to_mend_it_pass(text: str, verdict_of: Callable[[str], Verdict]) -> None:
    verdict = verdict_of(text)
    assert verdict.status == "right", verdict


ANOTHER_TRAINING = {  # words of the verdict; the first two need no training
    change("def train(", "def run("): "with a function `train`",
    change("# rescue_0.py", "# mine.py"): "The first line of rescue_0.py is missing",
    # the ledger of an epoch
    change("BATCH = 16", "BATCH = 32"): "the size of most batches is 32, but must be 16",
    change("BATCH = 16", "BATCH = 8"): "the size of most batches is 8, but must be 16",
    change(FOLLOWED, FOLLOWED.replace("job.follow(loader)", "loader")): (
        "the number of batches from job.follow is 0"
    ),
    change(FOLLOWED, FOLLOWED.replace("loader", "list(loader)")): "Pass the DataLoader itself",
    change(
        FOLLOWED, f"{FOLLOWED}            if len(losses) % 2:\n                continue\n"
    ): "the number of steps is",
    change("for epoch, task in enumerate(job.plan):", "for epoch, task in [(0, 'masked')]:"): (
        "the number of epochs is 1, but must be 3"
    ),
    change("enumerate(job.plan)", "enumerate(job.plan * 2)"): "the number of epochs is 6",
    change(FOLLOWED, f"{FOLLOWED}{ONLY_LOOKED_AT}"): "the number of optimiser steps in a sample",
    change("compute(learn, model, optimiser, task", "compute(evaluate, model, task"): (
        "the number of optimiser steps in a sample of the steps is 0"
    ),
    change(STEP, LOOK_LATER): "the number of optimiser steps in a sample of the steps is 2",
    change("    optimiser.step()\n", "    optimiser.step()\n    optimiser.step()\n"): (
        "the number of optimiser steps in a sample"
    ),
    change(NOTED, ""): "the task in job.note is '', but must be 'masked'",
    change(NOTED, "        job.note(task, losses[:1], seen)\n"): (
        "the number of losses of its steps in job.note is 1"
    ),
    change(NOTED, "        job.note(task, [0.5] * len(losses), seen)\n"): (
        "the number of losses of its steps in job.note is 0"
    ),
    change(NOTED, "        job.note('masked', losses, seen)\n"): "the task in job.note is 'masked'",
    change(SEEN, "seen = []"): "the number of events in the evaluation is 0, but must be 17",
    change(SEEN, SEEN.replace("batch in held_out", "batch, _ in zip(held_out, range(1))")): (
        "the number of events in the evaluation is 16, but must be 17"
    ),
    change(SEEN, "seen = losses[-4:]"): "the number of events in the evaluation is 0",
    change(NOTED, "        job.note(task, losses, losses[-1:])\n"): (
        "the number of losses of its evaluation in job.note is 0"
    ),
    # the events of the steps
    change(FOLLOWED, f"{FOLLOWED}            batch = first = first or batch\n").replace(
        "        losses = []", "        losses, first = [], None"
    ): "never reach a step",
    change("job.training)", "[*job.training, *job.training[:5]])"): "5 reach several",
    change("job.training)", "job.training + job.held_out)"): "17 of the others are not events",
    change("job.training)", "job.training[:400])"): "395 of 795 events never reach a step",
    change(SEEN, SEEN.replace("evaluate, model", "learn, model, optimiser")): (
        "the number of steps is"
    ),
    # the storage
    change(READ, READ.replace("self.events", "self.events.events")): "were read from the storage",
    change(EVENTS, EVENTS + PAST + "        self.events.events = MemmapEvents(job.folder)\n"): (
        "were read from the storage"
    ),
    change(EVENTS, f"job.storage = None\n        {EVENTS}"): "The script changes job.storage",
    change(
        FOLLOWED, f"{FOLLOWED}            job.clock.waited -= 10**7\n"
    ): "no access to job.clock",
    change(FOLLOWED, f"{FOLLOWED}            job.storage.clock.waited -= 10**7\n"): (
        "sets the clock of the job back"
    ),
    change(EPOCH, f"{EPOCH}        job.gpu.step_ms = 500\n"): "no access to job.gpu",
    # the order
    change("for sample in stream.shuffled(samples, rng):", "for sample in samples:"): (
        "neighbours on disk"
    ),
    change("stream.shuffled(self.chunks, rng)", "self.chunks"): "from one end to the other",
    change("TOGETHER = 4", "TOGETHER = 1"): "neighbours on disk",
    change("CHUNK = 16", "CHUNK = 64").replace("TOGETHER = 4", "TOGETHER = 1"): (
        "neighbours on disk"
    ),
    change("self.epoch.value)", "self.epoch.value % 2)"): "epochs 0 and 2 have the same order",
    change("self.epoch.value)", "self.epoch.value // 2)"): "epochs 0 and 1 have the same order",
    change(DEALT, THE_SAME_BATCHES): "the same batches",
    change(DEALT, FIXED_BATCHES): "the same batches",
    # the tokens
    change("LONGEST = 64", "LONGEST = 32"): "The model sees something else than before",
    change("return np.asarray((~far & ~late).sum(1) - 1)", "return np.zeros(len(time))"): (
        "The model sees something else"
    ),
    change(YIELDED, DIRECTION_OF_THE_LAST): "['direction']",
    change(YIELDED, FEWER_LATER): "The model sees something else",
    change(FOLLOWED, f'{FOLLOWED}            batch["features"] /= 2\n'): "['features']",
    # the memory
    change(FOLLOWED, f'{FOLLOWED}            history.append(batch["features"])\n').replace(
        *KEEP
    ): "are in memory at a time",
    change("WORKERS = 2", "WORKERS = 0").replace(
        "    for epoch, task", "    cached = list(loader)\n    for epoch, task"
    ): "are in memory at a time",
    change(YIELDED, KEPT_TOKENS).replace(SHARED, SHARED + "        self.done = {}\n"): (
        "are in memory at a time"
    ),
    change(FOLLOWED, f'{FOLLOWED}            history.append(batch["sensor"].numpy())\n').replace(
        *KEEP
    ): "are in memory at a time",
    # the steps
    change(
        SCHEDULE, 'optimiser.param_groups[0]["lr"] = 0.0'
    ): "has lr=0.0 in the optimiser instead of lr=0.002",
    change(
        SCHEDULE, 'optimiser.param_groups[0]["lr"] = 1000 * RATE'
    ): "has lr=2.0 in the optimiser",
    change(SCHEDULE, "pass"): "has lr=0.002 in the optimiser instead of lr=0.001",
    change(EPOCH, NEW_MODEL + EPOCH): "begins with other weights",
    change(EPOCH, NEW_OPTIMISER + EPOCH): "changes the weights in another way",
    change("torch.optim.AdamW(", "torch.optim.SGD("): "has betas=None in the optimiser",
    change("model.parameters(), RATE)", "model.parameters(), RATE, weight_decay=0)"): (
        "has weight_decay=0 in the optimiser"
    ),
    change("PulseTransformer(read_sensors(job.folder, job.storage))", SMALL): (
        "trains another model"
    ),
    change(
        STEP, STEP.replace("learn, model", "learn if len(losses) != 11 else peek, model")
    ).replace("def evaluate(", f"{PEEK}def evaluate("): "optimiser steps in a sample",
    change("    loss.backward()\n", "    (0 * loss).backward()\n"): "in another way",
    change("    optimiser.zero_grad()\n", ""): "changes the weights in another way",
    change(STEP, STEP.replace(" task,", ' "masked",')): "in epoch 1, step 0 returns the loss",
    change(WHOLE, EVERY_OTHER)
    .replace(
        'task: str, batch: Any) -> torch.Tensor:\n    """Take one',
        'task: str, number: int, batch: Any) -> torch.Tensor:\n    """Take one',
    )
    .replace(STEP, STEP.replace(" task,", " task, len(losses),")): "optimiser steps in a sample",
    change(
        "    with torch.no_grad():\n        return model.loss", "    return 0.5 + 0 * model.loss"
    ): ("for held-out events instead of"),
    # the time
    change(
        "    torch.manual_seed(SEED)\n", "    torch.manual_seed(SEED)\n    time.sleep(4)\n"
    ).replace(
        "import numpy as np", "import time\n\nimport numpy as np"
    ): "The first step comes after",
    change("WORKERS = 2", "WORKERS = 0"): "The main process loads the batches itself",
    change(FOLLOWED, f"{FOLLOWED}            time.sleep(0.2)\n").replace(
        "import numpy as np", "import time\n\nimport numpy as np"
    ): "The main process blocks the GPU",
    change(FOLLOWED, f"{FOLLOWED}            subprocess.run(['sleep', '0.1'])\n").replace(
        "import numpy as np", "import subprocess\n\nimport numpy as np"
    ): "The main process blocks the GPU",
    change(YIELDED, f"                time.sleep(0.02)\n{YIELDED}").replace(
        "import numpy as np", "import time\n\nimport numpy as np"
    ): "The GPU waits for the workers",
    change(
        "worker_init_fn=worker_init,",
        "worker_init_fn=worker_init, collate_fn=lambda some: np.stack(some),",
    ): "one of your functions cannot be pickled",
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
