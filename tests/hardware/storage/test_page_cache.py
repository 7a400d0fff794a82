import random
from collections import OrderedDict

import pytest

from course_utils.hardware.storage.page_cache import PageCache


@pytest.mark.parametrize("capacity", [1, 5, 64])
def test_cache_agrees_with_an_ordered_dictionary(capacity):
    rng = random.Random(capacity)
    memory = memoryview(bytearray(PageCache.memory_size(capacity)))
    cache, model = PageCache(memory, capacity), OrderedDict()
    for _ in range(5_000):
        key = rng.randrange(120)
        weight = model.get(key) or rng.randint(1, min(4, capacity))
        expected = key in model
        model.pop(key, None)
        while not expected and sum(model.values()) + weight > capacity:
            model.popitem(last=False)
        model[key] = weight
        assert cache.use(hash((7, key)), weight)[1] == expected
