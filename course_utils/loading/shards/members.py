"""Check the names of the files in tar shards, which decide about the samples.

webdataset takes everything before the first dot of a name as the key of a sample, and joins
neighbours with the same key. Names that do not follow this give half samples without an error.
"""

import re

# txt, seg.png, pulses.npy and 0.jpg are fields, but "0 (clean version).txt" and 2.0.txt are not
_FIELD = re.compile(r"(?:[a-z_][\w-]*\.)*[\w-]+|\d+\.[a-z]\w*", re.IGNORECASE)


class MemberKeys:
    """The keys of one shard, in the order of its files."""

    def __init__(self, url: str):
        """Begin without keys."""
        self.url = url
        self.first: tuple[str, frozenset[str]] | None = None  # key and fields of the first sample
        self.key, self.fields = "", frozenset[str]()  # of the last sample
        self._seen: set[str] = set()

    def add(self, name: str) -> None:
        """Add the next file of the shard.

        Raises:
            ValueError: If the files of a sample are apart, or a name is cut at a wrong dot.
        """
        folder, slash, base = name.rpartition("/")
        start, dot, field = base.partition(".")
        if not start or not dot:
            return  # hidden, or without an ending: webdataset ignores it
        if not _FIELD.fullmatch(field):
            raise ValueError(
                f"{self.url}: the file {name!r} has a dot before its ending, so its field would be "
                f"{field!r}. Write the shard again without dots in the keys."
            )
        if (key := f"{folder}{slash}{start}") != self.key:
            if key in self._seen:
                raise ValueError(
                    f"{self.url}: the files of the sample {key!r} are not next to each other. "
                    "Write the shard again in the order of the names: `tar --sort=name`."
                )
            if self.first is None and self.key:
                self.first = self.key, self.fields
            self._seen.add(key)
            self.key, self.fields = key, frozenset()
        self.fields |= {field}

    def ends(self) -> list[tuple[str, frozenset[str]]]:
        """Return key and fields of the first and the last sample."""
        return [self.first or (self.key, self.fields), (self.key, self.fields)]


class DividedSamples:
    """Finds samples whose files are in two shards, among the shards that this process reads."""

    def __init__(self) -> None:
        """Begin without shards."""
        self._ends: dict[str, tuple[str, frozenset[str]]] = {}

    def add(self, shard: MemberKeys) -> None:
        """Add a shard that was read to its end.

        Raises:
            ValueError: If its first or last sample is continued in another shard.
        """
        for key, fields in shard.ends():
            url, others = self._ends.get(key, (shard.url, fields))
            if key and fields.isdisjoint(others):
                raise ValueError(
                    f"The sample {key!r} is divided between {url} and {shard.url}. Write the "
                    "shards again, so that each sample is in one of them."
                )
            self._ends[key] = shard.url, fields
