import random
from collections import OrderedDict

import pytest

from course_utils.hardware.storage.page_cache import PageCache


def cache_of(capacity):
    return PageCache(memoryview(bytearray(PageCache.memory_size(capacity))), capacity)


def hits(cache, keys):
    return sum(cache.use(hash((7, key)), 1)[1] for key in keys)


def test_zeroed_memory_is_an_empty_cache_and_clear_makes_one():
    cache = cache_of(4)
    for _ in range(2):
        assert cache.used == 0
        assert hits(cache, [0, 1, 2, 3]) == 0
        assert (cache.used, hits(cache, [0, 1, 2, 3])) == (4, 4)
        cache.clear()


def test_the_block_used_longest_ago_goes_first():
    cache = cache_of(3)
    hits(cache, [1, 2, 3, 1, 4])
    assert hits(cache, [1, 3, 4]) == 3
    assert hits(cache, [2]) == 0


def test_a_heavy_block_pushes_out_as_many_light_ones_as_it_needs():
    cache = cache_of(8)
    hits(cache, range(8))
    cache.use(hash((7, 99)), 4)
    assert cache.used == 8
    assert hits(cache, [4, 5, 6, 7]) == 4
    assert hits(cache, [0]) == 0


def test_two_caches_over_the_same_memory_are_one():
    memory = memoryview(bytearray(PageCache.memory_size(4)))
    hits(PageCache(memory, 4), [1, 2])
    assert hits(PageCache(memory, 4), [1, 2]) == 2


@pytest.mark.parametrize("capacity", [1, 5, 64])
def test_it_agrees_with_an_ordered_dictionary_on_random_use(capacity):
    rng = random.Random(capacity)
    cache, model = cache_of(capacity), OrderedDict()
    for _ in range(5_000):
        key = hash((rng.randrange(3), rng.randrange(40)))
        weight = model.get(key) or rng.randint(1, min(4, capacity))
        expected = key in model
        model.pop(key, None)
        while not expected and sum(model.values()) + weight > capacity:
            model.popitem(last=False)
        model[key] = weight
        assert cache.use(key, weight)[1] == expected
        assert cache.used == sum(model.values())


@pytest.mark.parametrize(
    ("times", "shuffled", "least", "most"),
    [(1.0, False, 1, 1), (1.0, True, 1, 1), (1.1, False, 0, 0.05), (1.1, True, 0.66, 0.72)],
)
def test_the_cliff_is_where_the_data_outgrow_the_cache(times, shuffled, least, most):
    cache, order, rng = cache_of(1_000), list(range(int(1_000 * times))), random.Random(0)
    for _ in range(5):
        if shuffled:
            rng.shuffle(order)
        share = hits(cache, order) / len(order)
    assert least <= share <= most
