"""Exact least-recently-used cache of file blocks, in flat memory that processes can share.

It stores no data: the emulated storage asks it which blocks a real page cache would still contain.
A block has 32 KiB, a compromise: kernels read one page of 4 KiB for an isolated small read, and
windows of up to 128 KiB for a sequential or mapped read. The end of a file, and so a small file,
uses as much space as it has bytes, in units of 8 KiB (two pages, or one page and the kernel's
metadata for the file).

Nodes are integers. Node 0 is the head of a ring: the node after it was used last, and the node
before it is evicted next. Zeroed memory is an empty cache. This class does not lock.
"""

from __future__ import annotations

BLOCK = 32 * 1024
UNIT = 8 * 1024

_FIELDS = 3  # counters of the cache
_USED, _TOP, _FREE = range(_FIELDS)


class PageCache:
    """A cache of `capacity` units over `memory`, which has `memory_size(capacity)` bytes."""

    def __init__(self, memory: memoryview, capacity: int):
        """Attach to the cache stored in `memory`."""
        nodes, buckets = capacity + 1, _buckets(capacity)
        self.capacity = capacity
        self._memory = memory
        self._mask = buckets - 1
        wide = memory[: 8 * (_FIELDS + 2 * nodes)].cast("q")
        slim = memory[8 * (_FIELDS + 2 * nodes) :].cast("i")
        self._fields = wide[:_FIELDS]
        self._key = wide[_FIELDS : _FIELDS + nodes]
        self.ready = wide[_FIELDS + nodes :]  # per node: arrival time of its bytes, ns
        self._after, self._before, self._weight, self._chain = (
            slim[i * nodes : (i + 1) * nodes] for i in range(4)
        )
        self._table = slim[4 * nodes :]  # bucket -> first node; _chain links the others

    @staticmethod
    def memory_size(capacity: int) -> int:
        """Return the number of bytes that a cache of `capacity` units needs."""
        nodes = capacity + 1
        return 8 * (_FIELDS + 2 * nodes) + 4 * (4 * nodes + _buckets(capacity))

    def use(self, key: int, weight: int) -> tuple[int, bool]:
        """Mark a block as used last. Return its node, and whether it was already cached."""
        node = self._find(key)
        if node:
            if self._after[0] != node:
                self._unlink(node)
                self._link(node)
            return node, True
        while self._fields[_USED] + weight > self.capacity:
            self._evict(self._before[0])
        return self._insert(key, weight), False

    def clear(self) -> None:
        """Remove every block."""
        self._memory[:] = bytes(len(self._memory))

    def _find(self, key: int) -> int:
        node = self._table[key & self._mask]
        while node and self._key[node] != key:
            node = self._chain[node]
        return node

    def _insert(self, key: int, weight: int) -> int:
        node = self._fields[_FREE]
        if node:
            self._fields[_FREE] = self._chain[node]
        else:
            node = self._fields[_TOP] = self._fields[_TOP] + 1
        bucket = key & self._mask
        self._key[node] = key
        self._weight[node] = weight
        self._chain[node] = self._table[bucket]
        self._table[bucket] = node
        self._fields[_USED] += weight
        self._link(node)
        return node

    def _evict(self, node: int) -> None:
        self._unlink(node)
        bucket = self._key[node] & self._mask
        at = self._table[bucket]
        if at == node:
            self._table[bucket] = self._chain[node]
        else:
            while self._chain[at] != node:
                at = self._chain[at]
            self._chain[at] = self._chain[node]
        self._chain[node] = self._fields[_FREE]
        self._fields[_FREE] = node
        self._fields[_USED] -= self._weight[node]

    def _link(self, node: int) -> None:
        first = self._after[0]
        self._after[node] = first
        self._before[node] = 0
        self._before[first] = node
        self._after[0] = node

    def _unlink(self, node: int) -> None:
        before, after = self._before[node], self._after[node]
        self._after[before] = after
        self._before[after] = before


def _buckets(capacity: int) -> int:
    return 1 << capacity.bit_length()
