"""Faulty prefetchers, the contract that prefetchers must keep, and a proof of each defect."""

from course_stories.prefetchers.bench import DiskError
from course_stories.prefetchers.contract import CONTRACT, RUNS, Clause, Violation, check_all, hangs
from course_stories.prefetchers.defects import NotesPrefetcher, SideStream, prove_all
from course_stories.prefetchers.trial import Make, PrefetcherTrial
