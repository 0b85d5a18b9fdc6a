"""What members trained together take on a GPU: `python benchmarks/members.py OUT.json`.

Runs of the navier-stokes CNO by `best` on random fields: one, and K members in one graph. A step
is one of every member, and `of one` is its time over that of a single run.
"""

import json
import sys
from pathlib import Path

import torch
from run_speed import time_run

COUNTS = (1, 2, 4, 8)


def main() -> None:
    time_run("navier-stokes")  # programs are compiled, and the device is warm
    rows: dict[str, dict[str, float]] = {}
    for count in COUNTS:
        torch.cuda.reset_peak_memory_stats()
        row = time_run("navier-stokes", count)
        alone = rows.get("1", row)["ms_per_step_all_included"]
        row |= {
            "peak_gb": torch.cuda.max_memory_allocated() / 1e9,
            "of one": row["ms_per_step_all_included"] / alone,
        }
        rows[str(count)] = row
        print(count, row, flush=True)
        text = json.dumps({"device": torch.cuda.get_device_name(), "members": rows}, indent=1)
        if len(sys.argv) > 1:
            Path(sys.argv[1]).write_text(text)


if __name__ == "__main__":
    main()
