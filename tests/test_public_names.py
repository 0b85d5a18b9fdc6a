import subprocess
import sys
import typing
from importlib.metadata import version
from pathlib import Path

import torchcno


def test_every_public_name_is_where_it_is_said_to_be():
    for name in torchcno.__all__:
        assert getattr(torchcno, name) is not None
    assert set(torchcno.__all__) <= set(dir(torchcno))


def test_type_checkers_see_the_same_names():
    source = typing.cast(str, torchcno.__loader__.get_source("torchcno"))
    block = source.split("if TYPE_CHECKING:")[1].split("_HOMES")[0]
    seen = [name for line in block.splitlines() for name in line.split("import")[-1].split(", ")]
    assert sorted(name.strip() for name in seen if name.strip()) == sorted(torchcno.__all__)


def test_importing_the_package_imports_no_torch():
    code = "import sys, torchcno; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_the_package_takes_less_than_50_ms():
    code = "import time; t = time.perf_counter(); import torchcno; print(time.perf_counter() - t)"
    command = [sys.executable, "-c", code]
    seconds = [float(subprocess.check_output(command, text=True)) for _ in range(3)]
    assert min(seconds) < 0.05


def test_a_network_alone_imports_no_compiler():
    code = "import sys; from torchcno import CNO; sys.exit('torch._dynamo' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_version_is_the_installed_one():
    assert torchcno.__version__ == version("torchcno")


def test_a_checkout_that_is_not_installed_knows_its_version(tmp_path):
    source = str(Path(torchcno.__file__).parents[1])
    code = f"import sys; sys.path.insert(0, {source!r}); import torchcno as t; print(t.__version__)"
    command = [sys.executable, "-I", "-S", "-c", code]  # without site-packages
    said = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path).stdout
    assert said.strip() == torchcno.__version__
