"""Measure how much time each loader costs an unchanged training script, on each rank."""

from keepfed.measure.watch.loop import watch
from keepfed.measure.watch.program import run_watched
