"""Reads back what a picture shows: marks and texts of an SVG."""

from __future__ import annotations

from xml.etree import ElementTree

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: bytes) -> list[str]:
    """All texts of a picture, in the order in which they were drawn."""
    tree = ElementTree.fromstring(svg)
    return ["".join(one.itertext()).strip() for one in tree.iter(f"{SVG}text")]


def marks(svg: bytes, colour: str) -> int:
    """The number of single marks, as of a point, that are filled or edged with a colour."""
    tree = ElementTree.fromstring(svg)
    return sum(colour in one.get("style", "") for one in tree.iter(f"{SVG}use"))
