"""Exercise 08.4: join graphs into one graph, in which every edge stays within its graph."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from course_utils.exercises.judging import loader
from course_utils.exercises.judging.compare import Slip, compare, equal
from course_utils.exercises.judging.probes import expect_as_fast, process_unchanged
from course_utils.exercises.nb08.problem import Graph
from course_utils.teaching.exercise import Verdict, exercise, expect, expect_in_a_file, right

Graphs = list[Graph]
Sizes = Sequence[tuple[int, int]]  # nodes and edges of each graph

BATCHES: tuple[tuple[Sizes, int], ...] = (  # with the width of the features
    ([(3, 2), (4, 3)], 4),
    ([(3, 2), (4, 3)], 4),  # the same sizes, but another graph
    ([(3, 2), (4, 3), (5, 6), (2, 1)], 1),
    ([(1, 0), (3, 4), (1, 0), (2, 0), (4, 7), (1, 1)], 3),
    ([(1, 0)], 2),
    ([(5, 4)], 2),
    ([(70_000, 9), (300, 40), (2, 3)], 1),  # node indices that need more than 16 bits
)
LARGE: Sizes = [(500, 10_000)] * 4


def _nodes(graphs: Graphs) -> list[int]:
    return [len(graph.x) for graph in graphs]


SLIPS = (
    Slip(
        lambda _, got, wanted: (
            equal(got[0], wanted[0])
            and (got[1].shape, got[1].dtype) == (wanted[1].shape, wanted[1].dtype)
            and not equal(got[1], wanted[1])
        ),
        "Edges connect nodes of other graphs. They are not shifted, or not by the number of nodes "
        "in all graphs before.",
        "Shift a graph by the number of nodes (x.shape[0]) in all graphs before it. Graph 0 is not "
        "shifted.",
    ),
)


@exercise("08.4", title="Join graphs", seconds=30)
def join_graphs(join: Callable[[Graphs], tuple[Tensor, Tensor, Tensor]]) -> Verdict:
    """Check a collate function with hidden graphs, with many edges, and in workers."""
    for seed, (sizes, width) in enumerate(BATCHES):
        graphs = _graphs(sizes, width, seed)
        with process_unchanged(graphs):
            joined = join(graphs)
        _compare(partial(_known, joined), [graphs])
        joined[0].mul_(2), joined[1].add_(1)  # a training may change its batch in place
        expect(
            equal(graphs, _graphs(sizes, width, seed)),
            "The batch shares its memory with a graph of the data set. If the training changes its "
            "batch, the graph is changed in the next epoch, too.",
            "Join a single graph in the same way as several: torch.cat makes a copy.",
        )
    large = _graphs(LARGE, 4, seed=7) * 2  # a sampler may draw a graph twice
    _compare(join, [large])
    expect_as_fast(
        partial(join, large),
        partial(_plain, large),
        advice="Add one number to the complete edge_index of a graph, and loop only over graphs.",
    )
    expect_in_a_file(join)
    many = _graphs([(1 + n % 7, n % 5) for n in range(60)], 3, seed=8)
    served = iter(loader(many, batch_size=4, collate_fn=join))
    _compare(lambda _: next(served), [many[first : first + 4] for first in range(0, 60, 4)])
    return right(
        "Every edge stays in its graph, graphs may have no edges, and two workers can join them."
    )


def _compare(answer: Callable[[Graphs], Any], cases: Iterable[Graphs]) -> None:
    compare(answer, _plain, cases, *SLIPS, show=_sizes)


def _known(joined: Any, _: Graphs) -> Any:
    return joined


def _sizes(graphs: Graphs) -> str:
    sizes = ", ".join(
        f"{len(graph.x):,} nodes and {graph.edge_index.shape[1]:,} edges" for graph in graphs[:3]
    )
    return f"graphs of {sizes}{', ...' if len(graphs) > 3 else ''}"


def _plain(graphs: Graphs) -> tuple[Tensor, Tensor, Tensor]:
    nodes = _nodes(graphs)
    pairs = zip(graphs, accumulate(nodes, initial=0), strict=False)
    edges = torch.cat([graph.edge_index + first for graph, first in pairs], 1)
    index = torch.arange(len(graphs)).repeat_interleave(torch.tensor(nodes))
    return torch.cat([graph.x for graph in graphs]), edges, index


def _graphs(sizes: Sizes, width: int, seed: int) -> Graphs:
    """Return random graphs. If a graph has several nodes, the last one has no edge."""
    rng = torch.Generator().manual_seed(seed)
    return [
        Graph(
            torch.randn(nodes, width, generator=rng),
            torch.randint(max(1, nodes - 1), (edges, 2), generator=rng).T,  # not contiguous
        )
        for nodes, edges in sizes
    ]
