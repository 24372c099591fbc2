"""What the methods that fit a recommender's machine have in common."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

from sklearn.base import BaseEstimator

from dualgap._choices import Reduction
from dualgap._estimator import Callback, History, RandomState
from dualgap._validation import FloatArray
from dualgap.recommend._factors import Blocks
from dualgap.recommend._features import Sides
from dualgap.recommend._interactions import InteractionFactors
from dualgap.recommend._learned import Learned
from dualgap.recommend._ratings import Indexed
from dualgap.recommend._times import FittedTimes


def default_n_components(n_ratings: int, has_histories: bool) -> int:
    """How many bases so many ratings can use: histories keep more of them useful."""
    times = max(1.0, n_ratings / 50_000)
    grown: float = min(64.0, 8 * times**0.55) if has_histories else 8 * times**0.4
    return round(grown)


@dataclass(frozen=True)
class Task:
    """A machine of this size for ratings that are reduced like this."""

    reduction: Reduction
    levels: FloatArray
    n_components: int
    random_state: RandomState
    n_jobs: int | None
    callback: Callback | None

    @property
    def ordinal(self) -> bool:
        """Whether there is an output for each threshold between two levels."""
        return self.reduction == "mcrank"


@dataclass(frozen=True)
class Fitted:
    """Models, and the record of their fits; what no bound is known for is None."""

    models: list[Blocks]
    history: History
    objective: float
    dual_objective: float | None = None
    null_objective: float | None = None
    converged: bool | None = None
    certificate: str = "none"
    # Of each model, what new ids are fitted with; empty where they cannot be.
    learned: list[Learned] = field(default_factory=list)
    interactions: InteractionFactors | None = None
    times: FittedTimes | None = None
    # The smallest rating that is a like.
    like: float = 0.0


# Not an estimator, but its parameters are to be read, set, cloned and searched like one's.
class Method(BaseEstimator):  # type: ignore[misc]
    """The parameters of one method alone."""

    name: ClassVar[str]
    validates: ClassVar[bool]
    # Whether it takes up the times of ratings.
    has_times: ClassVar[bool] = False

    @abstractmethod
    def check(self) -> None:
        """Refuse parameters that cannot be used."""

    def n_epochs(self) -> int | None:
        """Number of epochs that the callback is told of at most, where it is known."""
        return None

    @abstractmethod
    def run(self, task: Task, ratings: Indexed, sides: Sides, held_out: Indexed | None) -> Fitted:
        """Fit."""
