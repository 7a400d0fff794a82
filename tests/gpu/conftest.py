import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # run.py is a script that runs without pytest
