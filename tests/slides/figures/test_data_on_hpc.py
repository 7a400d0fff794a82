import pytest

from slides.figures import data_on_hpc as deck


def test_shared_storage_saturates_at_about_twenty_nodes() -> None:
    together = {nodes: deck._gb_per_s(deck.SHARED, nodes) for nodes in (8, 16, 24, 64)}
    assert together[16] == pytest.approx(2 * together[8], rel=0.1)
    assert together[64] == pytest.approx(together[24], rel=0.05)


def test_local_disk_is_faster_than_shared_storage_for_one_node() -> None:
    assert deck._gb_per_s(deck.LOCAL, 1) > deck._gb_per_s(deck.SHARED, 1)


def test_many_files_cost_more_than_random_and_ordered_reads() -> None:
    each = deck._seconds("busy Lustre", deck.A_FILE_EACH, opens=len(deck.A_FILE_EACH))
    random, in_order = (
        deck._seconds("busy Lustre", reads, 1) for reads in (deck.AT_RANDOM, deck.IN_ORDER)
    )
    assert each > random > 100 * in_order


def test_scatter_falls_with_the_clusters_in_memory() -> None:
    for in_memory, ratio in ((1, 16), (16, 4.1), (256, 1)):
        assert deck.scatter(in_memory) == pytest.approx(ratio, rel=0.1), in_memory
