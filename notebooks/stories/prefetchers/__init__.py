"""Prefetchers that are not right yet, what all have to keep, and the proof of each defect."""

from notebooks.stories.prefetchers.bench import DiskError
from notebooks.stories.prefetchers.contract import CONTRACT, RUNS, Broken, Clause, hangs, judge_all
from notebooks.stories.prefetchers.defects import NotesPrefetcher, SideStream, prove_all
from notebooks.stories.prefetchers.trial import Make, PrefetcherTrial
