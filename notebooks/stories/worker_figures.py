"""Pictures of notebook 04: rates beside the model, and bars with their numbers."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

Rates = Mapping[int, float]  # workers -> batches per second


def rates_and_model(cases: Mapping[str, tuple[Rates, int]]) -> Figure:
    """Draw rates, measured and by the model min(W, P) / L; a case has a name, its rates and P."""
    with plt.style.context("course_utils.plots"):
        figure, panels = plt.subplots(1, len(cases), figsize=(9, 2.6), layout="constrained")
        for panel, (name, (rates, parallel)) in zip(panels, cases.items(), strict=True):
            model = [rates[1] * min(workers, parallel) for workers in rates]
            panel.plot(list(rates), model, "--", color="0.5", label="model")
            panel.plot(list(rates), list(rates.values()), "o", label="measured")
            panel.set(title=f"{name}, P = {parallel}", xlabel="workers", ylim=0)
            panel.set(xticks=list(rates), ylabel="batches per second")
            panel.legend()
    plt.close(figure)  # a notebook shows what the cell returns, and only that
    return figure


def bars(values: Mapping[str, float], label: str) -> Figure:
    """Draw a bar for each value, and write the value behind it; `label` says what they are."""
    with plt.style.context("course_utils.plots"):
        figure, panel = plt.subplots(figsize=(7, 0.7 + 0.3 * len(values)), layout="constrained")
        drawn = panel.barh(list(values), list(values.values()))
        numbers = [f"{value:.3g}" for value in values.values()]
        panel.bar_label(drawn, numbers, padding=3, color=plt.rcParams["text.color"])
        panel.invert_yaxis()
        panel.set(xlabel=label)
        panel.margins(x=0.15)
    plt.close(figure)
    return figure
