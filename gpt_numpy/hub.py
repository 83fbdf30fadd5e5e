"""GPT-2 from the Hugging Face hub: downloads that resume, are verified, and arrive whole.

Only the weights and the merges are needed, since GPT-2's token ids follow from the merges.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import math
import os
import re
import sys
import time
from pathlib import Path
from urllib.parse import urljoin

MODELS = ("gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl")
FILES = ("merges.txt", "model.safetensors")  # GPT-2's ids follow from the merges alone
REVISIONS = {"gpt2": "607a30d783dfa663caf39e06633721c8d4cfcd7e"}  # of the others, main
PINNED = {  # (model, file) -> bytes, SHA-256; what the others are, the hub states
    ("gpt2", "merges.txt"):
        (456_318, "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"),
    ("gpt2", "model.safetensors"):
        (548_105_171, "248dfc3911869ec493c76e65bf2fcf7f615828b0254c12b473182f0f81d3a707"),
}  # fmt: skip
TIMEOUT = (10, 60)  # seconds to connect, and to wait for the next piece of an answer
MAX_WAIT = 60  # seconds that a busy server may ask us to wait


def fetch_gpt2(model, cache=None):
    """Download a published GPT-2 into the cache, if need be -> folder of weights and merges.

    The cache is `cache`, else $GPT_NUMPY_CACHE, else gpt_numpy in the user's cache folder; a file
    in it was verified when it arrived, and is not hashed again. $HF_ENDPOINT, if set, replaces
    https://huggingface.co. Raises OSError if the hub does not deliver.
    """
    if model not in MODELS:
        raise ValueError(f"unknown model {model!r}, expected one of {', '.join(MODELS)}")
    folder = Path(cache or os.environ.get("GPT_NUMPY_CACHE") or _user_cache()).expanduser() / model
    if all((folder / name).exists() for name in FILES):
        return folder
    endpoint = (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder / ".lock"):
        for name in FILES:
            if not (folder / name).exists():
                revision = REVISIONS.get(model, "main")
                url = f"{endpoint}/openai-community/{model}/resolve/{revision}/{name}"
                download(url, folder / name, *(PINNED.get((model, name)) or _stated(url)))
    return folder


def download(url, path, size, digest):
    """Fetch url to path, where it appears only once it is whole and verified.

    size: bytes, or None if unknown. digest: SHA-256 (64 hex digits) or git blob SHA-1 (40). What
    has come when the line is cut, or Ctrl-C pressed, stays in a .part file for the next call to
    resume; the digest in its name keeps the parts of two versions of a file apart.
    """
    path = Path(path)
    part = path.with_name(f"{path.name}.{digest[:16]}.part")
    if not part.exists() or part.stat().st_size != size:
        _receive(url, part, size)
    found = part.stat().st_size
    hasher = hashlib.sha256() if len(digest) == 64 else hashlib.sha1(b"blob %d\0" % found)
    with open(part, "rb") as file:
        while chunk := file.read(1 << 20):
            hasher.update(chunk)
    if hasher.hexdigest() != digest:
        part.unlink()
        raise OSError(f"{url}: expected {size} bytes of hash {digest}, received {found} of hash "
                      f"{hasher.hexdigest()}; they are deleted, try again")
    os.replace(part, path)


def _receive(url, part, size):
    """Append what the .part file lacks, or begin it anew where the server cannot resume."""
    have = part.stat().st_size if part.exists() else 0
    for start in (have, 0):
        with _ask("GET", url, {"Range": f"bytes={start}-"} if start else {}) as answer:
            resumes = _continues(answer, start)
            if resumes or answer.status_code == 200:
                return _save(answer, url, part, start if resumes else 0, size)
    raise OSError(f"{url}: the server answers {answer.status_code} {answer.reason}")


def _save(answer, url, part, have, size):
    """Write an answer, which begins at byte `have` of the file, to the .part file."""
    import requests
    from tqdm import tqdm

    try:
        chunks = answer.iter_content(1 << 16)
        first = next(chunks, b"")
        _refuse_another_file(answer, url, have, first, size)
        with open(part, "ab" if have else "wb") as file, tqdm(
            total=size, initial=have, unit="B", unit_scale=True, desc=url.split("/")[-1]
        ) as bar:  # fmt: skip
            for chunk in itertools.chain([first], chunks):
                file.write(chunk)
                bar.update(len(chunk))
                have += len(chunk)
                if size is not None and have > size:
                    break  # wrong already: the disk need not be filled with it
            file.flush()
            os.fsync(file.fileno())
        whole = size is None or have >= size
    except requests.RequestException:
        whole = False
    if not whole:
        raise OSError(f"{url}: the line was cut after {have} bytes; run again to resume")


def _continues(answer, have):
    """Tell whether an answer is the rest of a file of which we have so many bytes."""
    content_range = answer.headers.get("Content-Range", "")
    plain = "Content-Encoding" not in answer.headers
    return answer.status_code == 206 and plain and content_range.startswith(f"bytes {have}-")


def _refuse_another_file(answer, url, have, first, size):
    """Raise OSError, before a byte is written, if the answer's beginning or length is wrong."""
    length, what = answer.headers.get("Content-Length", ""), None
    if length.isdecimal() and "Content-Encoding" not in answer.headers:
        what = f"{have + int(length)} bytes"
    wrong = what and size is not None and have + int(length) != size
    for start, kind in [(b"<!doctype html", "an HTML page"), (b"<html", "an HTML page"),
                        (b"version https://git-lfs", "a Git LFS pointer")]:
        if not have and first.lstrip().lower().startswith(start):
            wrong, what = True, kind
    if wrong:
        raise OSError(f"{url}: the server sends {what}, expected a file of {size} bytes")


def _ask(method, url, headers=None):
    """Send a request; if the server is busy, wait as it asks, within bounds."""
    import requests

    headers = {"Accept-Encoding": "identity", **(headers or {})}
    for pause in (1, 2, 4, 8, math.inf):  # seconds, where the server does not say
        try:
            answer = requests.request(method, url, headers=headers, timeout=TIMEOUT, stream=True,
                                      allow_redirects=method == "GET")
        except requests.RequestException as error:
            raise OSError(f"cannot reach {url} ({type(error).__name__}): set HF_ENDPOINT to a "
                          f"mirror, or give a FOLDER with {' and '.join(FILES)}") from None
        asked = answer.headers.get("Retry-After", "")
        wait = int(asked) if asked.isdecimal() and pause < math.inf else pause
        if answer.status_code not in (429, 503) or wait > MAX_WAIT:
            break
        answer.close()
        time.sleep(wait)
    if answer.status_code >= 400 and answer.status_code != 416:
        answer.close()
        raise OSError(f"{url}: the server answers {answer.status_code} {answer.reason}")
    return answer


def _stated(url):
    """Ask the hub what a file must be -> size in bytes or None, digest as for `download`.

    For a file in LFS the hub answers with a redirect to its storage, and X-Linked-ETag is the
    SHA-256; the ETag of a small file is its git blob SHA-1. Redirects within the hub are followed.
    """
    target = url
    for _ in range(5):
        with _ask("HEAD", target) as answer:
            headers = answer.headers
        location = headers.get("Location", "")
        if "X-Linked-ETag" in headers or not location.startswith("/"):
            break
        target = urljoin(target, location)
    etag = headers.get("X-Linked-ETag") or headers.get("ETag", "")
    size = headers.get("X-Linked-Size") or ("" if location else headers.get("Content-Length", ""))
    digest = etag.removeprefix("W/").strip('"')
    if not re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", digest):
        raise OSError(f"{url}: the server states no hash to verify the file by (ETag: {etag!r})")
    return int(size) if size.isdecimal() else None, digest


def _user_cache():
    folders = {"win32": os.environ.get("LOCALAPPDATA"), "darwin": "~/Library/Caches"}
    folder = folders.get(sys.platform) or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(folder) / "gpt_numpy"


@contextlib.contextmanager
def _locked(path):
    """Hold a lock file, after other processes; the system frees it when a process is killed."""
    with open(path, "ab") as file:
        while True:
            try:
                if sys.platform == "win32":
                    import msvcrt
                    msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
                else:
                    import fcntl
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except (BlockingIOError, PermissionError):
                time.sleep(0.2)
        yield
