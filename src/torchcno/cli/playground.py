"""`cno playground`: a page on which a person draws inputs and sees what networks answer."""

import errno
from functools import partial
from pathlib import Path
from typing import Annotated

from torchcno.cli.arguments import check_target, describe

FIRST = "poisson"  # what is shown where nothing is named
NAMES = "run folders, or names of networks that come with torchcno"


def playground(
    runs: Annotated[tuple[str, ...], describe(NAMES, "all of these")] = (),
    /,
    *,
    port: Annotated[int, describe("port on this machine", "a free one")] = 0,
    static: Annotated[
        Path | None,
        describe("write the page to this .html file, in place of serving it", "", "FILE"),
    ] = None,
    runtime: Annotated[
        Path | None, describe("for --static: the onnxruntime-web package", "npm fetches it", "FILE")
    ] = None,
) -> None:
    """Draw an input in the browser, and see the answer while you draw.

    The page shows the answers of one or more networks, the solver's truth, the
    error, and how much each network doubts. Networks of one problem stand side by
    side; of several problems, one is chosen on the page. It is served on this
    machine alone, at an address with a secret token. Ctrl-C ends it.

    With --static the page is one file with the network inside, for any web server.

    examples:
      cno playground
      cno playground navier-stokes
      cno playground runs/cno runs/fno runs/unet
      cno playground poisson --static playground.html
    """
    from torchcno.runs.pretrained import find_run, pretrained

    if static is not None:
        write_static_page([find_run(word) for word in runs or (FIRST,)], static, runtime)
        return
    if not 0 <= port < 2**16:
        raise ValueError(f"--port is {port}; use 1024 to 65535, or 0 for a free one.")
    from torchcno.playground.answers import group_by_problem, open_playground
    from torchcno.playground.server import PlaygroundServer, serve

    folders = [find_run(word) for word in runs or dict.fromkeys((FIRST, *pretrained()))]
    openers = {
        problem: partial(open_playground, some)
        for problem, some in group_by_problem(folders).items()
    }
    if runs:  # what a person names is tried at once
        opened = {problem: open_one() for problem, open_one in openers.items()}
        openers = {problem: partial(opened.__getitem__, problem) for problem in opened}
    try:
        server = PlaygroundServer(openers, port)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        raise ValueError(f"port {port} is not free; choose another, or leave it out.") from error
    print(f"The playground is at {server.address}\nCtrl-C ends it.", flush=True)
    serve(server)


def write_static_page(folders: list[Path], out: Path, runtime: Path | None) -> None:
    """The page of one network as a file."""
    if len(folders) != 1:
        raise ValueError(f"--static takes one network, not {len(folders)}; name one.")
    check_target(out, [".html"])
    from torchcno.playground.static import write_static_page

    size = write_static_page(folders[0], out, runtime)
    print(f"{out}: {size / 1e6:.1f} MB; it works from any web server, and asks none for anything.")
