"""Build the package, check it, and try the wheel in an environment that has nothing else.

    python tools/check_package.py                       # this Python, versions of constraints.txt
    python tools/check_package.py --python python3.13   # another Python
    python tools/check_package.py --versions newest     # the newest that the ranges allow
    python tools/check_package.py --versions oldest     # the oldest; needs uv

In the new environment the first example of README.md runs, `cno predict` and `cno export` run by
name, and the time of `import torchcno` is measured. Sizes are printed.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
IMPORT = "import time; t = time.perf_counter(); import torchcno; print(time.perf_counter() - t)"
LARGEST = 20e6  # bytes of the wheel: weights beyond are files of a release
VERSIONS = ("constraints", "newest", "oldest")


def main() -> None:
    """Do all of it, or end with what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable, help="of the new environment")
    parser.add_argument("--versions", choices=VERSIONS, default="constraints")
    parser.add_argument("--out", type=Path, help="keep sdist and wheel there")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = build(given.out or folder / "dist")
        check_contents(wheel)
        python = make_environment(folder / "environment", given.python, given.versions, wheel)
        try_out(python, folder)
        installed = sum(f.stat().st_size for f in (folder / "environment").rglob("*"))
    print(f"wheel {wheel[1] / 1e6:.1f} MB, environment {installed / 1e9:.1f} GB")


def run(*command: object, cwd: Path = ROOT) -> str:
    """What a command prints; an end with what it said if it fails."""
    words = [str(word) for word in command]
    print("+", " ".join(words)[:200], flush=True)
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}\n{words[0]} failed")
    return done.stdout


def build(out: Path) -> tuple[Path, int]:
    """Sdist, and the wheel made from it, as they would be published; the wheel and its bytes."""
    for old in out.glob("torchcno-*"):
        old.unlink()
    run(sys.executable, "-m", "build", "--outdir", out, ROOT)
    run(sys.executable, "-m", "twine", "check", "--strict", *sorted(out.glob("torchcno-*")))
    (wheel,) = out.glob("torchcno-*.whl")
    return wheel.absolute(), wheel.stat().st_size


def check_contents(wheel: tuple[Path, int]) -> None:
    """Every file of the package that git knows is in the wheel, and the wheel is not too large."""
    inside = set(zipfile.ZipFile(wheel[0]).namelist())
    tracked = run("git", "ls-files", "src/torchcno").split()
    missing = {file.removeprefix("src/") for file in tracked} - inside
    if missing:
        sys.exit(f"the wheel lacks {', '.join(sorted(missing))}; add them to package-data")
    if wheel[1] > LARGEST:
        sys.exit(f"the wheel has {wheel[1] / 1e6:.0f} MB; leave large weights to releases.json")


def make_environment(folder: Path, python: str, versions: str, wheel: tuple[Path, int]) -> Path:
    """A virtual environment with the wheel and what it needs; its Python."""
    run(python, "-m", "venv", folder)
    own = folder / "bin" / "python"
    pip = (own, "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check")
    if versions == "oldest":
        how = ("--resolution", "lowest-direct", "--requirements", ROOT / "pyproject.toml")
        run("uv", "pip", "install", "--python", own, *how)
        run(*pip, "--no-deps", wheel[0])
    else:
        pinned = ("-c", ROOT / "constraints.txt") if versions == "constraints" else ()
        run(*pip, *pinned, wheel[0])
    return own


def try_out(python: Path, folder: Path) -> None:
    """What a new user does first, away from the checkout."""
    example = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]
    isolated = (python, "-I", "-c")  # no variable and no folder of the caller leads to a checkout
    error = float(re.findall(r"[\d.]+", run(*isolated, example, cwd=folder))[0])
    if not error < 0.05:
        sys.exit(f"README's first example gives an error of {error}, not about 0.019")
    source = "import numpy; numpy.save('in.npy', numpy.ones((1, 1, 64, 64)))"
    run(*isolated, source, cwd=folder)
    cno = python.with_name("cno")
    run(cno, "predict", "poisson", "in.npy", "--out", "out.npy", "--device", "cpu", cwd=folder)
    run(cno, "export", "poisson", "--format", "pt2", "--out", "poisson.pt2", cwd=folder)
    run(cno, "--help", cwd=folder)
    seconds = min(float(run(*isolated, IMPORT, cwd=folder)) for _ in range(3))
    print(f"README's example: {error:.3f}; import torchcno: {1e3 * seconds:.1f} ms")
    if seconds > 0.05:
        sys.exit("`import torchcno` takes more than 50 ms")


if __name__ == "__main__":
    main()
