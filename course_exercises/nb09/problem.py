"""What exercises 09.1 and 09.3 are about: defects of a prefetcher, and loops that may pin."""

from dataclasses import dataclass

from course_utils.hardware.gpu import PRESETS

# Each cause, and how it shows.
CAUSES = {
    "batch = a pair": "`inputs, targets = batch` works for pairs only, and raises for all else",
    "default stream": "In one queue a copy and a step run one after the other",
    "device of the thread": "The current GPU belongs to a thread, and in a new one it is GPU 0",
    "endless put": "put() in a full queue waits until somebody takes something out, for ever if "
    "nobody does",
    "no event": "Where no stream waits, a step reads what has not been copied yet, whenever the "
    "loss is read",
    "no record_stream": "Memory is given away while another stream still reads: that needs a "
    "program that runs ahead of its steps",
    "pageable memory": "A batch that is copied from pageable memory holds the program up, with "
    "non_blocking=True too",
    "queue too long": "Each batch that waits in the queue takes memory of the device",
    "silent thread": "Where a thread dies of an error and tells nobody, whoever waits for it waits "
    "for ever",
    "thread in __init__": "A thread that starts once runs once, at once, for one epoch",
    "too few workers": "With too few workers the loop waits in next(loader), and nothing breaks",
}

SYMPTOMS = {
    "a": "The second epoch never begins.",
    "b": "A file is broken. The loop waits for ever.",
    "c": "Long after a `break`, the workers of the loader still run.",
    "d": "The profiler shows copies between the steps, never beside them.",
    "e": "On eight GPUs, the batches of all ranks are on GPU 0.",
    "f": "A batch is a dict of three tensors. The loop waits for ever.",
    "g": "Without the prefetcher a batch size fits. With it: OutOfMemoryError.",
    "h": "Somebody gave it a stream of its own. Now the loss is wrong in every epoch.",
    "i": "Now it waits for its copies. With loss.item() in each step all is right, without it not.",
    "j": "Now all is right. But upload(batch, non_blocking=True) takes as long as the copy.",
}

PRESET = PRESETS["RTX 3090"]
PAGEABLE_GB_S, PINNED_GB_S = PRESET.pageable_gb_s, PRESET.pinned_gb_s


@dataclass(frozen=True)
class Case:
    """A loop that prefetches one batch ahead, on a stream of its own, and reads each loss."""

    mb: float  # a batch
    step_ms: float  # the GPU computes
    load_ms: float  # the workers deliver a batch each `load_ms`
    pin: str  # "nowhere", "in the loop" or "in the loader", whose thread pins beside the loop


CASES = {
    "as it comes": Case(24, 3, 1, "nowhere"),
    "one more line": Case(24, 1.5, 1, "in the loop"),
    "pin_memory=True": Case(24, 3, 1, "in the loader"),
    "small batch": Case(0.5, 3, 1, "nowhere"),
    "slow workers": Case(24, 3, 9, "in the loader"),
    "short step": Case(24, 0.5, 0.5, "in the loader"),
}
