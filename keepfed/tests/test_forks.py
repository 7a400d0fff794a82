import sys

import pytest

from tests.fixtures import run_python

INTERRUPTED = """
import os, signal, time
os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGINT))
import keepfed.forks
try:
    child = os.fork()
    if not child:
        os._exit(signal.getsignal(signal.SIGINT) is not signal.default_int_handler)
    time.sleep(30)
except KeyboardInterrupt:
    print("interrupted, child", os.waitpid(child, 0)[1])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="this system does not fork")
def test_interrupt_during_a_fork_is_delivered_after_it():
    run = run_python("-c", INTERRUPTED)
    assert (run.stdout, run.stderr) == ("interrupted, child 0\n", "")
