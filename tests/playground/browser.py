"""Headless Chromium by its own protocol over a pipe: real mouse and key events, screenshots."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-extensions",
    "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip


class Browser:
    """One page of a browser."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading, self._writing = reading, writing
        self._rest, self._number = b"", 0
        self.events: list[dict[str, Any]] = []
        self._session = ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        found = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = found["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """What the browser answers to a command; events that come before it are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._writing, json.dumps(message).encode() + b"\0")
        while True:
            found = self._read()
            if found.get("id") == self._number:
                if "error" in found:
                    raise RuntimeError(f"{method}: {found['error']}")
                return found["result"]
            self.events.append(found)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._reading, 1 << 20)
            if not part:
                raise RuntimeError("the browser ended")
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def open(self, address: str) -> None:
        self.call("Page.navigate", url=address)

    def run(self, expression: str) -> Any:
        """The value of an expression of the page, awaited."""
        found = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in found:
            raise RuntimeError(json.dumps(found["exceptionDetails"])[:2000])
        return found["result"].get("value")

    def wait(self, condition: str, seconds: float = 30) -> None:
        """Until an expression of the page holds."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with contextlib.suppress(RuntimeError):
                if self.run(f"Boolean({condition})"):
                    return
            time.sleep(0.02)
        raise TimeoutError(f"{condition} does not hold; the page said {self.complaints()}")

    def mouse(self, kind: str, x: float, y: float) -> None:
        pressed = 0 if kind == "mouseReleased" else 1
        button = {} if kind == "mouseMoved" else {"clickCount": 1}
        self.call(
            "Input.dispatchMouseEvent",
            type=kind,
            x=x,
            y=y,
            button="left",
            buttons=pressed,
            **button,
        )

    def drag(self, places: list[tuple[float, float]], pause: float = 0.0) -> None:
        """Press at the first place, move over the others, let go at the last."""
        self.mouse("mousePressed", *places[0])
        for place in places[1:]:
            self.mouse("mouseMoved", *place)
            time.sleep(pause)
        self.mouse("mouseReleased", *places[-1])

    def key(self, name: str) -> None:
        """Press a key and let it go."""
        code = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}[name]
        for kind in ("rawKeyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=name,
                code=name,
                windowsVirtualKeyCode=code,
            )

    def click(self, selector: str) -> None:
        self.drag([self.middle_of(selector)])

    def middle_of(self, selector: str) -> tuple[float, float]:
        """Where an element is, once it is in view."""
        x, y = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); "
            "e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect(); "
            "return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        return x, y

    def resize(self, width: int, height: int, scale: float = 1) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width < 600,
        )

    def prefer(self, scheme: str) -> None:
        """Light or dark."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def screenshot(self, path: Path, full: bool = False) -> None:
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=full)
        path.write_bytes(base64.b64decode(found["data"]))

    def complaints(self) -> list[str]:
        """What the page's console and log have said."""
        self.run("0")  # what is on its way arrives before the answer
        found = []
        for event in self.events:
            kind, what = event.get("method"), event.get("params", {})
            if kind == "Runtime.exceptionThrown":
                found.append(json.dumps(what["exceptionDetails"])[:800])
            elif kind == "Log.entryAdded" and what["entry"]["level"] != "verbose":
                found.append(what["entry"]["text"] + " " + what["entry"].get("url", ""))
            elif kind == "Runtime.consoleAPICalled":
                found.append(json.dumps(what["args"])[:800])
        return found

    def requests(self) -> list[str]:
        """The addresses that the page has asked for."""
        self.run("0")
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]


@contextlib.contextmanager
def open_browser(profile: Path) -> Iterator[Browser]:
    """A browser of its own, which ends with the block."""
    command_out, command_in = os.pipe()
    answer_out, answer_in = os.pipe()

    def as_three_and_four() -> None:
        # Through high numbers first, as a pipe may lie on 3 or 4 itself.
        os.dup2(command_out, 103)
        os.dup2(answer_in, 104)
        os.dup2(103, 3)
        os.dup2(104, 4)

    process = subprocess.Popen(
        [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}"],
        preexec_fn=as_three_and_four, close_fds=False,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(command_out)
    os.close(answer_in)
    try:
        browser = Browser(answer_out, command_in)
        yield browser
        with contextlib.suppress(RuntimeError, OSError):  # it may be gone before it answers
            browser.call("Browser.close")
        process.wait(20)
    finally:
        process.kill()
        process.wait()
        os.close(command_in)
        os.close(answer_out)
