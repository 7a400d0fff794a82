"""Claims of the deck "Data pipelines on HPC" about its emulated figures."""

import pytest

from slides.figures.data_on_hpc import (
    A_FILE_EACH,
    AT_RANDOM,
    IN_ORDER,
    LOCAL,
    SHARED,
    _gb_per_s,
    _seconds,
    scatter,
)


def test_shared_storage_saturates_at_about_twenty_nodes() -> None:
    together = {nodes: _gb_per_s(SHARED, nodes) for nodes in (8, 16, 24, 64)}
    assert together[16] == pytest.approx(2 * together[8], rel=0.1)
    assert together[64] == pytest.approx(together[24], rel=0.05)


def test_local_disk_is_faster_than_shared_storage_for_one_node() -> None:
    assert _gb_per_s(LOCAL, 1) > _gb_per_s(SHARED, 1)


def test_many_files_cost_more_than_random_and_ordered_reads() -> None:
    each = _seconds("busy Lustre", A_FILE_EACH, opens=len(A_FILE_EACH))
    random, in_order = (_seconds("busy Lustre", reads, 1) for reads in (AT_RANDOM, IN_ORDER))
    assert each > random > 100 * in_order


def test_scatter_falls_with_the_clusters_in_memory() -> None:
    for in_memory, ratio in ((1, 16), (16, 4.1), (256, 1)):
        assert scatter(in_memory) == pytest.approx(ratio, rel=0.1), in_memory
