from collections.abc import Callable
from typing import Any, Final, NotRequired, TypeAlias, TypedDict, final

import numpy as np
from numpy.typing import NDArray

from dualgap import _records

__all__ = [
    "FRANK_WOLFE_CHOICES",
    "LOGISTIC_SOLVERS",
    "LOSSES",
    "MAX_FACTORISED",
    "OUTPUT_LOSSES",
    "PENALTIES",
    "SAMPLINGS",
    "SIMD",
    "SOLVERS",
    "STEPS",
    "STRUCTURED_SOLVERS",
    "THREADS_PER_CORE",
    "DenseItems",
    "PackedItems",
    "SequencePoint",
    "SequenceProblem",
    "StructuredModel",
    "Tagger",
    "Vocabulary",
    "__version__",
    "best_items",
    "best_of_blend",
    "check_loss",
    "compare_blends",
    "consensus_round",
    "cross_validate",
    "factor_gram",
    "fit_class_features",
    "fit_interactions",
    "fit_logistic_regression",
    "fit_logistic_regressions",
    "fit_multiclass",
    "fit_polynomial",
    "fit_sequences",
    "fit_structured",
    "fit_variational",
    "fold_in",
    "fold_in_interactions",
    "item_graph",
    "item_regression",
    "linear_vertex",
    "logistic_certificate",
    "logistic_sums",
    "minimize_frank_wolfe",
    "multiclass_path",
    "newton_direction",
    "newton_round",
    "plan_multiclass",
    "predict_polynomial",
    "read_labels",
    "read_libsvm",
    "scores_of_blend",
    "select_basis",
    "sequence_objective",
    "sequence_path",
    "smooth_value",
    "structured_path",
]

_Pieces: TypeAlias = list[tuple[float, float, NDArray[np.float64], float, float, int]]
_Rows: TypeAlias = (
    NDArray[np.float16]
    | NDArray[np.float32]
    | NDArray[np.float64]
    | tuple[NDArray[np.int64], NDArray[np.int32], NDArray[Any], int]
)

__version__: Final[str]
LOGISTIC_SOLVERS: Final[list[str]]
LOSSES: Final[dict[str, list[str]]]
"""Names of the parameters that each margin loss takes."""
OUTPUT_LOSSES: Final[dict[str, str]]
"""The kind of target of each loss: "classes", "signs" or "values"."""
PENALTIES: Final[list[str]]
SAMPLINGS: Final[list[str]]
SIMD: Final[str]
"""The instruction set of all kernels; see the environment variable DUALGAP_SIMD."""
SOLVERS: Final[list[str]]
FRANK_WOLFE_CHOICES: Final[dict[str, list[str]]]
STEPS: Final[list[str]]
STRUCTURED_SOLVERS: Final[list[str]]
MAX_FACTORISED: Final[int]
"""Maximum length of basis vectors for which the bounds of polynomial models are certain."""
THREADS_PER_CORE: Final[int]
"""Maximum number of threads that a call uses per core."""

# Records that the core reads from the items of a dictionary: `_Name` has the fields of the struct
# `Name` in `src/python`. `tests/python/test_settings.py` compares the two.

_Callback: TypeAlias = Callable[[int, float, float, float], object] | None

class _RunRecord(TypedDict):
    tol: float
    max_iter: int
    n_threads: int
    callback: _Callback

class _SharesRecord(TypedDict):
    regularization: float
    sample_weight: NDArray[np.float64] | None

class _MethodRecord(TypedDict):
    solver: str
    step: str | None
    sampling: str
    cache: NotRequired[bool]
    averaging: NotRequired[bool]
    subsample: NotRequired[float]
    seed: int

class _Loss(TypedDict):
    loss: Any  # a name, or a loss written in Python
    k: int | None
    weights: list[float] | None
    costs: NDArray[np.float64] | None
    costs_per_row: bool

class _MarginRecord(_Loss):
    n_classes: int
    smoothing: float
    bias: float

class _PolynomialArrays(TypedDict):
    basis: NDArray[np.float64]
    output: NDArray[np.float64]
    linear: NDArray[np.float64] | None

class _PolynomialFit(_PolynomialArrays):
    outcome: str
    objective: float
    dual_objective: float
    scale: float
    certain: bool
    history: dict[str, NDArray[Any]]
    path: dict[str, NDArray[Any]]

_Targets = NDArray[np.uint32] | NDArray[np.float64]

class _PolynomialRecord(_RunRecord):
    n_outputs: int
    kernel: str
    augmented: bool
    alpha: float | None
    loss: str
    penalty: str
    radius: float
    n_components: int
    reoptimize: str
    selection: str
    selection_tol: float
    seed: int
    sample_weight: NDArray[np.float64] | None
    target_means: NDArray[np.float64] | None
    init: _PolynomialArrays | None
    validation: tuple[_Rows, _Targets] | None

def fit_polynomial(
    chunks: list[_Rows], targets: _Targets, settings: _PolynomialRecord
) -> _PolynomialFit: ...
def predict_polynomial(
    rows: _Rows,
    model: _PolynomialArrays,
    *,
    kernel: str,
    augmented: bool,
    n_threads: int,
) -> NDArray[np.float64]: ...

class _SelectionRecord(TypedDict):
    kernel: str
    penalty: str
    selection: str
    tol: float
    seed: int
    n_threads: int

def select_basis(
    rows: _Rows, weights: NDArray[np.float64], settings: _SelectionRecord
) -> tuple[list[float], list[float], float]: ...

class _State(TypedDict):
    weights: NDArray[np.float64]
    linear: float
    square: float
    drift: list[float]
    beta: NDArray[np.float64]

def check_loss(loss: str, k: int | None, weights: list[float] | None) -> None: ...

class _MulticlassFit(_State):
    outcome: str
    solver: tuple[str, int]
    objective: float
    dual_objective: float
    null_objective: float
    history: dict[str, NDArray[Any]]

class _WarmStart(TypedDict):
    keep_dual: bool
    start: _State | None

class _ClassFeatureRecord(TypedDict):
    class_features: _Rows | None

class _LinearSettings(_MarginRecord, _SharesRecord, _MethodRecord, _RunRecord): ...
class _MulticlassSettings(_LinearSettings, _WarmStart): ...
class _ClassFeatureSettings(_LinearSettings, _ClassFeatureRecord): ...
class _LogisticSettings(_records.LogisticRecord, _RunRecord): ...
class _LogisticPathSettings(_records.LogisticPathRecord, _RunRecord): ...

def fit_logistic_regression(
    rows: _Rows, labels: NDArray[np.uint32], settings: _LogisticSettings
) -> _records.LogisticResult: ...
def fit_logistic_regressions(
    rows: _Rows, labels: NDArray[np.uint32], settings: _LogisticPathSettings, ended: _records.Ended
) -> None: ...
def logistic_sums(
    rows: _Rows, labels: NDArray[np.uint32], settings: _records.PartitionRecord
) -> dict[str, Any]: ...
def logistic_certificate(
    sums: _records.SumsRecord,
) -> tuple[float, float, NDArray[np.float64] | None]: ...
def fit_multiclass(
    rows: _Rows, labels: NDArray[np.uint32], settings: _MulticlassSettings
) -> _MulticlassFit: ...
def fit_class_features(
    rows: _Rows, labels: NDArray[np.uint32], settings: _ClassFeatureSettings
) -> _records.ClassFeatureResult: ...
def plan_multiclass(rows: _Rows, settings: _MulticlassSettings) -> tuple[str, int, int]: ...
def multiclass_path(
    rows: _Rows, labels: NDArray[np.uint32], settings: _LinearSettings, until: float
) -> _Pieces: ...

class _RoundSettings(_MarginRecord, _SharesRecord, _records.RoundRecord): ...

def consensus_round(
    rows: _Rows, labels: NDArray[np.uint32], settings: _RoundSettings
) -> _records.Subsolution: ...

class _NewtonSettings(_MarginRecord, _SharesRecord, _records.ExpansionRecord): ...

def newton_round(
    rows: _Rows, labels: NDArray[np.uint32], settings: _NewtonSettings
) -> _records.Expansion: ...
def newton_direction(
    sums: NDArray[np.float64], n_classes: int, residual: NDArray[np.float64], n_threads: int
) -> NDArray[np.float64]: ...

class _SearchRecord(TypedDict):
    Cs: list[float]
    fold_weights: NDArray[np.float64]
    held_out: list[NDArray[np.uint32]]
    measure: str | None
    top_k: int
    score: Callable[[int, int, NDArray[np.float64]], float] | None
    width: float | None
    seed: int

class _SearchSettings(_MarginRecord, _SearchRecord, _RunRecord): ...

def cross_validate(
    rows: _Rows, labels: NDArray[np.uint32], settings: _SearchSettings
) -> _records.SearchResult: ...
def fit_variational(
    users: NDArray[np.uint32],
    items: NDArray[np.uint32],
    values: NDArray[np.float64],
    settings: _records.VariationalRecord,
) -> _records.FittedBlocks: ...

@final
class DenseItems:
    def __new__(cls, lists: _records.ListsRecord, n_items: int) -> DenseItems: ...

@final
class PackedItems:
    def __new__(cls, items: NDArray[np.float32]) -> PackedItems: ...

def fit_interactions(record: _records.InteractionRecord) -> _records.FittedInteractions: ...
def factor_gram(factors: NDArray[np.float64], n_threads: int) -> NDArray[np.float64]: ...
def fold_in_interactions(
    record: _records.InteractionRecord,
    items: NDArray[np.float64],
    gram: NDArray[np.float64],
    means: NDArray[np.float64] | None,
) -> NDArray[np.float64]: ...
def item_graph(record: _records.ClicksRecord) -> _records.ItemWeights: ...
def item_regression(
    record: _records.ClicksRecord, head: NDArray[np.uint32], ridge: float, dropout: float
) -> _records.ItemWeights: ...
def best_of_blend(
    record: _records.BlendRecord, excluded: _records.ExclusionRecord, n: int
) -> _records.Ranked: ...
def scores_of_blend(record: _records.BlendRecord) -> NDArray[np.float32]: ...
def compare_blends(
    record: _records.BlendRecord, held_out: _records.ListsRecord, weightings: list[list[float]]
) -> list[float]: ...
def fold_in(
    ratings: tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.float64]],
    counts: NDArray[np.uint32],
    machines: list[_records.FoldInRecord],
    n_threads: int,
) -> list[NDArray[np.float64]]: ...
def best_items(
    parts: list[_records.PartRecord], excluded: _records.ExclusionRecord, n: int
) -> _records.Ranked: ...

@final
class StructuredModel:
    @staticmethod
    def chain(
        rows: _Rows,
        offsets: NDArray[np.int64],
        labels: NDArray[np.uint32] | None,
        *,
        n_states: int,
        boundaries: bool,
        loss: str,
    ) -> StructuredModel: ...
    @staticmethod
    def multiclass(
        rows: _Rows,
        labels: NDArray[np.uint32] | None,
        *,
        n_classes: int,
        costs: NDArray[np.float64] | None,
    ) -> StructuredModel: ...
    @staticmethod
    def multilabel(
        rows: _Rows,
        labels: NDArray[np.uint8] | None,
        *,
        n_labels: int,
        edges: str | list[list[int]],
        loss: str,
    ) -> StructuredModel: ...
    @staticmethod
    def matching(
        rows: _Rows,
        sizes: list[list[int]],
        truth: tuple[list[list[int]], NDArray[np.int64]] | None,
        *,
        costs: tuple[float, float],
        max_links: list[int],
    ) -> StructuredModel: ...
    @staticmethod
    def label_edges(
        labels: NDArray[np.uint8], n_labels: int, edges: str | list[list[int]]
    ) -> list[list[int]]: ...
    @property
    def n_weights(self) -> int: ...
    def decode(
        self, weights: NDArray[np.float64], n_threads: int
    ) -> tuple[NDArray[np.int64], NDArray[np.uint32]]: ...
    def losses(self, weights: NDArray[np.float64], n_threads: int) -> NDArray[np.float64]: ...

_Source = StructuredModel | tuple[object, int, int, float]

class _StructuredFit(TypedDict):
    outcome: str
    objective: float
    dual_objective: float
    null_objective: float
    history: dict[str, NDArray[Any]]
    weights: NDArray[np.float64]
    solver: tuple[str, int]
    oracle_calls: int | None
    dual_point: _DualPointRecord | None

class _ConstraintRecord(TypedDict):
    signs: NDArray[np.int8] | None
    exact: bool

class _ExtragradientRecord(TypedDict):
    projection: str | None
    radius: float | None

class _DualPointRecord(TypedDict):
    weights: NDArray[np.float64]
    atoms: NDArray[np.int64]
    shares: NDArray[np.float64]
    lengths: NDArray[np.int64]
    parts: NDArray[np.uint32]
    values: NDArray[np.float64]

class _StructuredWarmStart(TypedDict):
    keep_dual: bool
    start: _DualPointRecord | None

class _StructuredSettings(
    _SharesRecord,
    _MethodRecord,
    _ExtragradientRecord,
    _RunRecord,
    _StructuredWarmStart,
    _ConstraintRecord,
): ...

def fit_structured(source: _Source, settings: _StructuredSettings) -> _StructuredFit: ...
def structured_path(source: _Source, settings: _StructuredSettings, until: float) -> _Pieces: ...

_Sequences: TypeAlias = tuple[_Rows, NDArray[np.int64], _Rows | None, NDArray[np.int32] | None]

@final
class Vocabulary:
    def __new__(cls, bits: int | None = None) -> Vocabulary: ...
    @staticmethod
    def from_names(text: bytes, ends: list[int]) -> Vocabulary: ...
    def __len__(self) -> int: ...
    def find(self, name: str) -> int | None: ...
    def names(self) -> list[str]: ...
    def text(self) -> tuple[bytes, list[int]]: ...
    def keep(self, columns: list[int]) -> Vocabulary: ...
    def learn(self, sentences: Any, min_count: int, first: int = 0) -> _records.ReadRows: ...
    def read(self, sentences: Any) -> _records.ReadRows: ...

def read_libsvm(
    read: Callable[[int], bytes], n_threads: int
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int32], NDArray[np.float64]]: ...
def read_labels(
    sentences: Any,
) -> tuple[list[str], NDArray[np.uint32], NDArray[np.int64]] | None: ...

@final
class SequencePoint:
    @staticmethod
    def of_weights(weights: NDArray[np.float64]) -> SequencePoint: ...
    def moved(
        self, problem: SequenceProblem, places: list[int], numbers: list[int]
    ) -> tuple[SequencePoint, int] | None: ...
    def fits(self, problem: SequenceProblem) -> bool: ...

class _FitRecord(TypedDict):
    sampling: str
    seed: int
    l1_ratio: float
    start: SequencePoint | None
    keep_point: bool

class _SequenceSettings(_FitRecord, _RunRecord, _SharesRecord): ...

@final
class SequenceProblem:
    def __new__(
        cls,
        rows: _Rows | _records.MappedRows,
        offsets: NDArray[np.int64],
        labels: NDArray[np.uint32],
        settings: _records.ChainRecord,
    ) -> SequenceProblem: ...
    @staticmethod
    def check_labels(n_labels: int) -> None: ...
    def complete(
        self, weights: NDArray[np.float64], n_threads: int
    ) -> tuple[SequenceProblem, NDArray[np.uint32]]: ...
    def features_per_token(self, weights: NDArray[np.float64] | None) -> float: ...
    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.uint16]] | None: ...

@final
class Tagger:
    def __new__(cls, weights: _records.TaggerRecord) -> Tagger: ...
    def decode(self, input: _Sequences, n_threads: int) -> NDArray[np.uint32]: ...
    def tag(
        self, vocabulary: Vocabulary, sentences: Any, n_threads: int
    ) -> tuple[NDArray[np.int64], NDArray[np.uint32]]: ...
    def decode_best(
        self, input: _Sequences, k: int, normalised: bool, n_threads: int
    ) -> list[list[tuple[list[int], float]]]: ...
    def scores(
        self,
        input: _Sequences,
        labels: NDArray[np.uint32],
        normalised: bool,
        n_threads: int,
    ) -> NDArray[np.float64]: ...
    def marginals(
        self, input: _Sequences, maximal: bool, n_threads: int
    ) -> NDArray[np.float64]: ...

def fit_sequences(problem: SequenceProblem, settings: _SequenceSettings) -> dict[str, Any]: ...
def sequence_objective(
    problem: SequenceProblem, settings: _SequenceSettings, weights: NDArray[np.float64]
) -> float: ...
def sequence_path(
    problem: SequenceProblem, settings: _SequenceSettings, until: float
) -> _Pieces: ...
def minimize_frank_wolfe(
    function: Any, set: Any, start: Any, settings: _records.FrankWolfeRecord
) -> dict[str, Any]: ...
def linear_vertex(set: Any, gradient: NDArray[np.float64]) -> NDArray[np.float64]: ...
def smooth_value(function: Any, x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]: ...
