"""From a drag to the answer: real mouse events in headless Chromium against `cno playground`.

    python benchmarks/playground.py results/bench-playground-cpu.json

A spot is dragged three times for some seconds, an event every 30 ms. The time of an answer runs
from the event's own time stamp to the end of painting the networks' pictures: request, input,
network, reply and colours are inside, the wait for the screen's next frame is not.
"""

import importlib.util
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "tests" / "playground" / "browser.py"
SETTLED = "typeof state !== 'undefined' && document.body.dataset.settled == state.version"
MOVES, DRAGS = 180, 3  # three turns, which end where they began
RESOLUTIONS = (64, 128)


def load_browser():
    spec = importlib.util.spec_from_file_location("browser", SOURCE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def drag(browser) -> list[float]:
    """Times in ms of the answers to one long drag of the first spot."""
    browser.middle_of("#overlay")
    left, top, size = browser.run(
        "(b => [b.x, b.y, b.width])(document.querySelector('#overlay').getBoundingClientRect())"
    )
    x, y = browser.run("drawing.handle(drawing.strokes[0]).slice(0, 2)")
    browser.run("times.length = 0; times.shift = () => 0")
    start = left + x * size, top + (1 - y) * size
    turns = [2 * math.pi * i / 60 for i in range(MOVES + 1)]
    around = [(start[0] + 40 * (1 - math.cos(t)), start[1] + 40 * math.sin(t)) for t in turns]
    browser.drag([start, *around], pause=0.03)
    browser.wait(SETTLED)
    return browser.run("times")


def measure(name: str) -> dict[str, dict[str, float]]:
    command = [sys.executable, "-m", "torchcno.cli", "playground", name]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    found = {}
    try:
        address = process.stdout.readline().split(" is at ")[1].strip()
        with (
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
            load_browser().open_browser(Path(profile)) as browser,
        ):
            browser.resize(1400, 900)
            browser.open(address)
            for resolution in RESOLUTIONS:
                browser.wait(SETTLED)
                browser.run(f"state.resolution = {resolution}; changed(null)")
                browser.wait(SETTLED)
                drag(browser)  # what compiles or wakes up, does so now
                times = sorted(time for _ in range(DRAGS) for time in drag(browser))
                found[str(resolution)] = {
                    "answers": len(times),
                    "median_ms": round(statistics.median(times), 1),
                    "p95_ms": round(times[int(0.95 * len(times))], 1),
                }
    finally:
        process.terminate()
        process.wait()
    return found


def main() -> None:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        "",
    )
    result = {
        "what": "from a mouse event to the network's picture, headless Chromium, poisson's CNO",
        "cpu": cpu,
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "date": date.today().isoformat(),
        "resolutions": measure("poisson"),
    }
    text = json.dumps(result, indent=2)
    print(text)
    if target:
        target.write_text(text + "\n")


if __name__ == "__main__":
    main()
