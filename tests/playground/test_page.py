"""The page in a browser, by real events of the mouse and the keyboard."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from torchcno.playground.answers import Playground, View
from torchcno.playground.server import PlaygroundServer
from torchcno.problems.airfoil import Airfoil
from torchcno.problems.darcy import Darcy
from torchcno.problems.navier_stokes import NavierStokes
from torchcno.problems.transport import DiscontinuousTransport
from torchcno.runs.plain import from_plain

pytestmark = pytest.mark.skipif(
    shutil.which("chromium") is None, reason="there is no Chromium here"
)
SETTLED = "document.body.dataset.settled == state.version"


@dataclass(frozen=True)
class Page:
    """A page that has come to rest."""

    browser: Any
    playground: Playground

    def place(self, x: float, y: float) -> tuple[float, float]:
        """The pixel of a place of the drawing, y upwards."""
        self.browser.middle_of("#overlay")
        left, top, size = self.browser.run(
            "(b => [b.x, b.y, b.width])(document.querySelector('#overlay').getBoundingClientRect())"
        )
        along_y, along_x = self.browser.run("[inPicture(0), inPicture(1)]")
        right = along_x["start"] + along_x["scale"] * x
        up = along_y["start"] + along_y["scale"] * y
        return left + right * size, top + (1 - up) * size

    def draw(self, *places: tuple[float, float]) -> None:
        """Press, move and let go, and wait for all answers."""
        self.browser.drag([self.place(*one) for one in places])
        self.settle()

    def settle(self) -> None:
        self.browser.wait(SETTLED)

    def view(self) -> View:
        return from_plain(View, self.browser.run("view()"), "view")

    def shown(self, name: str, of: str = "answered") -> np.ndarray:
        shape, values = self.browser.run(
            f"(f => [f.shape, [...f.values]])(state.{of}.fields['{name}'])"
        )
        return np.array(values).reshape(shape)

    def scene(self) -> dict:
        return self.browser.run("drawing.scene()")

    def pixels(self, selector: str) -> list[int]:
        """The colours of a canvas, as painted."""
        return self.browser.run(
            "(c => { const copy = new OffscreenCanvas(c.width, c.height).getContext('2d'); "
            "copy.drawImage(c, 0, 0); "
            "return [...copy.getImageData(0, 0, c.width, c.height).data]; })"
            f"(document.querySelector('{selector}'))"
        )


@pytest.fixture
def page(browser: Any, server: PlaygroundServer, small: Playground) -> Iterator[Page]:
    browser.resize(1400, 900)
    browser.prefer("light")
    browser.events.clear()
    browser.open("about:blank")
    browser.open(server.address)
    browser.wait(f"typeof state !== 'undefined' && {SETTLED}")
    yield Page(browser, small)
    assert browser.complaints() == []
    assert all(url.startswith((server.address, "data:")) for url in browser.requests())


def test_drawing_is_answered_by_the_network_and_the_solver(page):
    before, places = page.shown("input"), [(0.2, 0.5), (0.3, 0.5), (0.5, 0.5), (0.7, 0.5)]
    pictures = [page.pixels(f"#{name} .picture canvas") for name in ("answer-0", "truth")]
    page.draw(*places)
    view = page.view()
    assert len(view.scene["rings"]) > 4  # the two that were there, and a line
    change = np.abs(page.shown("input") - before)[0]
    assert change[10:14].mean() > 5 * change[:4].mean()  # along the middle, and not at the edge
    expected = page.playground.answer(view).fields
    for name in ("input", "answer 0"):
        assert np.allclose(page.shown(name), expected[name][0].numpy(), rtol=1e-6, atol=1e-7)
    truth = page.playground.truth(view).fields["truth"][0].numpy()
    assert np.allclose(page.shown("truth", of="truth"), truth, rtol=1e-6, atol=1e-9)
    share = np.abs(expected["answer 0"][0].numpy() - truth).sum() / np.abs(truth).sum()
    shown = page.browser.run("+document.querySelector('#error-0').dataset.share")
    assert shown == pytest.approx(share, rel=1e-4)
    assert pictures[0] != page.pixels("#answer-0 .picture canvas")
    assert pictures[1] != page.pixels("#truth .picture canvas")


def test_a_spot_is_dragged(page):
    (x, y, width, height), other = page.scene()["rings"]
    page.draw((x, y), (x + 0.1, y), (x + 0.2, y - 0.1))
    moved, still = page.scene()["rings"]
    assert moved == pytest.approx([x + 0.2, y - 0.1, width, height], abs=0.005)
    assert still == other


def test_answers_come_while_the_mouse_is_down(page):
    x, y = page.place(0.2, 0.2)
    page.browser.mouse("mousePressed", x, y)
    for i in range(20):
        page.browser.mouse("mouseMoved", x + 5 * i, y)
    page.browser.wait("state.dragging && state.answered.version === state.version")
    assert page.browser.run("times.length") > 0
    page.browser.mouse("mouseReleased", x + 95, y)
    page.settle()


def test_brushes_eraser_and_buttons(page):
    browser = page.browser
    browser.click("label:has(#pen-minus)")
    browser.click("label:has(#brush-blob)")
    page.draw((0.8, 0.8))
    ((*_, height),) = page.scene()["blobs"]
    assert height < 0
    browser.click("label:has(#pen-erase)")
    page.draw((0.8, 0.75), (0.8, 0.85))
    assert page.scene()["blobs"] == []
    seed = page.scene()["seed"]
    browser.click("#new")
    browser.wait(f"drawing.scene().seed !== {seed}")
    browser.click("#clear")
    page.settle()
    assert page.scene() == {"seed": None, "blobs": [], "rings": []}
    assert np.all(page.shown("input") == 0)
    browser.click("#reset")
    page.settle()
    assert page.scene()["seed"] == 0


def test_sliders_change_the_grid_the_shift_and_the_constants(page):
    browser = page.browser
    for name, key in (("resolution", "ArrowRight"), ("shift", "ArrowRight"), ("K", "ArrowLeft")):
        browser.click(f"#slide-{name}")
        browser.key(key)
    page.settle()
    view = page.view()
    assert view.resolution != 24
    assert view.shift > 0
    assert view.constants["K"] != 4
    assert page.shown("input").shape == (1, view.resolution, view.resolution)
    expected = page.playground.answer(view).fields["answer 0"][0].numpy()
    assert np.allclose(page.shown("answer 0"), expected, rtol=1e-6, atol=1e-7)


def test_what_is_refused_is_said_and_the_page_goes_on(page):
    page.browser.run("values.K = 30; changed()")  # 24 points do not resolve 30 modes
    page.settle()
    assert "does not resolve K = 30" in page.browser.run("$('message').textContent")
    page.browser.events.clear()  # the browser's own word on a reply of 400
    page.browser.run("values.K = 4; changed()")
    page.settle()
    assert page.browser.run("$('message').hidden")
    assert page.shown("answer 0").shape == (1, 24, 24)


def test_another_problem_is_chosen_on_the_page(browser, small, untrained, serving):
    other = untrained(DiscontinuousTransport())
    browser.resize(1400, 900)
    browser.events.clear()
    here = f"typeof state !== 'undefined' && {SETTLED} && setup.problem === "
    with serving(small, **{"discontinuous-transport": lambda: other}) as server:
        browser.open(server.address)
        browser.wait(here + "'poisson'")
        browser.run("$('problem').focus()")
        browser.key("ArrowDown")
        browser.wait(here + "'discontinuous-transport'")
        page = Page(browser, other)
        page.draw((0.3, 0.3), (0.5, 0.4), (0.6, 0.5))
        expected = other.answer(page.view()).fields
        for name, field in expected.items():
            assert np.allclose(page.shown(name), field[0].numpy(), rtol=1e-5, atol=1e-6)
        browser.run("$('problem').focus()")
        browser.key("ArrowUp")
        browser.wait(here + "'poisson'")
        assert browser.complaints() == []
        assert all(url.startswith((server.address, "data:")) for url in browser.requests())
        browser.open("about:blank")


def test_percentages_have_two_digits_and_no_powers_of_ten(page):
    shown = page.browser.run("[0.0123, 0.0996, 0.994, 0.996, 28].map(percent)")
    assert shown == ["1.2 %", "10 %", "99 %", "100 %", "2800 %"]


def test_one_problem_leaves_nothing_to_choose(page):
    assert page.browser.run("$('problems').hidden")


def test_arrow_keys_move_a_spot(page):
    before = page.scene()["rings"][-1]
    page.browser.run("$('overlay').focus()")
    page.browser.key("ArrowUp")
    page.settle()
    assert page.scene()["rings"][-1][1] == pytest.approx(before[1] + 0.01, abs=1e-4)


def test_dark_mode_paints_anew(page):
    light = page.pixels("#answer-0 .picture canvas")
    ground = "getComputedStyle(document.body).backgroundColor"
    before, neutral = page.browser.run(f"[{ground}, colours.signed[128]]")
    page.browser.prefer("dark")
    page.browser.wait(f"{ground} !== '{before}' && colours.signed[128] !== {neutral}")
    dark = page.pixels("#answer-0 .picture canvas")
    assert np.mean(dark) < np.mean(light) - 20


@pytest.mark.parametrize("width", [1400, 1000, 390])
def test_it_fits_every_width(page, width):
    page.browser.resize(width, 844)
    page.browser.wait(f"innerWidth === {width}")
    assert page.browser.run("document.documentElement.scrollWidth") <= width
    page.draw((0.5, 0.1), (0.6, 0.1))
    ring = page.scene()["rings"][2]
    assert ring[:2] == pytest.approx([0.5, 0.1], abs=0.005)
    top = page.browser.run("document.querySelector('#answer-0').getBoundingClientRect().top")
    assert top < 844  # in sight of who draws


@pytest.mark.parametrize(
    ("problem", "places", "changed"),
    [
        (NavierStokes(N=32, T=0.1), [(0.5, 0.75), (0.5, 0.8), (0.5, 0.85)], "curve"),
        (DiscontinuousTransport(), [(0.3, 0.3), (0.4, 0.4), (0.6, 0.5)], "disks"),
        (Darcy(), [(0.2, 0.2), (0.3, 0.2), (0.4, 0.2)], "blobs"),
        (Airfoil(), [(0.3, 0.45), (0.4, 0.42), (0.5, 0.48)], "psi"),
    ],
    ids=["layers", "disks", "materials", "bumps"],
)
def test_every_kind_of_input_is_dragged(browser, untrained, serving, problem, places, changed):
    playground = untrained(problem)
    browser.resize(1400, 900)
    browser.events.clear()
    with serving(playground) as server:
        browser.open(server.address)
        answered = "state.answered && state.answered.version === state.version"
        browser.wait(f"typeof state !== 'undefined' && {answered}")
        page = Page(browser, playground)
        before = page.scene()
        browser.drag([page.place(*one) for one in places])
        browser.wait(answered)
        after = page.scene()
        assert {name for name in after if after[name] != before[name]} == {changed}
        expected = playground.answer(page.view()).fields
        for name, field in expected.items():
            assert np.allclose(page.shown(name), field[0].numpy(), rtol=1e-5, atol=1e-6)
        assert browser.complaints() == []
        browser.open("about:blank")
