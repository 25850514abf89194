#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests datasets in a bucket: packed, listed, read, changed, verified, on two servers, and through a proxy that injects faults.

    test_s3.py rclone|juicefs|faults|writers|hostile
"""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time

from s3_support import DIESELCTL, KEY_ID, SECRET, Proxy, ctl, environment, juicefs, rclone, stop_all
from dieseld_support import SCRATCH

URL = "s3://bucket/folder/set one"
SOURCE = SCRATCH + "/source"


def make_source():
    os.makedirs(SOURCE + "/a", exist_ok=True)
    os.makedirs(SOURCE + "/b", exist_ok=True)
    for i in range(40):
        with open(f"{SOURCE}/a/{i}.bin", "wb") as file:
            file.write(os.urandom(200_000 + i))
    with open(SOURCE + "/b/a name, \u00fc+%.txt", "w") as file:
        file.write("what is in it")


def leaves_nothing():
    assert not os.listdir(SCRATCH + "/tmp"), "a copy was left behind"


def round_trip(port, **more):
    assert "there is no dataset" in ctl(port, "stat", URL, fails=True)
    assert "dataset version 1" in ctl(port, "pack", "-c", "4M", SOURCE, URL, **more)
    assert "already" in ctl(port, "pack", SOURCE, URL, fails=True, **more)
    assert "samples   41" in ctl(port, "stat", URL)
    assert ctl(port, "ls", URL) == "a/\nb/\n"
    assert ctl(port, "cat", URL, "b/a name, \u00fc+%.txt") == "what is in it"
    for i in (0, 17, 39):
        done = subprocess.run([DIESELCTL, "cat", URL, f"a/{i}.bin"], env=environment(port), capture_output=True, check=True)
        with open(f"{SOURCE}/a/{i}.bin", "rb") as file:
            assert done.stdout == file.read()
    assert "sound:" in ctl(port, "verify", URL)
    assert "dataset version 2" in ctl(port, "rm", URL, "a/3.bin", **more)
    assert "samples   40" in ctl(port, "stat", URL)
    with open(SOURCE + "/b/new", "w") as file:
        file.write("new")
    assert "2 files" in ctl(port, "pack", "--append", SOURCE, URL, **more)
    assert "samples   42" in ctl(port, "stat", URL)
    assert "unchanged" in ctl(port, "pack", "--append", SOURCE, URL, **more)
    assert "rebuilt version 4" in ctl(port, "rebuild", "--digest", "sha256", URL, **more)
    assert "digest    sha256" in ctl(port, "stat", URL)
    assert "sound:" in ctl(port, "verify", URL)
    assert "rebuild" in ctl(port, "snapshot", URL, fails=True, **more)


def against(server):
    """Neither server supports If-None-Match, which pack must report before it writes anything but the marker."""
    port = server()
    assert "If-None-Match" in ctl(port, "pack", SOURCE, URL, fails=True)
    assert "there is no dataset" in ctl(port, "stat", URL, fails=True)
    round_trip(port, DIESEL_S3_SINGLE_WRITER="1")
    # An object that is uploaded in parts, the last of them short.
    large = SCRATCH + "/large"
    os.makedirs(large)
    with open(large + "/file", "wb") as file:
        file.write(os.urandom(70 << 20))
    ctl(port, "pack", large, URL + "/large", DIESEL_S3_SINGLE_WRITER="1")
    assert "sound:" in ctl(port, "verify", URL + "/large")
    return port


def repair(port):
    """Repairs a bucket's chunk from a folder, and a folder's from the bucket. rclone keeps objects as files."""
    more = {"DIESEL_S3_SINGLE_WRITER": "1"}
    objects, copy = f"{SCRATCH}/rclone/bucket/folder/set one/chunks", SCRATCH + "/copy"
    os.makedirs(copy + "/chunks")
    for name in os.listdir(objects):
        shutil.copy(f"{objects}/{name}", copy + "/chunks")
    ctl(port, "rebuild", copy)
    name = sorted(os.listdir(objects))[0]
    with open(f"{objects}/{name}", "rb") as file:
        data = file.read()
    os.truncate(f"{objects}/{name}", len(data) // 2)
    ctl(port, "verify", "--repair", "--dry-run", "--from", copy, URL, fails=True, **more)
    assert os.path.getsize(f"{objects}/{name}") == len(data) // 2
    assert f"samples, from {copy}" in ctl(port, "verify", "--repair", "--from", copy, URL, **more)
    for place, other in ((objects, copy), (copy + "/chunks", URL)):
        if place == objects:   # rclone would go on to list a file that is removed behind its back
            subprocess.run(["curl", "-s", "-f", "--aws-sigv4", "aws:amz:us-east-1:s3", "--user", f"{KEY_ID}:{SECRET}", "-X", "DELETE",
                            f"http://127.0.0.1:{port}/bucket/folder/set%20one/chunks/{name}"], check=True)
        else:
            os.remove(f"{place}/{name}")
        assert "repaired 1, not" in ctl(port, "verify", "--repair", "--from", other, URL if place == objects else copy, **more)
        with open(f"{place}/{name}", "rb") as file:
            assert file.read() == data


def case_rclone():
    repair(against(rclone))


def case_juicefs():
    against(juicefs)


def case_faults():
    proxy = Proxy(juicefs())
    port = proxy.port
    round_trip(port)

    def once(fault, of=lambda method, path: True):
        return lambda method, path, _headers, count: fault if count == 1 and of(method, path) else None

    def refused(status, code):
        return lambda *_: (status, f"<Error><Code>{code}</Code></Error>")

    # Temporary faults: every request fails at first.
    for fault in ((503, "<Error><Code>SlowDown</Code></Error>"), "cut", "after"):
        fresh = f"{URL}/{'cut' if fault == 'cut' else 'after' if fault == 'after' else 'busy'}"
        proxy.reset(once(fault))
        ctl(port, "pack", "-c", "4M", SOURCE, fresh)
        assert "sound:" in ctl(port, "verify", fresh)
    proxy.reset(once("slow", lambda method, path: "chunks/" in path and method == "GET"))
    assert "sound:" in ctl(port, "verify", URL, DIESEL_S3_TIMEOUT="2")
    # A rebuild lists the chunks, and reads each once, if they have no digests.
    proxy.reset()
    ctl(port, "rebuild", f"{URL}/busy")
    read = [(method, path) for method, path in proxy.seen if path.endswith(".chunk")]
    assert len(read) > 1 and len(set(read)) == len(read) and {method for method, _ in read} == {"GET"}, read
    # Permanent faults are reported, with the object, the code and the fix.
    for fault, words in ((refused(403, "AccessDenied"), "AccessDenied"), (refused(503, "SlowDown"), "try again later"),
                         (refused(404, "NoSuchBucket"), "create the bucket first"),
                         (refused(400, "ExpiredToken"), "renew them"), (refused(307, "TemporaryRedirect"), "AWS_REGION")):
        proxy.reset(fault)
        text = ctl(port, "stat", URL, fails=True)
        assert words in text and URL in text and text.count("\n") == 1, text
    proxy.reset()
    assert "SignatureDoesNotMatch" in ctl(port, "stat", URL, fails=True, AWS_SECRET_ACCESS_KEY="another")
    # The clock of a node is wrong: the server's time is used for the signature.
    asked = []

    def skewed(method, path, headers, count):
        asked.append(headers["x-amz-date"])
        return None if headers["x-amz-date"][:4] == "2099" else (403, "<Error><Code>RequestTimeTooSkewed</Code></Error>",
                                                                 ("Date", "Fri, 01 May 2099 10:00:00 GMT"))
    proxy.reset(skewed)
    ctl(port, "stat", URL, fails=True)  # the server behind the proxy does not have that time
    assert asked[0][:4] != "2099" and any(date.startswith("20990501T10") for date in asked), asked
    # When the old credentials have expired, the new ones in the file are used.
    home = SCRATCH + "/home"
    os.makedirs(home + "/.aws", exist_ok=True)

    def write_credentials(token):
        with open(home + "/.aws/credentials", "w") as file:
            base = environment(port)
            file.write(f"[other]\naws_access_key_id = no\n[mine]\naws_access_key_id = {base['AWS_ACCESS_KEY_ID']}\n"
                       f"aws_secret_access_key={base['AWS_SECRET_ACCESS_KEY']}\n{token}")

    def expired(method, path, headers, count):
        if headers.get("x-amz-security-token") != "old":
            return None
        write_credentials("")
        return 400, "<Error><Code>ExpiredToken</Code></Error>"
    write_credentials("aws_session_token = old\n")
    proxy.reset(expired)
    ctl(port, "stat", URL, HOME=home, AWS_PROFILE="mine", AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="")
    assert "no credentials" in ctl(port, "stat", URL, fails=True, HOME=home, AWS_PROFILE="none", AWS_ACCESS_KEY_ID="")
    # Where libcurl cannot be loaded, only buckets are out of reach.
    pathlib.Path(home, "libcurl.so.4").touch()
    assert "install the package libcurl4" in ctl(port, "stat", URL, fails=True, LD_LIBRARY_PATH=home)
    ctl(port, "--version", LD_LIBRARY_PATH=home)


def start_pack(port, url):
    return subprocess.Popen([DIESELCTL, "pack", "--append", "-c", "4M", SOURCE, url], env=environment(port), stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, start_new_session=True)


def case_writers():
    proxy = Proxy(juicefs())
    port, url = proxy.port, URL + "/writers"
    # Two packs begin with the same version: the second one continues from the other's, and finds that it has all samples.
    both = [start_pack(port, url) for _ in range(2)]
    for process in both:
        texts = process.communicate(timeout=300)
        assert process.returncode == 0 and texts[1].count("\n") == texts[1].count("another writer has published"), texts
    assert "samples   41" in ctl(port, "stat", url)
    # A pack is held up right before it publishes, so it is certainly second. It packs the removed samples of the first one again, as it is
    # later.
    url = URL + "/held"
    ctl(port, "pack", "-c", "4M", SOURCE, url)
    with open(SOURCE + "/b/late", "w") as file:
        file.write("late")
    reached, go_on = threading.Event(), threading.Event()

    original = proxy.server.RequestHandlerClass.answer

    def held(handler):
        if handler.command == "PUT" and handler.path.endswith("fffffffd") and not reached.is_set():
            reached.set()
            assert go_on.wait(300)
        original(handler)
    proxy.server.RequestHandlerClass.do_PUT = held
    slow = start_pack(port, url)
    assert reached.wait(300)
    ctl(port, "rm", url, "a/0.bin")
    go_on.set()
    texts = slow.communicate(timeout=300)
    assert slow.returncode == 0 and "another writer has published meanwhile; continuing" in texts[1], texts
    assert "packed 2 files" in texts[0] and "dataset version 3" in texts[0], texts
    assert "samples   42" in ctl(port, "stat", url)
    assert "sound:" in ctl(port, "verify", url)
    leaves_nothing()
    # Killed during the pack: nothing is visible, and the same command continues.
    url = URL + "/killed"
    killed = start_pack(port, url)
    deadline = time.monotonic() + 300
    while not any(method == "PUT" and "/killed/chunks/" in path for method, path in list(proxy.seen)):
        assert time.monotonic() < deadline and killed.poll() is None
        time.sleep(0.01)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert "there is no dataset" in ctl(port, "ls", url, fails=True)
    ctl(port, "pack", "-c", "4M", SOURCE, url)
    assert "sound:" in ctl(port, "verify", url)
    shutil.rmtree(SCRATCH + "/tmp")  # a killed pack leaves its copy below $TMPDIR


def case_hostile():
    proxy = Proxy(juicefs())
    port = proxy.port
    ctl(port, "pack", "-c", "4M", SOURCE, URL)

    def every(answer, of=lambda method, path: True):
        return lambda method, path, *_: answer if of(method, path) else None

    def is_list(method, path):
        return "list-type=2" in path

    def is_chunk(method, path):
        return method == "GET" and "/chunks/" in path

    item = "<Contents><Key>folder/set one/versions/{}</Key><Size>19</Size></Contents>"
    lists = ("", "<", "<html/>", "\0\1\2", "<ListBucketResult>" * 1000, "<!DOCTYPE a [<!ENTITY b 'c'>]><ListBucketResult/>",
             "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
             "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken></ListBucketResult>",
             f"<ListBucketResult>{item.format('b')}{item.format('a')}</ListBucketResult>",
             "<ListBucketResult><Contents><Key>/etc/passwd</Key><Size>1</Size></Contents></ListBucketResult>",
             "<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>%z</Key><Size>1</Size></Contents></ListBucketResult>")
    for text in lists:
        proxy.reset(every((200, text), is_list))
        said = ctl(port, "stat", URL, fails=True)
        assert said.count("\n") == 1 and "list" in said, (text[:80], said)
    head = b"HTTP/1.1 206 Partial Content\r\n"
    for raw in (b"", b"\0" * 1000, b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 20000, b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000 + b"\r\n\r\n",
                head + b"Content-Range: bytes 0-18446744073709551615/99\r\nContent-Length: 1\r\n\r\nx",
                head + b"Content-Length: 99999999\r\n\r\n" + b"z" * 9_000_000, head + b"Content-Length: -1\r\n\r\n",
                b"HTTP/1.1 307 Away\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
                b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"):
        proxy.reset(every(raw, is_chunk))
        done = subprocess.run([DIESELCTL, "cat", URL, "a/1.bin"], env=environment(port, DIESEL_S3_TIMEOUT="3"), capture_output=True,
                              check=False, timeout=500)
        assert done.returncode == 1 and done.stdout == b"" and done.stderr.count(b"\n") == 1, (raw[:60], done)
    # A redirect is not followed, wherever it leads, as its target would get the credentials' signature. Other bytes than the packed ones
    # are never delivered.
    def other_bytes(method, path, headers, count):
        if not is_chunk(method, path) or "Range" not in headers:
            return None
        first, last = (int(part) for part in headers["Range"].removeprefix("bytes=").split("-"))
        n = last - first + 1
        return head + f"Content-Range: bytes {first}-{last}/99999999\r\nContent-Length: {n}\r\n\r\n".encode() + b"x" * n
    proxy.reset(other_bytes)
    said = ctl(port, "cat", URL, "a/1.bin", fails=True)
    assert "a/1.bin" in said, said
    # Old lists: another complete version is read, and changes made meanwhile are not undone.
    proxy.reset()
    ctl(port, "rm", URL, "a/1.bin")
    ctl(port, "verify", URL)
    old = ("<ListBucketResult><Contents><Key>folder/set one/versions/fffffffffffffffe</Key><Size>1</Size></Contents>"
           "</ListBucketResult>")
    proxy.reset(lambda method, path, *_: (200, old) if is_list(method, path) and "versions" in path else None)
    assert "samples   " in ctl(port, "stat", URL)
    assert "changed by another" in ctl(port, "rm", URL, "a/2.bin", fails=True)
    # A server shows an old version forever: the number of tries is limited.
    with open(SOURCE + "/b/more", "w") as file:
        file.write("more")
    said = ctl(port, "pack", "--append", SOURCE, URL, fails=True).splitlines()
    assert len(said) == 16 and "changed by another" in said[-1] and all("continuing" in line for line in said[:-1]), said
    proxy.reset()
    assert "sound:" in ctl(port, "verify", URL)
    said = ctl(port, "stat", "s3://bucket/a/../b", fails=True)
    assert "BUCKET/PREFIX" in said
    for name in ("s3://", "s3:///x", "s3://a b/c", "s3://bucket//x"):
        assert "BUCKET/PREFIX" in ctl(port, "stat", name, fails=True)


def main():
    make_source()
    try:
        globals()["case_" + sys.argv[1]]()
        if os.path.exists(SCRATCH + "/tmp"):
            leaves_nothing()
    finally:
        stop_all()
    shutil.rmtree(SOURCE)


if __name__ == "__main__":
    main()
