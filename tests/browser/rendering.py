"""The page as `perfrun report` renders it."""

from perfrun.page.render import render as render
