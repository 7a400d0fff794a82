"""Find the cause of a slow loop from its measurements, and recommend one change."""

from keepfed.measure.advice.catalog import CATALOG, Advice
from keepfed.measure.advice.change import Change, with_arguments, with_persistent_workers
from keepfed.measure.advice.choice import Trial, candidates, recommend
from keepfed.measure.advice.estimates import (
    Fetching,
    Kind,
    Measurements,
    Moving,
    Paces,
    Setting,
    StepParts,
    WorkerMemory,
    active_workers,
    fetching_of,
    filling_s,
    mean_s,
    memory_of,
    ms,
    sent_s,
    start_up_s,
    steady,
)
from keepfed.measure.advice.finding import LoopFinding, paragraphs
from keepfed.measure.advice.rules import Cause, judge
from keepfed.measure.advice.sentences import busy_machine
