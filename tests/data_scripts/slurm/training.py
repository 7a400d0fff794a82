"""A resumable training script as on a cluster, slow enough to be interrupted."""

import sys
import time
from itertools import chain

from torch import distributed
from torch.utils.data import DataLoader

from keepfed.loaders.resume import ResumableBatches, load_checkpoint, save_checkpoint

if __name__ == "__main__":
    path = sys.argv[1]
    distributed.init_process_group("gloo")
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    batches = ResumableBatches(120, 4)
    served: list[int] = []
    if saved := load_checkpoint(path):
        batches.load_state_dict(saved["batches"])
        served = saved["served"]
    while batches.epoch.value < 2:
        for batch in batches.follow(DataLoader(range(120), batch_sampler=batches)):
            of_all: list[list[int]] = [[] for _ in range(ranks)]
            distributed.all_gather_object(of_all, batch.tolist())
            served += sorted(chain(*of_all))
            if rank == 0:
                save_checkpoint(path, {"batches": batches.state_dict(), "served": served})
            distributed.barrier()
            time.sleep(float(sys.argv[2]))
    distributed.destroy_process_group()
