"""The demos of the lecture: one module each, whose `run()` measures and returns a `Finding`."""

DEMOS = {  # in the order of the lecture
    "wait": "For how much of the time does the GPU compute?",
    "cliff": "What happens when the data no longer fit in the page cache?",
    "workers": "How much faster is a loader with more workers?",
    "duplicates": "What do the workers of a stream serve?",
    "shuffle": "What does a better shuffle of a sorted file cost, and bring?",
    "formats": "Which file format feeds the GPU?",
    "clinic": "Four loops take equally long: which one waits for what?",
    "prefetch": "What does a copy ahead of the step gain, and when is it wrong?",
    "resume": "Does a training that was killed go on as if nothing had happened?",
}
