"""Why an engine could not fetch an image from its registry, in words for people.

Engines hand on what Go's network library and the registry say, with urls and addresses of name
servers in it. Runs on a bare host, too (setup.py): standard library only, Python >= 3.8.
"""

from __future__ import annotations

import re

DEFAULT = "docker.io"
_HOST = re.compile(r"https?://([^/\s\"]+)")
# By what is said of a connection that did not come about; the first that holds is the reason.
_UNREACHABLE = {
    "proxyconnect": "its proxy does not answer",
    "no such host": "no such host",
    "server misbehaving": "the name server fails",
    "Temporary failure in name resolution": "the name server does not answer",
    "connection refused": "connection refused",
    "network is unreachable": "network is unreachable",
    "no route to host": "no route to host",
    "connection reset by peer": "connection reset by peer",
    "i/o timeout": "no answer in time",
    "TLS handshake timeout": "no answer in time",
    "Client.Timeout exceeded": "no answer in time",
    "context deadline exceeded": "no answer in time",
    "server gave HTTP response to HTTPS client": "it speaks HTTP, not HTTPS",
    "503 Service Unavailable": "503 Service Unavailable",
    ": EOF": "it hung up",
}
_ABSENT = ("manifest unknown", "manifest for ", ": not found", "no matching manifest")
_DENIED = ("unauthorized", "authentication required", "may require", "Forbidden")
# Who may not do something on this machine has no permission; registries say `denied` and more.
_IS_DENIED = re.compile(r"(?<!permission )\bdenied\b", re.IGNORECASE)
# What came whole and could not be put on this machine's disk is no fault of the registry.
_UNPACKING = re.compile(
    r"(?:register|extract|apply|adding)\w* layer|processing tar|failed to (?:extract|unpack)"
    r"|content digest",
    re.IGNORECASE,
)


def registry_of(image: str) -> str:
    """The registry that an image's name stands for: its first part, if that is a host."""
    first, slash, _ = image.partition("/")
    is_host = bool(slash) and ("." in first or ":" in first or first == "localhost")
    return first if is_host else DEFAULT


def explain_fetch(complaint: str, image: str) -> str:
    """Why the image could not be fetched, and what helps, in one line.

    What is not known is handed on as the engine says it.
    """
    said = " ".join(complaint.split())
    if _UNPACKING.search(said):
        return said[:500]
    asked = _HOST.search(said)
    host = asked[1] if asked else registry_of(image)
    if "x509" in said or "certificate" in said:
        return (
            f"the engine does not trust the certificate of the registry {host}; put the "
            f"authority's into /etc/docker/certs.d/{host}/ca.crt"
        )
    if "toomanyrequests" in said or "rate limit" in said:
        return f"the registry {host} gives no more images for now; {_login(image)}, or wait"
    reason = next((told for words, told in _UNREACHABLE.items() if words in said), None)
    if reason:
        return (
            f"the engine cannot reach the registry {host} ({reason}); mend its network or proxy, "
            "or bring the image with `docker load`"
        )
    if any(words in said for words in _DENIED) or _IS_DENIED.search(said):
        return (
            f"the registry {host} has no such image or wants a login; check the name, "
            f"or {_login(image)}"
        )
    if any(words in said for words in _ABSENT):
        return (
            f"the registry {host} has no such image, or none for this machine; check name and tag"
        )
    return said[:500]


def _login(image: str) -> str:
    registry = registry_of(image)
    return "`docker login`" if registry == DEFAULT else f"`docker login {registry}`"
