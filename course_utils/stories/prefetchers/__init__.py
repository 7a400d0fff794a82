"""Faulty prefetchers, the contract that prefetchers must keep, and a proof of each defect."""

from course_utils.stories.prefetchers.bench import DiskError
from course_utils.stories.prefetchers.contract import CONTRACT, RUNS, Clause
from course_utils.stories.prefetchers.defects import OURS, QueuePrefetcher, SideStream, prove_all
from course_utils.stories.prefetchers.trial import Make, PrefetcherTrial, run_epoch
