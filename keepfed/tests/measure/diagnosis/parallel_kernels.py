"""Diagnose a loop with multi-threaded forked workers, which runs correctly without a diagnosis."""

from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from keepfed.measure.diagnosis.differential import diagnose


class Kernel(Dataset[Any]):
    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> Any:
        return torch.ones(100_000).mul_(2).sum()


def use_four_threads(worker_id: int) -> None:
    torch.set_num_threads(4)


if __name__ == "__main__":
    torch.set_num_threads(2)
    how: Any = {"worker_init_fn": use_four_threads, "multiprocessing_context": "fork"}
    loader = DataLoader(Kernel(), batch_size=4, num_workers=1, timeout=15, **how)
    print(diagnose(loader, lambda batch: None, seconds=1).measurements.setting.workers)
