import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # run.py runs without pytest, as a script
