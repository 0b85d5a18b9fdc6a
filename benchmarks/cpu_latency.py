"""How long one field takes on a CPU: by the networks of the package, as they are and prepared.

    python benchmarks/cpu_latency.py [poisson navier-stokes] [--threads 2] [--repeats 100]

Both ways take turns, so that other work on the machine falls on both. The shortest time is the
network's own; the median has the waiting for other work in it.
"""

import argparse
import statistics
import time

import torch

from torchcno import for_inference, load_pretrained


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=["poisson", "navier-stokes"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=100)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    for name in given.names:
        network = load_pretrained(name).network
        config, ways = network.config, {"plain": network, "prepared": for_inference(network)}
        u = torch.rand(1, config.in_channels, *config.size)
        times: dict[str, list[float]] = {way: [] for way in ways}
        with torch.inference_mode():
            outputs = [way(u) for way in ways.values() for _ in range(3)]
            for _ in range(given.repeats):
                for way, model in ways.items():
                    start = time.perf_counter()
                    model(u)
                    times[way].append(1e3 * (time.perf_counter() - start))
        difference = float((outputs[0] - outputs[-1]).norm() / outputs[0].norm())
        for way, ms in times.items():
            print(f"{name:16}{way:10}{min(ms):7.1f} ms  median {statistics.median(ms):.1f} ms")
        print(f"{name:16}relative difference {difference:.1e}")


if __name__ == "__main__":
    main()
