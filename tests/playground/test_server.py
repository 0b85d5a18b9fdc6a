import http.client
import json
import random
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from torchcno.playground import server as module
from torchcno.playground.answers import Playground, Reply, View
from torchcno.playground.server import MOST_BYTES, PlaygroundServer, Refusal, Worker
from torchcno.problems.wave import Wave


class Answer:
    def __init__(self, reply: http.client.HTTPResponse) -> None:
        self.status, self.headers, self.body = reply.status, dict(reply.getheaders()), reply.read()

    @property
    def error(self) -> str:
        return json.loads(self.body)["error"]

    @property
    def fields(self) -> dict[str, np.ndarray]:
        (length,) = struct.unpack("<I", self.body[:4])
        shapes = json.loads(self.body[4 : 4 + length])["fields"]
        values, fields = np.frombuffer(self.body[4 + length :], "<f4"), {}
        for name, shape in shapes.items():
            fields[name], values = values[: np.prod(shape)].reshape(shape), values[np.prod(shape) :]
        assert not len(values)
        return fields


def ask(server: PlaygroundServer, method: str, path: str, body=None, **headers: str) -> Answer:
    connection = http.client.HTTPConnection(*server.server_address, timeout=60)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, named)
    answer = Answer(connection.getresponse())
    connection.close()
    return answer


def post(server: PlaygroundServer, what: str, view: object, **headers: str) -> Answer:
    headers = {"Content_Type": "application/json"} | headers
    body = view if isinstance(view, bytes) else json.dumps(view).encode()
    return ask(server, "POST", f"/{server.token}/{what}", body, **headers)


def raw(server: PlaygroundServer, request: bytes) -> bytes:
    with socket.create_connection(server.server_address, timeout=20) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


VIEW = {"scene": {"seed": 1}, "resolution": 24}


def test_it_listens_on_this_machine_alone(server):
    assert server.socket.getsockname()[0] == "127.0.0.1"


def test_addresses_cannot_be_guessed(server, small):
    with PlaygroundServer({"poisson": lambda: small}) as other:
        assert other.token != server.token
    assert len(server.token) >= 32


def test_it_ends_at_once_and_no_thread_of_it_is_left(small):
    before = set(threading.enumerate())
    server = PlaygroundServer({"poisson": lambda: small})
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    idle = http.client.HTTPConnection(*server.server_address, timeout=60)
    idle.request("GET", f"/{server.token}/")  # and the connection stays open
    assert Answer(idle.getresponse()).status == 200
    assert post(server, "answer", VIEW).status == 200
    start = time.monotonic()
    server.shutdown()
    server.server_close()
    serving.join()
    idle.close()
    assert time.monotonic() - start < module.IDLE / 2
    assert set(threading.enumerate()) <= before


def test_an_answer_is_the_networks_own(server, small):
    fields = post(server, "answer", VIEW).fields
    expected = small.answer(View({"seed": 1}, 24)).fields
    for name in ("input", "answer 0"):
        assert np.array_equal(fields[name], expected[name][0].float().numpy())
    truth = post(server, "truth", VIEW).fields["truth"]
    assert np.allclose(truth, small.truth(View({"seed": 1}, 24)).fields["truth"][0].numpy())
    assert post(server, "doubt", VIEW).fields["doubt 0"].shape == (1, 24, 24)


def test_a_problem_is_opened_when_somebody_goes_there(small, untrained, serving):
    other, opened = untrained(Wave(K=8)), []

    def open_other() -> Playground:
        opened.append("wave")
        return other

    with serving(small, wave=open_other) as server:
        for name, playground in (("", small), ("poisson/", small), ("wave/", other)):
            assert (playground is other) or not opened
            assert ask(server, "GET", f"/{server.token}/{name}").status == 200
            assert ask(server, "GET", f"/{server.token}/{name}page.js").status == 200
            fields = post(server, f"{name}answer", VIEW).fields
            expected = playground.answer(View({"seed": 1}, 24)).fields
            for what, field in expected.items():
                assert np.allclose(fields[what], field[0].float().numpy())
        assert opened == ["wave"]  # once
        for path in ("allen-cahn/", "wave/poisson/", "wave", "wave/../wave/", "/wave/"):
            assert ask(server, "GET", f"/{server.token}/{path}").status == 404
        assert ask(server, "GET", "/wave/").status == 403


def test_a_problem_that_cannot_be_opened_is_told_and_the_others_stay(small, serving):
    def fail() -> Playground:
        raise ValueError("the weights are damaged")

    with serving(small, **{"own data": fail}) as server:
        reply = ask(server, "GET", f"/{server.token}/own%20data/")
        assert reply.status == 500
        assert "the weights are damaged" in reply.error
        assert post(server, "answer", VIEW).status == 200


def test_the_page_may_ask_its_own_server_and_no_other(server):
    reply = ask(server, "GET", f"/{server.token}/")
    assert reply.status == 200
    policy = reply.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert "http" not in policy
    assert "Access-Control-Allow-Origin" not in reply.headers


@pytest.mark.parametrize("path", ["", "page.css", "page.js", "answer", "../answer"])
@pytest.mark.parametrize("token", ["", "x" * 32, "é", "%00"])
def test_who_lacks_the_token_is_refused(server, path, token):
    for method in ("GET", "POST"):
        path_ = f"/{token}/{path}".encode().decode("latin-1")
        reply = raw(server, f"{method} {path_} HTTP/1.1\r\nHost: {next(iter(server.names))}\r\n"
                            "Content-Length: 0\r\n\r\n".encode("latin-1"))  # fmt: skip
        assert reply.startswith(b"HTTP/1.1 403"), reply


@pytest.mark.parametrize(
    "path",
    [
        "../server.py", "..%2fserver.py", "/etc/passwd", "//etc/passwd", "page.css/../page.html",
        "%2e%2e/%2e%2e/cli/__init__.py", "page.html", "__init__.py", "..\\server.py", "page.js?x=1",
    ],
)  # fmt: skip
def test_no_path_reaches_the_disk(server, path):
    assert ask(server, "GET", f"/{server.token}/{path}").status == 404


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", "localhost:1"])
def test_a_foreign_name_for_this_machine_is_refused(server, host):
    assert ask(server, "GET", f"/{server.token}/", Host=host).status == 403
    assert post(server, "answer", VIEW, Host=host).status == 403


def test_its_other_name_is_no_foreign_name(server):
    host = f"localhost:{server.server_address[1]}"
    assert post(server, "answer", VIEW, Host=host, Origin=f"http://{host}").status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": "https://127.0.0.1"},
        {"Sec_Fetch_Site": "cross-site"}, {"Sec_Fetch_Site": "same-site"},
    ],
)  # fmt: skip
def test_a_page_of_another_origin_is_refused(server, headers):
    assert post(server, "answer", VIEW, **headers).status == 403
    assert ask(server, "OPTIONS", f"/{server.token}/answer", **headers).status >= 400


def test_a_form_of_another_page_is_refused(server):
    assert post(server, "answer", VIEW, Content_Type="text/plain").status == 415


def test_a_body_that_is_too_long_is_refused_unread(server):
    reply = raw(server, (
        f"POST /{server.token}/answer HTTP/1.1\r\nHost: {next(iter(server.names))}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {MOST_BYTES + 1}\r\n\r\n"
    ).encode())  # fmt: skip
    assert reply.startswith(b"HTTP/1.1 413")
    assert b"Connection: close" in reply


@pytest.mark.parametrize(
    "length", ["", "Content-Length: -1\r\n", "Content-Length: 1\r\nContent-Length: 2\r\n",
               "Transfer-Encoding: chunked\r\n", "Content-Length: 9e9\r\n"],
)  # fmt: skip
def test_a_body_without_a_plain_length_is_refused(server, length):
    head = f"POST /{server.token}/answer HTTP/1.1\r\nHost: {next(iter(server.names))}\r\n"
    reply = raw(server, f"{head}Content-Type: application/json\r\n{length}\r\n{{}}".encode())
    assert reply.startswith(b"HTTP/1.1 411")


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b"[" * 60_000, b"\xff\xfe", b'{"resolution": 1e999}',
        b'{"resolution": 24, "shift": NaN}', b'{"resolution": 24, "shift": -Infinity}',
        b'{"resolution": 24, "scene": {"blobs": [[0.5, 0.5, 0.1, NaN]]}}',
        b'{"resolution": 24, "scene": {"blobs": [[0.5, 0.5, 0.1, "nan"]]}}',
        b'{"resolution": 24, "scene": {"blobs": [[0.5, 0.5]]}}',
        b'{"resolution": 24, "scene": {"blobs": [[[0.5], 0.5, 0.1, 1]]}}',
        b'{"resolution": 24, "scene": {"seed": true}}', b'{"resolution": 24, "scene": []}',
        b'{"resolution": 24, "shift": 1' + b"0" * 400 + b"}",
        b'{"resolution": 24, "shift": 1' + b"0" * 5000 + b"}",
        b'{"resolution": 24, "unknown": 1}', b'{"resolution": 24, "constants": {"K": {}}}',
    ],
)  # fmt: skip
@pytest.mark.parametrize("what", ["answer", "truth", "doubt"])
def test_what_is_no_view_is_refused_in_words(server, what, body):
    reply = post(server, what, body)
    assert reply.status == 400, reply.body
    assert reply.error


def test_noise_is_refused_and_the_server_goes_on(server):
    draw = random.Random(0)
    for _ in range(60):
        noise = draw.randbytes(draw.randrange(200))
        assert post(server, "answer", noise).status == 400
        raw(server, noise)
    assert post(server, "answer", VIEW).status == 200


def test_a_request_that_breaks_off_is_no_harm(server):
    head = f"POST /{server.token}/answer HTTP/1.1\r\nHost: {next(iter(server.names))}\r\n"
    raw(server, f"{head}Content-Type: application/json\r\nContent-Length: 50\r\n\r\n{{".encode())
    assert post(server, "answer", VIEW).status == 200


def test_two_hundred_at_once_all_get_their_own_answer(server, small):
    views = [{"scene": {"seed": i}, "resolution": (24, 36)[i % 2]} for i in range(200)]
    start = threading.Barrier(200)

    def one(view):
        start.wait()
        return post(server, "answer", view)

    with ThreadPoolExecutor(200) as pool:
        replies = list(pool.map(one, views))
    assert [reply.status for reply in replies] == [200] * 200
    for i, (view, reply) in enumerate(zip(views, replies, strict=True)):
        grid = small.problem.grid(view["resolution"])
        source = small.problem.sample_inputs(grid, 1, torch.Generator().manual_seed(i))
        assert np.array_equal(reply.fields["input"], source[0].float().numpy())
        if i % 10 == 0:
            expected = small.answer(View(view["scene"], view["resolution"])).fields["answer 0"]
            assert np.array_equal(reply.fields["answer 0"], expected[0].numpy())


def test_the_queue_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "MOST_WAITING", 3)
    worker, go, began = Worker(), threading.Event(), threading.Semaphore(0)

    def wait(view: View) -> Reply:
        began.release()
        go.wait(20)
        return Reply()

    with ThreadPoolExecutor(3) as pool:
        jobs = [pool.submit(worker.compute, wait, View()) for _ in range(3)]
        began.acquire()
        while worker._places._value:  # until all three have a place
            time.sleep(0.002)
        with pytest.raises(Refusal, match="too many requests wait"):
            worker.compute(wait, View())
        go.set()
        assert len({job.result(20) for job in jobs}) == 1
    assert worker.compute(lambda view: Reply(), View())  # there is room again


def test_connections_are_bounded(small, monkeypatch):
    monkeypatch.setattr(module, "MOST_CONNECTIONS", 2)
    with PlaygroundServer({"poisson": lambda: small}) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        held = [socket.create_connection(server.server_address, timeout=20) for _ in range(2)]
        while server._connections._value:
            time.sleep(0.002)
        assert raw(server, b"").startswith(b"HTTP/1.1 503")
        for connection in held:
            connection.close()
        while not server._connections._value:
            time.sleep(0.002)
        assert post(server, "answer", VIEW).status == 200
        server.shutdown()
        thread.join()


def test_a_fault_of_ours_is_told_and_the_server_goes_on(server, small, monkeypatch):
    def fail(view: View) -> Reply:
        raise RuntimeError("the solver broke")

    routes = server.room("").routes
    monkeypatch.setitem(routes, "truth", (routes["truth"][0], fail))
    reply = post(server, "truth", VIEW)
    assert reply.status == 500
    assert "the solver broke" in reply.error
    assert post(server, "answer", VIEW).status == 200
