"""Diagnose a training loop: three runs, their measurements, one verdict, one change."""

from keepfed.measure.diagnosis.changes import applied
from keepfed.measure.diagnosis.differential import diagnose
from keepfed.measure.diagnosis.report import Diagnosis
from keepfed.measure.diagnosis.three_runs import headroom
