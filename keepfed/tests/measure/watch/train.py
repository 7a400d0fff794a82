"""Training script that does not use keepfed: python train.py WORKERS [ENDING]."""

import os
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Numbers(Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, index):
        if "slow rank 1" in sys.argv:
            time.sleep(0.004 if os.environ["RANK"] == "1" else 0)
        return torch.rand(3) + index, float(index)


def main(workers, ending):
    torch.manual_seed(4)
    model = torch.nn.Linear(3, 1)
    data, sampler = Numbers(), None
    if "RANK" in os.environ:
        torch.distributed.init_process_group("gloo")
        model = torch.nn.parallel.DistributedDataParallel(model)
        sampler = DistributedSampler(data)
    loader = DataLoader(
        data, batch_size=4, sampler=sampler, shuffle=sampler is None, num_workers=workers
    )
    optimizer = torch.optim.Adam(model.parameters())
    epoch = 0
    while epoch < 4 or ending == "forever":
        for inputs, targets in loader:
            loss = ((model(inputs)[:, 0] - targets) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        said = f"epoch {epoch} {loss.item().hex()} {torch.rand(()).item().hex()}\n"
        sys.stdout.write(said)  # one write, because the ranks share a pipe
        sys.stdout.flush()
        epoch += 1
    if ending == "raise":
        raise ValueError("end of the training")
    if ending == "kill":
        os.kill(os.getpid(), 9)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")
