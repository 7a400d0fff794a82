"""What the deck "Data pipelines on HPC" says of its emulated figures."""

import pytest

from slides.figures.data_on_hpc import (
    A_FILE_EACH,
    AT_RANDOM,
    IN_ORDER,
    LOCAL,
    SHARED,
    _gb_per_s,
    _seconds,
)


def test_a_shared_storage_is_full_from_about_twenty_nodes_on() -> None:
    together = {nodes: _gb_per_s(SHARED, nodes) for nodes in (8, 16, 24, 64)}
    assert together[16] == pytest.approx(2 * together[8], rel=0.1)
    assert together[64] == pytest.approx(together[24], rel=0.05)


def test_one_node_gets_more_from_its_own_disk_than_from_the_shared_storage() -> None:
    assert _gb_per_s(LOCAL, 1) > _gb_per_s(SHARED, 1)


def test_a_file_each_costs_more_than_random_reads_and_these_more_than_order() -> None:
    each = _seconds("busy Lustre", A_FILE_EACH, opens=len(A_FILE_EACH))
    random, in_order = (_seconds("busy Lustre", reads, 1) for reads in (AT_RANDOM, IN_ORDER))
    assert each > random > 100 * in_order
