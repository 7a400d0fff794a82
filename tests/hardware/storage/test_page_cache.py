import random
from collections import OrderedDict

import pytest

from course_utils.hardware.storage.page_cache import PageCache


def cache_of(capacity):
    return PageCache(memoryview(bytearray(PageCache.memory_size(capacity))), capacity)


def hits(cache, keys, *, weight=1):
    return sum(cache.use(hash((7, key)), weight)[1] for key in keys)


@pytest.mark.parametrize("capacity", [1, 5, 64])
def test_it_agrees_with_an_ordered_dictionary_on_blocks_of_random_weight(capacity):
    rng = random.Random(capacity)
    cache, model = cache_of(capacity), OrderedDict()
    for _ in range(5_000):
        key = rng.randrange(120)
        weight = model.get(key) or rng.randint(1, min(4, capacity))
        expected = key in model
        model.pop(key, None)
        while not expected and sum(model.values()) + weight > capacity:
            model.popitem(last=False)
        model[key] = weight
        assert hits(cache, [key], weight=weight) == expected


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
