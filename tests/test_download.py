"""A real server on localhost does what servers and lines do; the cache holds the file or none."""

import contextlib
import errno
import gzip
import hashlib
import http.server
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import tqdm

import gpt_numpy.hub as hub_room
from gpt_numpy.checkpoint import flatten, load_gpt2, write_safetensors
from gpt_numpy.hub import download, fetch_gpt2
from tests.tiny import N_HEAD, tiny_tensors

DATA = np.random.default_rng(0).bytes(1_000_000)
SIZE, SHA256 = len(DATA), hashlib.sha256(DATA).hexdigest()
HTML = b"\n<!DOCTYPE html><html>Sign in to the network</html>"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 1000000\n"


def git_sha1(data):
    return hashlib.sha1(f"blob {len(data)}\0".encode() + data).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers by server.behave(self); server.log keeps (method, path, Range) of each request."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        assert self.headers["Accept-Encoding"] == "identity"  # else the connection breaks
        self.server.log.append((self.command, self.path, self.headers.get("Range")))
        with contextlib.suppress(ConnectionError):
            self.server.behave(self)

    do_HEAD = do_GET

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", cut=None, **headers):
        """Send a status, headers and the body, or only its first `cut` bytes and hang up."""
        self.send_response(status)
        headers.setdefault("Content_Length", str(len(body)))
        for name, value in headers.items():
            if value is not None:
                self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body[:cut])
        if cut is not None or headers["Content_Length"] is None:
            self.wfile.flush()
            self.close_connection = True

    def file(self, data=DATA, cut=None, **headers):
        """Serve data as a good server does, ranges included."""
        start = int((self.headers.get("Range") or "bytes=0-")[6:-1])
        if start >= len(data):
            self.answer(416, Content_Range=f"bytes */{len(data)}")
        elif start:
            content_range = f"bytes {start}-{len(data) - 1}/{len(data)}"
            self.answer(206, data[start:], cut, Content_Range=content_range, **headers)
        else:
            self.answer(200, data, cut, **headers)


@pytest.fixture
def server(monkeypatch):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.log, server.behave = [], Handler.file
        server.handle_error = lambda *_: None  # a client that hangs up is part of the tests
        server.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("NO_PROXY", "*")
        yield server
        server.shutdown()


@pytest.fixture
def bars(monkeypatch):
    """Every progress bar of the test."""
    made = []

    class Bar(tqdm.tqdm):
        def __init__(self, **options):
            made.append(self)
            super().__init__(**options)

    monkeypatch.setattr(tqdm, "tqdm", Bar)
    return made


def get(server, folder, size=SIZE, digest=SHA256):
    download(f"{server.url}/x", folder / "x", size, digest)


def fails(server, folder, error=OSError, size=SIZE):
    """Download, which must fail -> the message; the file itself must be absent."""
    with pytest.raises(error) as caught:
        get(server, folder, size)
    message = str(caught.value)
    assert not (folder / "x").exists() and "\n" not in message
    if error is OSError:
        assert f"{server.url}/x" in message
    return message


def check_whole(folder):
    assert (folder / "x").read_bytes() == DATA
    assert [path.name for path in folder.iterdir()] == ["x"]


def ranges(server):
    return [ask[2] for ask in server.log]


def part_of(folder, data):
    path = folder / f"x.{SHA256[:16]}.part"
    if data is not None:
        path.write_bytes(data)
    return path


# ---- what succeeds


def test_a_good_server(server, tmp_path, bars):
    get(server, tmp_path)
    check_whole(tmp_path)
    assert server.log == [("GET", "/x", None)]
    assert [(bar.total, bar.n, bar.initial) for bar in bars] == [(SIZE, SIZE, 0)]


@pytest.mark.parametrize("size", [SIZE, None])
@pytest.mark.parametrize("digest", [SHA256, git_sha1(DATA)])
def test_either_hash_verifies_with_or_without_a_size(server, tmp_path, size, digest):
    get(server, tmp_path, size, digest)
    check_whole(tmp_path)


def chunked(handler):
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    for i in range(0, SIZE, 300_000):
        piece = DATA[i : i + 300_000]
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
    handler.wfile.write(b"0\r\n\r\n")


def gzipped(handler):
    handler.answer(200, gzip.compress(DATA), Content_Encoding="gzip")


@pytest.mark.parametrize("size", [SIZE, None])
@pytest.mark.parametrize(
    "behave", [chunked, gzipped, lambda handler: handler.answer(200, DATA, Content_Length=None)]
)
def test_no_content_length_or_that_of_the_gzip(server, tmp_path, bars, behave, size):
    server.behave = behave
    get(server, tmp_path, size)
    check_whole(tmp_path)
    assert [(bar.total, bar.n) for bar in bars] == [(size, SIZE)]  # never past 100 %


def test_a_busy_server_is_asked_again_when_it_says(server, tmp_path, monkeypatch):
    waits = []
    monkeypatch.setattr(time, "sleep", waits.append)
    replies = iter([("429", "3"), ("503", None), ("429", "Wed, 21 Oct 2099 07:28:00 GMT")])

    def behave(handler):
        status, wait = next(replies, (None, None))
        if status is None:
            handler.file()
        else:
            handler.answer(int(status), b"busy", Retry_After=wait)

    server.behave = behave
    get(server, tmp_path)
    check_whole(tmp_path)
    assert waits == [3, 2, 4]


def test_a_busy_server_that_never_comes_round_is_named(server, tmp_path, monkeypatch):
    waits = []
    monkeypatch.setattr(time, "sleep", waits.append)
    server.behave = lambda handler: handler.answer(429, Retry_After="0")
    assert "429" in fails(server, tmp_path)
    assert len(server.log) == 5 and waits == [0] * 4
    server.behave = lambda handler: handler.answer(503, Retry_After="86400")
    assert "503" in fails(server, tmp_path)
    assert len(server.log) == 6


# ---- the line is cut


def cut_at_600_000(handler):
    handler.file(cut=600_000 if not handler.headers.get("Range") else None)


@pytest.mark.parametrize("size", [SIZE, None])
def test_a_cut_line_is_an_error_and_the_second_run_resumes(server, tmp_path, bars, size):
    server.behave = cut_at_600_000
    assert "run again to resume" in fails(server, tmp_path, size=size)
    have = part_of(tmp_path, None).stat().st_size
    assert 500_000 < have <= 600_000
    get(server, tmp_path, size)
    check_whole(tmp_path)
    assert ranges(server) == [None, f"bytes={have}-"]
    assert (bars[1].total, bars[1].initial, bars[1].n) == (size, have, SIZE)


@pytest.mark.parametrize("headers", [{}, {"Content_Length": None}])
def test_a_server_that_always_cuts_gets_there_run_by_run(server, tmp_path, headers):
    server.behave = lambda handler: handler.file(cut=600_000, **headers)
    assert "run again to resume" in fails(server, tmp_path)
    get(server, tmp_path)
    check_whole(tmp_path)


def test_chunked_and_cut(server, tmp_path):
    def behave(handler):
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.write(b"%x\r\n%s\r\n" % (400_000, DATA[:400_000]))
        handler.close_connection = True

    server.behave = behave
    assert "run again to resume" in fails(server, tmp_path)
    server.behave = Handler.file
    get(server, tmp_path)
    check_whole(tmp_path)
    assert ranges(server)[1].startswith("bytes=")


def test_ctrl_c_keeps_the_part(server, tmp_path, monkeypatch):
    class Bar(tqdm.tqdm):
        def update(self, n):
            if self.n > 300_000:
                raise KeyboardInterrupt
            super().update(n)

    with monkeypatch.context() as patch:
        patch.setattr(tqdm, "tqdm", Bar)
        fails(server, tmp_path, KeyboardInterrupt)
    assert part_of(tmp_path, None).stat().st_size > 300_000
    get(server, tmp_path)
    check_whole(tmp_path)
    assert ranges(server)[1] is not None


def test_a_killed_process_keeps_the_part_and_frees_the_lock(server, tmp_path, hub):
    stall = threading.Event()

    def behave(handler):
        if handler.command == "GET" and "safetensors" in handler.path and not stall.is_set():
            data = hub["model.safetensors"]
            handler.answer(200, data, cut=len(data) // 2, Content_Length=str(len(data)))
            stall.wait(20)
        else:
            hub_like(hub)(handler)

    server.behave = behave
    code = "import sys; from gpt_numpy.hub import fetch_gpt2; fetch_gpt2(*sys.argv[1:])"
    arguments = [sys.executable, "-c", code, "gpt2-medium", str(tmp_path)]
    process = subprocess.Popen(arguments, stderr=subprocess.DEVNULL)
    deadline = time.time() + 20
    while time.time() < deadline and not any(
        path.stat().st_size for path in tmp_path.glob("gpt2-medium/model*.part")
    ):
        time.sleep(0.02)
    process.kill()
    process.wait()
    stall.set()
    assert load_gpt2(fetch_gpt2("gpt2-medium", tmp_path))[1] == N_HEAD
    assert ranges(server)[-1].startswith("bytes=")


def test_a_stalled_server_times_out(server, tmp_path, monkeypatch):
    monkeypatch.setattr(hub_room, "TIMEOUT", (1, 0.2))
    release = threading.Event()

    def behave(handler):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + DATA[:100_000])
        handler.wfile.flush()
        release.wait(10)

    server.behave = behave
    assert "run again to resume" in fails(server, tmp_path)
    release.set()
    server.behave = Handler.file
    get(server, tmp_path)
    check_whole(tmp_path)


# ---- resuming from a part that another run left


def test_a_server_that_ignores_ranges_begins_anew(server, tmp_path, bars):
    part_of(tmp_path, DATA[:1000])
    server.behave = lambda handler: handler.answer(200, DATA)
    get(server, tmp_path)
    check_whole(tmp_path)
    assert (bars[0].initial, bars[0].n, bars[0].total) == (0, SIZE, SIZE)


def test_a_range_other_than_asked_begins_anew(server, tmp_path):
    part_of(tmp_path, DATA[:1000])

    def behave(handler):
        if handler.headers.get("Range"):
            handler.answer(206, DATA, Content_Range=f"bytes 0-{SIZE - 1}/{SIZE}")
        else:
            handler.file()

    server.behave = behave
    get(server, tmp_path)
    check_whole(tmp_path)


def test_a_gzipped_range_begins_anew(server, tmp_path):
    part_of(tmp_path, DATA[:1000])

    def behave(handler):
        if handler.headers.get("Range"):
            content_range = f"bytes 1000-{SIZE - 1}/{SIZE}"
            body = gzip.compress(DATA)[1000:]
            handler.answer(206, body, Content_Range=content_range, Content_Encoding="gzip")
        else:
            handler.file()

    server.behave = behave
    get(server, tmp_path)
    check_whole(tmp_path)


@pytest.mark.parametrize("size", [SIZE, None])
@pytest.mark.parametrize("left", [DATA, DATA + b"x", DATA[:-1]])
def test_a_part_as_long_as_the_file_or_longer(server, tmp_path, size, left):
    part_of(tmp_path, left)
    get(server, tmp_path, size)
    check_whole(tmp_path)
    if size and left == DATA:
        assert not server.log


def test_a_range_that_is_refused_with_416_begins_anew(server, tmp_path):
    part_of(tmp_path, DATA[:1000])
    server.behave = lambda handler: (
        handler.answer(416) if handler.headers.get("Range") else handler.file()
    )
    get(server, tmp_path)
    check_whole(tmp_path)


def test_the_rest_of_a_file_may_look_like_a_page(server, tmp_path):
    data = DATA[:1000] + HTML + DATA
    digest = hashlib.sha256(data).hexdigest()
    (tmp_path / f"x.{digest[:16]}.part").write_bytes(DATA[:1000])
    server.behave = lambda handler: handler.file(data)
    get(server, tmp_path, len(data), digest)
    assert (tmp_path / "x").read_bytes() == data and ranges(server) == ["bytes=1000-"]


def test_a_part_with_a_wrong_byte_is_found_out_and_deleted(server, tmp_path):
    part_of(tmp_path, b"?" * 1000)
    assert "hash" in fails(server, tmp_path)
    assert not any(tmp_path.iterdir())
    get(server, tmp_path)
    check_whole(tmp_path)


def test_the_part_of_another_version_is_not_continued(server, tmp_path):
    (tmp_path / f"x.{'0' * 16}.part").write_bytes(b"?" * 1000)
    get(server, tmp_path)
    assert (tmp_path / "x").read_bytes() == DATA and server.log == [("GET", "/x", None)]


# ---- something other than the file


@pytest.mark.parametrize("status", [404, 401, 500, 304, 206])
def test_another_status_is_named_with_the_url_and_saves_nothing(server, tmp_path, status):
    server.behave = lambda handler: handler.answer(status, HTML, Content_Type="text/html")
    assert f"{server.url}/x: the server answers {status}" in fails(server, tmp_path)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("left", [b"", DATA[:1000]])
@pytest.mark.parametrize("headers", [{}, {"Content_Length": None}])
@pytest.mark.parametrize(
    ("body", "what"), [(HTML, "an HTML page"), (POINTER, "a Git LFS pointer")]
)
def test_a_page_or_pointer_spoils_nothing(server, tmp_path, body, what, headers, left):
    part_of(tmp_path, left)
    server.behave = lambda handler: handler.answer(200, body, **headers)
    assert f"sends {what}, expected a file of {SIZE} bytes" in fails(server, tmp_path)
    assert part_of(tmp_path, None).read_bytes() == left
    server.behave = Handler.file
    get(server, tmp_path)
    check_whole(tmp_path)


@pytest.mark.parametrize("length", [0, 600, SIZE + 1, 10**15])
def test_a_wrong_length_is_refused_at_once(server, tmp_path, length):
    server.behave = lambda handler: handler.answer(200, DATA, SIZE, Content_Length=str(length))
    assert f"sends {length} bytes, expected a file of {SIZE}" in fails(server, tmp_path)
    assert not any(tmp_path.iterdir())


def test_a_corrupted_byte_is_found_out(server, tmp_path):
    bad = bytearray(DATA)
    bad[777_777] ^= 1
    server.behave = lambda handler: handler.file(bytes(bad))
    message = fails(server, tmp_path)
    assert SHA256 in message and hashlib.sha256(bad).hexdigest() in message
    assert not any(tmp_path.iterdir())


def test_a_file_without_end_does_not_fill_the_disk(server, tmp_path, monkeypatch):
    def behave(handler):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        for _ in range(300):
            handler.wfile.write(DATA)
        handler.close_connection = True

    server.behave = behave
    message = fails(server, tmp_path)
    received = int(message.split("received ")[1].split()[0])
    assert SIZE < received < SIZE + 200_000 and not any(tmp_path.iterdir())


def test_a_full_disk_keeps_the_part(server, tmp_path, monkeypatch):
    def fail(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="No space left"):
            get(server, tmp_path)
    assert not (tmp_path / "x").exists()
    get(server, tmp_path)
    check_whole(tmp_path)


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:9", "http://no.such.invalid", "nonsense"])
def test_a_hub_out_of_reach_gets_one_line_of_help(monkeypatch, tmp_path, endpoint):
    monkeypatch.setenv("HF_ENDPOINT", f"{endpoint}/")
    monkeypatch.setenv("NO_PROXY", "*")
    says = f"cannot reach {endpoint}/openai.*HF_ENDPOINT.*FOLDER"
    with pytest.raises(OSError, match=says) as caught:
        fetch_gpt2("gpt2-xl", tmp_path)
    assert "\n" not in str(caught.value)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.name != ".lock"]


# ---- the hub


@pytest.fixture
def hub(tmp_path_factory):
    """The files of a fake gpt2-medium."""
    path = tmp_path_factory.mktemp("hub") / "model.safetensors"
    tensors = {**tiny_tensors(np.float32), "h.0.attn.bias": np.ones((1, 1, 300, 300), np.float32)}
    write_safetensors(path, tensors, {"n_head": str(N_HEAD)})
    return {"model.safetensors": path.read_bytes(), "merges.txt": b"#version: 0.2\nh e\n"}


def hub_like(files, weak="", relative=False, sized=True):
    """Serve as the hub does: weights by a redirect to other storage, the small file directly."""

    def behave(handler):
        *_, name = handler.path.split("/")
        if name not in files:
            handler.answer(404, HTML)
        elif handler.path.startswith(("/storage/", "/cache/")):
            handler.file(files[name], ETag=f'{weak}"{git_sha1(files[name])}"')
        elif name == "model.safetensors":
            headers = {
                "X_Linked_ETag": f'"{hashlib.sha256(files[name]).hexdigest()}"',
                "X_Linked_Size": str(len(files[name])) if sized else None,
                "ETag": '"0123"',
            }
            location = f"http://{handler.headers['Host']}/storage/{name}"
            handler.answer(302, b"Found", Location=location, **headers)
        elif relative:
            handler.answer(307, b"Temporary Redirect", Location=f"/cache/{name}")
        else:
            handler.file(files[name], ETag=f'{weak}"{git_sha1(files[name])}"')

    return behave


@pytest.mark.parametrize("weak", ["", "W/"])
@pytest.mark.parametrize(("relative", "sized"), [(False, True), (True, True), (True, False)])
def test_fetch_verifies_by_what_the_hub_states_and_loads(
    server, tmp_path, hub, bars, weak, relative, sized
):
    server.behave = hub_like(hub, weak, relative, sized)
    folder = fetch_gpt2("gpt2-medium", cache=tmp_path)
    for name, data in hub.items():
        assert (folder / name).read_bytes() == data
    assert {path.name for path in folder.iterdir()} == {*hub, ".lock"}
    repo = "/openai-community/gpt2-medium/resolve/main/"
    assert {path for _, path, _ in server.log} >= {repo + name for name in hub}
    sizes = {name: len(data) for name, data in hub.items()}
    stated = sizes if sized else {**sizes, "model.safetensors": None}
    assert {bar.desc.rstrip(": "): bar.total for bar in bars} == stated
    params, n_head = load_gpt2(folder)
    assert n_head == N_HEAD
    for name, tensor in flatten(params).items():
        np.testing.assert_array_equal(tensor, tiny_tensors(np.float32)[name])

    server.log.clear()
    assert fetch_gpt2("gpt2-medium", cache=tmp_path) == folder
    assert not server.log  # what is in the cache is not asked for again


@pytest.mark.parametrize("name", ["model.safetensors", "merges.txt"])
def test_fetch_finds_a_byte_that_differs_from_what_the_hub_states(server, tmp_path, hub, name):
    stated, served = hub_like(hub), {**hub, name: hub[name][:-1] + b"!"}
    server.behave = lambda handler: (
        stated(handler) if handler.command == "HEAD" else hub_like(served)(handler)
    )
    with pytest.raises(OSError, match=f"{name}: expected .* of hash"):
        fetch_gpt2("gpt2-medium", tmp_path)
    assert not (tmp_path / "gpt2-medium" / name).exists()
    server.behave = stated
    assert load_gpt2(fetch_gpt2("gpt2-medium", tmp_path))[1] == N_HEAD


@pytest.mark.parametrize("headers", [{}, {"ETag": '"d41d8cd98f00b204e9800998ecf8427e"'}])
def test_without_a_stated_hash_nothing_is_fetched(server, tmp_path, headers):
    server.behave = lambda handler: handler.answer(200, DATA, **headers)
    with pytest.raises(OSError, match="merges.txt: the server states no hash"):
        fetch_gpt2("gpt2-large", tmp_path)
    assert [method for method, *_ in server.log] == ["HEAD"]


def test_gpt2_itself_is_pinned(server, tmp_path, monkeypatch, hub):
    server.behave = hub_like(hub)
    with pytest.raises(OSError, match="expected a file of 456318 bytes"):
        fetch_gpt2("gpt2", tmp_path)
    revision = "607a30d783dfa663caf39e06633721c8d4cfcd7e"
    assert server.log == [("GET", f"/openai-community/gpt2/resolve/{revision}/merges.txt", None)]
    for name, data in hub.items():
        stated = len(data), hashlib.sha256(data).hexdigest()
        monkeypatch.setitem(hub_room.PINNED, ("gpt2", name), stated)
    assert load_gpt2(fetch_gpt2("gpt2", tmp_path))[1] == N_HEAD
    assert all(method == "GET" for method, *_ in server.log)


def test_the_cache_is_argument_then_environment_then_the_users(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.setattr(sys, "platform", "linux")

    def fill(root):
        folder = root / "gpt2"
        folder.mkdir(parents=True)
        for name in hub_room.FILES:
            (folder / name).touch()
        return folder

    user, ours = fill(tmp_path / "user" / "gpt_numpy"), fill(tmp_path / "ours")
    monkeypatch.delenv("GPT_NUMPY_CACHE", raising=False)
    assert fetch_gpt2("gpt2") == user
    monkeypatch.setenv("GPT_NUMPY_CACHE", str(tmp_path / "ours"))
    assert fetch_gpt2("gpt2") == ours
    assert fetch_gpt2("gpt2", cache=user.parent) == user
    assert not list(tmp_path.rglob(".lock"))  # a full cache may be read-only, say a classroom's


@pytest.mark.parametrize("model", ["gpt3", "", "../gpt2", "tiny"])
def test_an_unknown_model_is_refused(model, tmp_path):
    with pytest.raises(ValueError, match="unknown model .*gpt2-medium"):
        fetch_gpt2(model, tmp_path)
    assert not any(tmp_path.iterdir())


def test_two_processes_at_once_fetch_once(server, tmp_path, hub):
    served = hub_like(hub)

    def slowly(handler):
        time.sleep(0.1)
        served(handler)

    server.behave = slowly
    code = "import sys; from gpt_numpy.hub import fetch_gpt2; fetch_gpt2(*sys.argv[1:])"
    arguments = [sys.executable, "-c", code, "gpt2-medium", str(tmp_path)]
    processes = [subprocess.Popen(arguments, stderr=subprocess.DEVNULL) for _ in range(3)]
    assert [process.wait(30) for process in processes] == [0, 0, 0]
    assert len(server.log) == 5  # HEAD and GET for merges.txt; HEAD, GET, GET for the weights
    assert load_gpt2(tmp_path / "gpt2-medium")[1] == N_HEAD
