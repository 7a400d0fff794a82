"""Nodes that share a storage share its line; those that have their own do not."""

import pytest

from notebooks.stories.many_nodes import node_rates


def test_nodes_share_what_the_line_carries_and_with_their_own_each_has_as_much() -> None:
    one, eight = (node_rates("NFS", n, shared=True, event_bytes=1000) for n in (1, 8))
    assert 0.95 * 117_000 < one <= 117_000
    assert eight == pytest.approx(one, rel=0.05)
    one, eight = (node_rates("laptop SSD", n, shared=False, event_bytes=1000) for n in (1, 8))
    assert eight == pytest.approx(8 * one)
