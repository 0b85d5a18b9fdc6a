import subprocess
import sys
from pathlib import Path


def test_a_share_of_all_faults_costs_no_work_and_goes_unseen_nowhere():
    """All of them: `python -m validation.faults`."""
    root = Path(__file__).parents[1]
    command = [sys.executable, "-m", "validation.faults", "--quick", "--workers", "1"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
