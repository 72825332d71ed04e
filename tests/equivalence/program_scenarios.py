"""Random programs as scenarios, and those that went wrong once."""

from __future__ import annotations

import functools

from tests.equivalence.found_programs import FOUND
from tests.equivalence.nested_scenarios import Scenario
from tests.equivalence.program_runs import run
from tests.equivalence.random_programs import Program, program_of

# Bits may differ where a sum is taken over shards, or XLA rounds a product and a sum once.
_EXACT = {
    f"seed_{seed}": program
    for seed in range(170)
    if (program := program_of(seed)).is_exact and not program.compiles
}


PROGRAMS: dict[str, Program] = {**FOUND, **_EXACT}

SCENARIOS: dict[str, Scenario] = {
    name: functools.partial(run, program) for name, program in PROGRAMS.items()
}
