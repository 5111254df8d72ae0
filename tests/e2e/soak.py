"""How long and how much: seconds in the ordinary run of the tests, in full with TEST_SOAK=1 (scripts/test --soak)."""

import os

SOAK = os.environ.get("TEST_SOAK") == "1"


def scaled(ordinary, full):
    return full if SOAK else ordinary
