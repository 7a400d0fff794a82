"""The material of exercise 09.1: defects of a prefetcher."""

# each cause, and how it shows
CAUSES = {
    "batch = a pair": "`inputs, targets = batch` works for pairs only, and raises an error for all "
    "other batches",
    "default stream": "In one queue, copies and steps run one after the other",
    "device of the thread": "Each thread has its own current GPU, and in a new thread it is GPU 0",
    "endless put": "put() on a full queue waits until somebody removes an item, which may be never",
    "no event": "If no stream waits, a step reads data that were not copied yet, no matter when "
    "the loss is read",
    "no record_stream": "Memory is reused while another stream still reads it. The program must "
    "run ahead of its steps for that",
    "pageable memory": "The copy of a batch in pageable memory blocks the program, even with "
    "non_blocking=True",
    "queue too long": "Each batch in the queue takes memory of the device",
    "silent thread": "If an error ends a thread without a message, others wait for it forever",
    "thread in __init__": "A thread that starts in __init__ runs once, at once, and for one epoch",
    "too few workers": "With too few workers the loop waits in next(loader), and nothing breaks",
}

SYMPTOMS = {
    "a": "The second epoch never begins.",
    "b": "A file is broken. The loop waits forever.",
    "c": "Long after a `break`, the workers of the loader still run.",
    "d": "The profiler shows copies between the steps, never at the same time.",
    "e": "On eight GPUs, the batches of all ranks are on GPU 0.",
    "f": "A batch is a dict of three tensors. The loop waits forever.",
    "g": "Without the prefetcher a batch size fits. With it: OutOfMemoryError.",
    "h": "The copies now have a separate stream. The loss is wrong in every epoch.",
    "i": "Now it waits for its copies. With loss.item() in each step all is right, without it not.",
    "j": "Now all is right. But `.to('cuda', non_blocking=True)` takes as long as the copy.",
}
