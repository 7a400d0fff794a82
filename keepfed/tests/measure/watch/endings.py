"""Run a loop in a forked process for every kind of ending, and print the results."""

import json
import os
import signal
import sys
import tempfile

from torch.utils.data import DataLoader

ENDINGS = (
    "interrupt",
    "os._exit",
    "exception",
    "exception in the dataset",
    "crash in a worker",
    "fork",
)


class Numbers:
    def __init__(self, ending):
        self.ending = ending

    def __len__(self):
        return 40

    def __getitem__(self, index):
        if index == 30 and self.ending == "crash in a worker":
            os.kill(os.getpid(), signal.SIGKILL)
        if index == 30 and self.ending == "exception in the dataset":
            raise LookupError("sample 30")
        return float(index)


def loop(ending):
    loader = DataLoader(Numbers(ending), 4, num_workers=int(ending == "crash in a worker"))
    while True:
        for batch in loader:
            print(batch.tolist(), flush=True)
        if ending != "interrupt":
            break
        os.close(1)  # signals to the parent that the loop is running
        os.open(os.devnull, os.O_WRONLY)
    if ending == "os._exit":
        os._exit(4)
    if ending == "exception":
        raise ValueError("end of the loop")
    if ending == "fork":
        if child := os.fork():
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        else:
            for batch in loader:
                print(batch.sum().item(), flush=True)
            sys.exit(6)


def ended(ending):
    """Return the exit code of the fork, its output, and the last line of its errors."""
    out, into = os.pipe()
    with tempfile.TemporaryFile("w+") as errors:
        pid = os.fork()
        if not pid:
            os.dup2(into, 1)
            os.dup2(errors.fileno(), 2)
            os.close(into)
            os.close(out)
            return None
        os.close(into)
        with open(out) as file:
            printed = file.read()
        if ending == "interrupt":
            os.kill(pid, signal.SIGINT)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        errors.seek(0)
        return code, printed, errors.read().splitlines()[-1:]


if __name__ == "__main__":
    found = {}
    for ending in ENDINGS:
        found[ending] = ended(ending)
        if found[ending] is None:
            loop(ending)
            sys.exit(0)
    print(json.dumps(found))
