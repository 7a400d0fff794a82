import os
import signal
import subprocess
import sys
import time

import pytest

from keepfed.limits import all_cores, usable_cores
from keepfed.measure.neighbors import Neighbors

_BURN = "import time\nend = time.time() + 20\nwhile time.time() < end: pass"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot start an orphan process")
@pytest.mark.skipif(usable_cores() < all_cores(), reason="this process may not use all cores")
def test_unrelated_program_is_counted() -> None:
    counter = Neighbors()
    shell = ["sh", "-c", '"$0" -c "$1" >/dev/null 2>&1 & echo $!', sys.executable, _BURN]
    pid = int(subprocess.check_output(shell))
    try:
        time.sleep(1.0)
        assert counter.cores() > 0.3
    finally:
        os.kill(pid, signal.SIGKILL)
