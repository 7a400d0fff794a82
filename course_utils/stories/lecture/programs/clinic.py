"""Four loops of the blind clinic, which are equally slow for different reasons."""

from pathlib import Path
from tempfile import TemporaryDirectory

from course_utils.stories.clinic import Clinic, discharge
from course_utils.stories.lecture import Finding
from course_utils.stories.lecture.programs.loop import DISTURBED
from keepfed.formatting import percent

SEED = 2  # puts the causes below first
REASONS = {
    "storage": "the storage",
    "gpu": "nothing, because the GPU computes",
    "sync": "the host, which waits for each kernel",
    "cpu": "its workers, which compute",
}


def run() -> Finding:
    """Use three probes on each loop."""
    table = [["loop", "steps/s", "step alone, steps/s", "GPU busy", "workers compute", "waits for"]]
    traces, reasons = {}, []
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        clinic = Clinic(SEED, Path(folder))
        causes = discharge(clinic)
        for loop in [*clinic][: len(REASONS)]:
            together, alone, cpu = loop.together(), loop.step_alone(), loop.workers_cpu()
            (traces[f"loop {loop.name}"],) = loop.timeline().picture.traces
            rates = f"{together.steps_per_s:.1f}", f"{alone.steps_per_s:.1f}"
            works = percent(sum(cpu.computes) / len(cpu.computes))
            reason = REASONS[causes[loop.name]]
            table.append([loop.name, *rates, percent(together.gpu_busy), works, reason])
            reasons.append(f"{loop.name} waits for {reason}")
    return Finding(
        f"The loops look the same from outside. {'; '.join(reasons)}. The speed of the step alone "
        f"and the CPU use of the workers distinguish them.{DISTURBED * clinic.disturbed}",
        traces,
        table,
    )
