"""The page's server: loopback alone, for whoever knows the token, and bounded in everything.

A request is answered where all of this holds:

- it came to 127.0.0.1 under that name or `localhost` (`Host`), so that no foreign name that was
  pointed here reaches it;
- no page of another origin sent it (`Origin`, `Sec-Fetch-Site`);
- its path begins with the token, and the rest is in tables: no path reaches the disk;
- its body is JSON of at most 64 KiB.
"""

import contextlib
import hmac
import json
import secrets
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooLate
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from torchcno.playground.answers import Playground, Reply, View, describe_problem
from torchcno.playground.page import ASSETS, render_page
from torchcno.runs.plain import from_plain

HOST = "127.0.0.1"
MOST_BYTES = 64 * 1024  # of a body
MOST_CONNECTIONS = 512  # open at a time; others are turned away
MOST_WAITING = 256  # requests per worker
PATIENCE = 120.0  # seconds that a request waits for its answer
IDLE = 30.0  # seconds after which a silent connection is closed

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

FULL = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Refusal(Exception):  # noqa: N818
    """A request that is not answered, and why."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status, self.why = status, why


class Worker:
    """One thread that computes, and a queue of bounded length before it."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._places = threading.BoundedSemaphore(MOST_WAITING)

    def compute(self, make: Callable[[View], Reply], view: View) -> bytes:
        """The packed reply, once its turn has come."""
        if not self._places.acquire(blocking=False):
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "too many requests wait; try again.")
        try:
            job = self._pool.submit(lambda: make(view).pack())
        except BaseException:
            self._places.release()
            raise
        job.add_done_callback(lambda _: self._places.release())
        try:
            return job.result(PATIENCE)
        except TooLate:
            job.cancel()
            why = f"there was no answer within {PATIENCE:g} s; try a coarser grid."
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, why) from None

    def end(self) -> None:
        """Leave what waits, and wait for what is being computed."""
        self._pool.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class Room:
    """One problem: its page, and what is computed for it, each by a worker."""

    page: bytes
    routes: Mapping[str, tuple[Worker, Callable[[View], Reply]]]


class PlaygroundServer(ThreadingHTTPServer):
    """Serves playgrounds on a free port of this machine, or on a given one.

    The first is at the server's address, and each at `NAME/` below it. The first is opened at once,
    and the others when somebody goes there.
    """

    daemon_threads = False  # Python may abort where a thread is still at work in the end
    request_queue_size = MOST_CONNECTIONS

    def __init__(self, openers: Mapping[str, Callable[[], Playground]], port: int = 0) -> None:
        self.token = secrets.token_urlsafe(24)
        self._openers = dict(openers)
        self._networks, self._solver = Worker(), Worker()  # the solver's turn may be long
        self._rooms: dict[str, Room] = {}
        self._opening = threading.Lock()
        self.room("")
        self._connections = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._open: set[Any] = set()  # sockets of connections
        super().__init__((HOST, port), Handler)
        own = self.server_address[1]
        self.names = {f"{HOST}:{own}", f"localhost:{own}"}

    def room(self, name: str) -> Room | None:
        """The room of a problem, opened; "" is the first. None: there is no such problem."""
        problem = name or next(iter(self._openers))
        if problem not in self._openers:
            return None
        with self._opening:
            if problem not in self._rooms:
                self._rooms[problem] = self._furnish(self._openers[problem]())
            return self._rooms[problem]

    def _furnish(self, playground: Playground) -> Room:
        setup = playground.setup()
        setup["problems"] = {name: describe_problem(name)[0] for name in self._openers}
        playground.answer(View(setup["scene"], setup["resolution"]))  # what compiles, compiles now
        return Room(
            render_page(setup),
            {
                "answer": (self._networks, playground.answer),
                "doubt": (self._networks, playground.doubt),
                "truth": (self._solver, playground.truth),
                "deal": (self._networks, playground.deal),
            },
        )

    @property
    def address(self) -> str:
        """Where the page is; who knows it may use it."""
        return f"http://{HOST}:{self.server_address[1]}/{self.token}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        """A thread for the connection, while there are not too many."""
        if not self._connections.acquire(blocking=False):
            with contextlib.suppress(OSError):
                request.sendall(FULL)
            self.shutdown_request(request)
            return
        self._open.add(request)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """The connection, until it ends."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._open.discard(request)
            self._connections.release()

    def server_close(self) -> None:
        """Take no more, end all connections, and wait for their threads."""
        for worker in (self._networks, self._solver):
            worker.end()
        for request in tuple(self._open):
            with contextlib.suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)
        super().server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke is its owner's matter."""


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: PlaygroundServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "torchcno", ""
    timeout = IDLE
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body leave in one packet

    def do_GET(self) -> None:
        """The page and its parts."""
        self._answer(self._file)

    def do_POST(self) -> None:
        """What is computed."""
        self._answer(self._computed)

    def _answer(self, make: Callable[[], tuple[bytes, str]]) -> None:
        try:
            content, kind = make()
            status = HTTPStatus.OK
        except Refusal as refusal:
            # Its body may be unread, so that what follows on the connection is not a request.
            self.close_connection = True
            content, kind = _say(refusal.why)
            status = refusal.status
        except (ConnectionError, TimeoutError):
            self.close_connection = True
            return
        except Exception as error:  # of ours: the page says so, and the server goes on
            content, kind = _say(f"{type(error).__name__}: {error}")
            status = HTTPStatus.INTERNAL_SERVER_ERROR
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        for name, value in HEADERS.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)

    def _file(self) -> tuple[bytes, str]:
        room, name = self._find()
        files = {"": (room.page, "text/html; charset=utf-8"), **ASSETS}
        if name not in files:
            raise Refusal(HTTPStatus.NOT_FOUND, "there is no such file here.")
        return files[name]

    def _computed(self) -> tuple[bytes, str]:
        room, name = self._find()
        if name not in room.routes:
            raise Refusal(HTTPStatus.NOT_FOUND, "there is nothing to compute of this name.")
        body = self._body()
        worker, make = room.routes[name]
        try:
            view = from_plain(View, json.loads(body, parse_constant=_refuse_constant), "request")
            return worker.compute(make, view), "application/octet-stream"
        except (ValueError, OverflowError, RecursionError) as error:
            raise Refusal(HTTPStatus.BAD_REQUEST, str(error)) from error

    def _find(self) -> tuple[Room, str]:
        """Where something is asked for, and what, once the request is known to be ours."""
        hosts, origins = self.headers.get_all("Host", []), self.headers.get_all("Origin", [])
        if len(hosts) != 1 or hosts[0].lower() not in self.server.names:
            raise Refusal(HTTPStatus.FORBIDDEN, "this server has another name.")
        own = {f"http://{name}" for name in self.server.names}
        if any(origin.lower() not in own for origin in origins):
            raise Refusal(HTTPStatus.FORBIDDEN, "another page may not ask here.")
        if self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            raise Refusal(HTTPStatus.FORBIDDEN, "another page may not ask here.")
        token, _, name = self.path.removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            raise Refusal(HTTPStatus.FORBIDDEN, "the address lacks its token; copy all of it.")
        problem, _, what = name.rpartition("/")
        room = self.server.room(unquote(problem))
        if room is None:
            raise Refusal(HTTPStatus.NOT_FOUND, "there is no such problem here.")
        return room, what

    def _body(self) -> bytes:
        lengths = self.headers.get_all("Content-Length", [])
        if "Transfer-Encoding" in self.headers or len(lengths) != 1 or not _is_number(lengths[0]):
            raise Refusal(HTTPStatus.LENGTH_REQUIRED, "say how long the body is.")
        if len(lengths[0]) > 9 or int(lengths[0]) > MOST_BYTES:
            why = f"the body is longer than {MOST_BYTES} bytes; draw less."
            raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, why)
        if self.headers.get_content_type() != "application/json":
            raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send application/json.")
        body = self.rfile.read(int(lengths[0]))
        if len(body) < int(lengths[0]):
            raise ConnectionError("the request ended before its body did")
        return body

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a drag is hundreds of requests."""


def _say(why: str) -> tuple[bytes, str]:
    return json.dumps({"error": why}).encode(), "application/json"


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdecimal()


def _refuse_constant(name: str) -> float:
    raise ValueError(f"the request holds {name}; give finite numbers.")


def serve(server: PlaygroundServer) -> None:
    """Answer until Ctrl-C."""
    with server:
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return
