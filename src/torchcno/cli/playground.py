"""`cno playground`: a page on which a person draws inputs and sees what networks answer."""

from typing import Annotated

from torchcno.cli.arguments import describe


def playground(
    runs: Annotated[
        tuple[str, ...],
        describe("run folders, or names of networks that come with torchcno", "poisson"),
    ] = (),
    /,
    *,
    port: Annotated[int, describe("port on this machine", "a free one")] = 0,
    open: Annotated[bool, describe("open the page in the browser")] = False,
) -> None:
    """Draw an input in the browser and see the network's answer while you draw.

    The page shows the answers of one or more networks, the solver's truth, the
    error, and how much each network doubts. It is served on this machine alone, at
    an address with a secret token. Ctrl-C ends it.

    examples:
      cno playground
      cno playground navier-stokes
      cno playground runs/cno runs/fno runs/unet
    """
    from torchcno.playground.answers import open_playground
    from torchcno.playground.server import PlaygroundServer, serve
    from torchcno.runs.pretrained import find_run

    folders = [find_run(word) for word in runs or ("poisson",)]
    server = PlaygroundServer(open_playground(folders), port)
    print(f"The playground is at {server.address}\nCtrl-C ends it.", flush=True)
    if open:
        import webbrowser

        webbrowser.open(server.address)
    serve(server)
