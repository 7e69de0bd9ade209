"""`quipu routes`: every route of the program, and who may call it."""

import collections

from .quipu import run

Route = collections.namedtuple("Route", "method path access role")


def list_routes(binary, *arguments, cwd=None):
    done = run(binary, "routes", *arguments, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return [Route(*line.split(" ")) for line in done.stdout.splitlines()]


def names(routes):
    """{'POST /api/send', …}"""
    return {f"{route.method} {route.path}" for route in routes}
