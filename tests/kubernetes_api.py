"""The part of a cluster's API that `--engine=kubernetes` asks: Jobs and pods, in memory.

No cluster runs here: kube-apiserver is in no package registry. The client is the official one, and
each Job must be valid for the newest version of Kubernetes, as a server would have it.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import kubernetes_validate

PAGE = 2  # objects of an answer, so that more pages are asked for


class Cluster:
    """The objects of a cluster, and how it answers."""

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.pods: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.refusal: tuple[int, bytes] | None = None  # the answer to everything
        self.port = 0

    def has(self, job: str, index: int, phase: str) -> None:
        """Give an index of a Job a pod."""
        labels = {
            **self.jobs[job]["metadata"]["labels"],
            "batch.kubernetes.io/job-name": job,
            "batch.kubernetes.io/job-completion-index": str(index),
        }
        metadata = {"name": f"{job}-{index}-{len(self.pods):05d}", "labels": labels}
        self.pods.append({"metadata": metadata, "status": {"phase": phase}})

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


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    """Serve a cluster on a port of this machine."""
    cluster = Cluster()

    class Handler(BaseHTTPRequestHandler):
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
            cluster.asked.append(f"{self.command} {asked.path}")
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if cluster.refusal is not None:
                return self._answer(*cluster.refusal)
            kind, name = re.fullmatch(
                r"/.*/namespaces/bench/(jobs|pods)(?:/([^/]+))?", asked.path
            ).groups()  # type: ignore[union-attr]
            if self.command == "POST":
                job = json.loads(body)
                kubernetes_validate.validate(job, kubernetes_validate.latest_version(), strict=True)
                cluster.jobs[job["metadata"]["name"]] = job
                return self._answer(201, job)
            if self.command == "DELETE":
                if cluster.jobs.pop(name, None) is None:
                    return self._answer(404, {"message": f'jobs.batch "{name}" not found'})
                return self._answer(200, {"kind": "Status", "status": "Success"})
            return self._answer(200, self._page(kind, parse_qs(asked.query)))

        def _page(self, kind: str, query: dict[str, list[str]]) -> dict[str, Any]:
            key, _, value = query["labelSelector"][0].partition("=")
            every = list(cluster.jobs.values()) if kind == "jobs" else cluster.pods
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

        do_GET = do_POST = do_DELETE = _handle  # noqa: N815 - the names that the server calls

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    cluster.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield cluster
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
