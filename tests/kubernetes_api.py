"""The part of a cluster's API that `--engine=kubernetes` asks: Jobs, Secrets and pods, in memory.

No cluster runs here: kube-apiserver is in no package registry. The client is the official one, and
each object must be valid for the newest version of Kubernetes, as a server would have it. A command
in a pod is a real process, whose streams go over a WebSocket by Kubernetes' protocol of channels.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any
from urllib.parse import parse_qs, urlsplit

import kubernetes_validate

PAGE = 2  # objects of an answer, so that more pages are asked for


class Cluster:
    """The objects of a cluster, and how it answers."""

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.pods: list[dict[str, Any]] = []
        self.secrets: dict[str, dict[str, Any]] = {}
        # The command line on this machine for a command in a pod, by pod and words.
        self.command_in: Callable[[str, list[str]], list[str]] = lambda _, words: words
        self.commands: list[tuple[str, list[str]]] = []
        # How much output of a command arrives. A real cluster loses the end of what its client has
        # not read when the process exits, and calls that a success.
        self.most_output: int | None = None
        self.asked: list[str] = []
        self.refusal: tuple[int, bytes] | None = None  # the answer to everything
        self.refused = ""  # or only to paths that have this
        self.most_secrets: int | None = None
        self.port = 0

    def has(self, job: str, index: int, phase: str, **status: Any) -> str:
        """Give an index of a Job a pod; return its name."""
        labels = {
            **self.jobs[job]["metadata"]["labels"],
            "batch.kubernetes.io/job-name": job,
            "batch.kubernetes.io/job-completion-index": str(index),
        }
        name = f"{job}-{index}-{len(self.pods):05d}"
        ready = {"conditions": [{"type": "Ready", "status": "True"}]} if phase == "Ready" else {}
        phase = "Running" if phase == "Ready" else phase
        self.pods.append(
            {
                "metadata": {"name": name, "labels": labels},
                "spec": {**self.jobs[job]["spec"]["template"]["spec"], "nodeName": f"node{index}"},
                "status": {"phase": phase, **ready, **status},
            }
        )
        return name

    def kubeconfig(self, folder: Path, namespace: str = "bench", **others: Cluster) -> Path:
        """Write a configuration for the client; `others` are further contexts."""
        names = {"here": self, **others}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "clusters": [
                {"name": name, "cluster": {"server": f"http://127.0.0.1:{one.port}"}}
                for name, one in names.items()
            ],
            "users": [{"name": "me", "user": {"token": "s3cret"}}],
            "contexts": [
                {"name": name, "context": {"cluster": name, "user": "me", "namespace": namespace}}
                for name in names
            ],
        }
        path = folder / "kubeconfig"
        path.write_text(json.dumps(document))
        return path


class _Server(ThreadingHTTPServer):
    cluster: Cluster


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    @property
    def cluster(self) -> Cluster:
        return self.server.cluster

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, status: int, document: Any) -> None:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _handle(self) -> None:
        asked = urlsplit(self.path)
        self.cluster.asked.append(f"{self.command} {asked.path}")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.cluster.refusal is not None and self.cluster.refused in asked.path:
            return self._answer(*self.cluster.refusal)
        kind, name = re.fullmatch(
            r"/.*/namespaces/bench/(jobs|pods|secrets)(?:/([^/]+)(?:/exec)?)?", asked.path
        ).groups()  # type: ignore[union-attr]
        objects = self.cluster.secrets if kind == "secrets" else self.cluster.jobs
        if asked.path.endswith("/exec"):
            return self._exec(name, parse_qs(asked.query)["command"])
        if self.command == "POST":
            if kind == "secrets" and len(objects) == self.cluster.most_secrets:
                return self._answer(403, {"message": "no room"})
            made = json.loads(body)
            version = kubernetes_validate.latest_version()
            kubernetes_validate.validate(made, version, strict=True)
            made["metadata"]["uid"] = f"uid-{len(objects)}"
            objects[made["metadata"]["name"]] = made
            return self._answer(201, made)
        if self.command == "PATCH":
            objects[name]["metadata"].update(json.loads(body)["metadata"])
            return self._answer(200, objects[name])
        if self.command == "DELETE":
            if objects.pop(name, None) is None:
                return self._answer(404, {"message": f'jobs.batch "{name}" not found'})
            return self._answer(200, {"kind": "Status", "status": "Success"})
        return self._answer(200, self._page(kind, parse_qs(asked.query)))

    def _page(self, kind: str, query: dict[str, list[str]]) -> dict[str, Any]:
        key, _, value = query["labelSelector"][0].partition("=")
        every = list(self.cluster.jobs.values()) if kind == "jobs" else self.cluster.pods
        fitting = [one for one in every if one["metadata"]["labels"].get(key) == value]
        begin = int(query.get("continue", ["0"])[0])
        end = begin + PAGE
        metadata = {"continue": str(end)} if end < len(fitting) else {}
        group = {"jobs": ("batch/v1", "JobList"), "pods": ("v1", "PodList")}[kind]
        return {
            "apiVersion": group[0],
            "kind": group[1],
            "metadata": metadata,
            "items": fitting[begin:end],
        }

    def _exec(self, pod: str, words: list[str]) -> None:
        """Run a command, and relay its streams as frames."""
        self.cluster.commands.append((pod, words))
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        digest = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.wfile.write(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Accept: {digest}\r\n"
            "Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n".encode()
        )
        self.close_connection = True
        pipe = subprocess.PIPE
        with subprocess.Popen(
            self.cluster.command_in(pod, words), stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0
        ) as process:
            reader = threading.Thread(target=give_input, args=(self.rfile, process))
            reader.start()
            with contextlib.suppress(OSError):  # the client has gone
                left = self.cluster.most_output
                while data := process.stdout.read(1 << 15):  # type: ignore[union-attr]
                    shown = data if left is None else data[:left]
                    left = None if left is None else left - len(shown)
                    self.wfile.write(frame(b"\1" + shown))
                    if left == 0:
                        process.kill()
                self.wfile.write(frame(b"\2" + process.stderr.read()))  # type: ignore[union-attr]
                code = 0 if left == 0 else process.wait()
                status = {"status": "Failure" if code else "Success", "message": f"{code}"}
                self.wfile.write(frame(b"\3" + json.dumps(status).encode()))
                self.wfile.write(frame(struct.pack("!H", 1000), 8))
                self.connection.shutdown(1)
            process.kill()
            reader.join()

    do_GET = do_POST = do_DELETE = do_PATCH = _handle  # noqa: N815 - the names that the server calls


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    """Serve a cluster on a port of this machine."""
    cluster = Cluster()

    server = _Server(("127.0.0.1", 0), _Handler)
    server.cluster = cluster
    cluster.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield cluster
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def frame(data: bytes, kind: int = 2) -> bytes:
    """A frame of WebSocket from a server."""
    size = len(data)
    length = bytes([size]) if size < 126 else b"\x7f" + struct.pack("!Q", size)
    return bytes([0x80 | kind]) + length + data


def give_input(stream: IO[bytes], process: subprocess.Popen[bytes]) -> None:
    """Give what a client sends to the standard input of a process, until it closes."""
    stdin = process.stdin
    assert stdin is not None
    with contextlib.suppress(OSError, IndexError, struct.error):
        while True:
            head = stream.read(2)
            size = head[1] & 0x7F
            if size == 126:
                (size,) = struct.unpack("!H", stream.read(2))
            mask = stream.read(4)
            data = bytes(one ^ mask[at % 4] for at, one in enumerate(stream.read(size)))
            if head[0] & 0xF == 8:
                break
            if head[0] & 0xF == 2 and data[:1] == b"\0":
                stdin.write(data[1:])
    with contextlib.suppress(OSError):
        stdin.close()
