"""The lecture demos, one module each with a function `run()` that returns a `Finding`."""

DEMOS = {  # in the order of the lecture
    "wait": "How much of the time does the GPU compute?",
    "cliff": "What happens when the data no longer fit in the page cache?",
    "workers": "How much faster is a loader with more workers?",
    "duplicates": "What do the workers of a stream serve?",
    "shuffle": "What does a better shuffle of a sorted file cost and gain?",
    "formats": "Which file format feeds the GPU?",
    "clinic": "Four loops are equally slow. What does each one wait for?",
}
