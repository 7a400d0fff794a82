"""An exact least-recently-used cache of file blocks, in flat memory that processes can share.

It counts bytes and holds none: the emulated storage asks it which blocks a real page cache would
still have. A block is 32 KiB, which stands for what kernels really do: they fetch one page of 4 KiB
for a lone small read and windows of up to 128 KiB for a sequential or mapped one. The end of a
file, and so a small file, takes as much room as it has bytes, in units of 8 KiB (two pages, or one
and what the kernel notes about the file).

Nodes are numbers. Number 0 is the fixed point of a ring: after it comes the block used last,
before it the one that goes next. Zeroed memory is an empty cache. Nothing locks here.
"""

from __future__ import annotations

BLOCK = 32 * 1024
UNIT = 8 * 1024

_FIELDS = 3  # counts that the cache keeps about itself
_USED, _TOP, _FREE = range(_FIELDS)


class PageCache:
    """A cache of `capacity` units over `memory`, which has `memory_size(capacity)` bytes."""

    def __init__(self, memory: memoryview, capacity: int):
        """Take the cache as it lies in `memory`."""
        nodes, buckets = capacity + 1, _buckets(capacity)
        self.capacity = capacity
        self._memory = memory
        self._mask = buckets - 1
        wide = memory[: 8 * (_FIELDS + 2 * nodes)].cast("q")
        slim = memory[8 * (_FIELDS + 2 * nodes) :].cast("i")
        self._fields = wide[:_FIELDS]
        self._key = wide[_FIELDS : _FIELDS + nodes]
        self.ready = wide[_FIELDS + nodes :]  # per node, ns: when its bytes have arrived
        self._after, self._before, self._weight, self._chain = (
            slim[i * nodes : (i + 1) * nodes] for i in range(4)
        )
        self._table = slim[4 * nodes :]  # bucket -> first node, and on along _chain

    @staticmethod
    def memory_size(capacity: int) -> int:
        """Return the bytes that a cache of that many units needs."""
        nodes = capacity + 1
        return 8 * (_FIELDS + 2 * nodes) + 4 * (4 * nodes + _buckets(capacity))

    def use(self, key: int, weight: int) -> tuple[int, bool]:
        """Make a block the one used last; return its node, and whether it was there before."""
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
        """Forget every block."""
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
