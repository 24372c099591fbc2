"""Conversion of a machine and its priors to other units of the outputs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dualgap._validation import FloatArray
from dualgap.recommend._rating_model import Machine, SidePrior

__all__ = ["machine_in_units", "prior_in_units"]


def machine_in_units(machine: Machine, unit: float) -> Machine:
    """Multiply all outputs of a machine by `unit`."""
    k = len(machine.output)
    users, items = (_scaled(table, k, unit) for table in (machine.users, machine.items))
    return Machine(users, items, unit * machine.output, unit * machine.intercept)


def prior_in_units(prior: SidePrior, machine: Machine, unit: float) -> SidePrior:
    """Convert the prior of a machine whose outputs are multiplied by `unit`."""
    k, m = machine.output.shape
    # A row of `spread` begins with the variances of the offsets, and their covariances with the
    # factors.
    spread = prior.spread.copy()
    spread[:, :m] *= unit**2
    spread[:, m : m * (1 + k)] *= unit
    return replace(
        prior,
        base=_scaled(prior.base, k, unit),
        weights=_scaled(prior.weights, k, unit),
        covariance=np.ascontiguousarray(_scaled(_scaled(prior.covariance, k, unit).T, k, unit).T),
        spread=spread,
    )


def _scaled(table: FloatArray, first: int, unit: float) -> FloatArray:
    """Multiply the columns from `first` on, which belong to the offsets, by `unit`."""
    table = table.copy()
    table[:, first:] *= unit
    return table
