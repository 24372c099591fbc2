"""Export of fitted models to ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from dualgap._estimator import ScoringClassifier
from dualgap.logistic._model import LogisticClassifier
from dualgap.multiclass._linear import LinearClassifier
from dualgap.polynomial import (
    FactorizationMachineClassifier,
    FactorizationMachineRegressor,
    PolynomialNetworkClassifier,
    PolynomialNetworkClassifierCV,
    PolynomialNetworkRegressor,
)

__all__ = ["to_onnx"]

_Polynomial: TypeAlias = (
    FactorizationMachineClassifier
    | FactorizationMachineRegressor
    | PolynomialNetworkClassifier
    | PolynomialNetworkClassifierCV
    | PolynomialNetworkRegressor
)

# ONNX versions from 2022, which every maintained runtime supports.
_OPSET, _IR_VERSION = 17, 8


def to_onnx(
    model: LinearClassifier | LogisticClassifier | _Polynomial, *, dtype: DTypeLike = np.float32
) -> Any:
    """Convert a fitted linear or polynomial model to an ONNX graph.

    The graph's input ``X`` is a matrix of type `dtype` with one row per sample. The outputs of a
    classifier are ``label`` (int64 or string), ``scores`` of shape (n_samples, n_classes), even for
    two classes, and ``probabilities`` if the model has `predict_proba`. The output of a regressor
    is ``predictions`` of shape (n_samples, n_outputs). Save the graph with
    ``onnx.save(graph, path)``.

    Parameters
    ----------
    model : fitted estimator
        `LogisticRegression`, `LogisticRegressionCV`, `MulticlassSVC`, `MulticlassSVCCV`,
        `ConsensusSVC`, or a polynomial network or factorization machine.
    dtype : dtype, default=float32
        Precision of the graph, float32 or float64. Scores are computed in it, so labels may differ
        from the model's if two scores are almost equal.

    Returns
    -------
    onnx.ModelProto

    Raises
    ------
    ImportError
        If the package onnx is not installed (``pip install 'dualgap[onnx]'``).
    TypeError
        If the model is of another class, or its labels are not integers, booleans or strings.
    ValueError
        If `dtype` is neither float32 nor float64.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dualgap import MulticlassSVC
    >>> from dualgap.export import to_onnx
    >>> X, y = load_iris(return_X_y=True)
    >>> graph = to_onnx(MulticlassSVC(C=0.1, random_state=0).fit(X, y))
    >>> [output.name for output in graph.graph.output]
    ['label', 'scores']
    """
    if not isinstance(model, LinearClassifier | LogisticClassifier | _Polynomial):
        name = type(model).__name__
        msg = f"model: only linear and polynomial models can be exported to ONNX, got {name}"
        if isinstance(model, Pipeline):
            msg += "; export its last step, pipeline[-1], and pass it pipeline[:-1].transform(X)"
        raise TypeError(msg)
    check_is_fitted(model)
    graph = _Graph(dtype)
    if isinstance(model, LinearClassifier):
        outputs = graph.linear("X", model.coef_, model.intercept_)
    elif isinstance(model, LogisticClassifier):
        outputs = graph.linear("X", *model._both())
    else:
        outputs = _polynomial(graph, model)
    if isinstance(model, ScoringClassifier):
        graph.output(outputs, "scores", (None, len(model.classes_)))
        _label(graph, model.classes_)
        # Hinge losses do not model probabilities.
        loss = "logistic" if isinstance(model, LogisticClassifier) else model.loss
        if loss in ("logistic", "binary-logistic"):
            _probabilities(graph, loss, len(model.classes_))
    else:
        graph.output(outputs, "predictions", (None, model.output_.shape[1]))
    return graph.model(model.n_features_in_, type(model).__name__)


class _Graph:
    """Builder of an ONNX graph, one node at a time."""

    def __init__(self, dtype: DTypeLike) -> None:
        try:
            import onnx
            from onnx import helper
        except ImportError as error:
            msg = "to_onnx requires the package onnx: pip install 'dualgap[onnx]'"
            raise ImportError(msg, name="onnx") from error
        self.dtype = np.dtype(dtype)
        if self.dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
            msg = f"dtype: must be float32 or float64, got {dtype!r}"
            raise ValueError(msg)
        self._helper: Any = helper
        self._kinds = {
            np.dtype(np.float32): onnx.TensorProto.FLOAT,
            np.dtype(np.float64): onnx.TensorProto.DOUBLE,
            np.dtype(np.int64): onnx.TensorProto.INT64,
            np.dtype(object): onnx.TensorProto.STRING,
        }
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._outputs: list[Any] = []

    def constant(self, values: Any, dtype: DTypeLike | None = None) -> str:
        """Add a constant array; return its name."""
        array = np.ascontiguousarray(values, dtype=self.dtype if dtype is None else dtype)
        name, kind = f"constant_{len(self._constants)}", self._kinds[array.dtype]
        entries = array.ravel().tolist()
        if array.dtype == object:
            entries = [text.encode() for text in entries]
        self._constants.append(self._helper.make_tensor(name, kind, array.shape, entries))
        return name

    def node(self, kind: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """Add an operation; return the name of its output."""
        name = output or f"value_{len(self._nodes)}"
        self._nodes.append(self._helper.make_node(kind, inputs, [name], **attributes))
        return name

    def linear(self, rows: str, weights: NDArray[Any], intercept: NDArray[Any] | None) -> str:
        """Add ``rows @ weights.T + intercept``; return the name of its output."""
        inputs = [rows, self.constant(weights)]
        if intercept is not None:
            inputs.append(self.constant(intercept))
        return self.node("Gemm", *inputs, transB=1)

    def output(self, source: str, name: str, shape: Sequence[int | None]) -> None:
        """Make a value an output of the graph, in the graph's precision."""
        self.node("Identity", source, output=name)
        self.declare(name, self.dtype, shape)

    def declare(self, name: str, dtype: DTypeLike, shape: Sequence[int | None]) -> None:
        """Declare the output of a node as an output of the graph."""
        kind = self._kinds[np.dtype(dtype)]
        self._outputs.append(self._helper.make_tensor_value_info(name, kind, shape))

    def model(self, n_features: int, name: str) -> Any:
        """Return the complete, validated ONNX model."""
        from onnx import checker

        kind = self._kinds[self.dtype]
        rows = self._helper.make_tensor_value_info("X", kind, (None, n_features))
        # The label comes first, as in the graphs of other converters.
        outputs = sorted(self._outputs, key=lambda output: output.name != "label")
        graph = self._helper.make_graph(self._nodes, name, [rows], outputs, self._constants)
        found = self._helper.make_model(
            graph,
            producer_name="dualgap",
            ir_version=_IR_VERSION,
            opset_imports=[self._helper.make_opsetid("", _OPSET)],
        )
        checker.check_model(found)
        return found


def _polynomial(graph: _Graph, model: _Polynomial) -> str:
    """Add ``K(X, H) U + X W + b``, with the square or the ANOVA kernel K."""
    basis, augmented = model.components_, model.linear == "augment"
    weights = basis[:, :-1] if augmented else basis
    # The constant feature adds an intercept to the product with each basis vector.
    shift = basis[:, -1] if augmented else None
    product = graph.linear("X", weights, shift)
    kernel = graph.node("Mul", product, product)
    if model._kernel == "anova":
        squares = graph.linear(
            graph.node("Mul", "X", "X"), weights**2, None if shift is None else shift**2
        )
        kernel = graph.node("Mul", graph.node("Sub", kernel, squares), graph.constant(0.5))
    terms = [graph.linear(kernel, model.output_.T, model.intercept_)] if len(basis) else []
    if len(basis) == 0 or model.coef_.any():
        none_yet = model.intercept_ if len(basis) == 0 else None
        terms.append(graph.linear("X", model.coef_, none_yet))
    return terms[0] if len(terms) == 1 else graph.node("Add", *terms)


def _label(graph: _Graph, classes: NDArray[Any]) -> None:
    """Add the label: the class with the largest score; the first class wins ties."""
    dtype: np.dtype[Any] = np.dtype(object)
    if classes.dtype.kind in "iub":
        dtype = np.dtype(np.int64)
    elif not all(isinstance(name, str) for name in classes):
        msg = f"model: ONNX labels must be integers or strings, got {classes.dtype}"
        raise TypeError(msg)
    best = graph.node("ArgMax", "scores", axis=1, keepdims=0, select_last_index=0)
    graph.node("Gather", graph.constant(classes, dtype), best, output="label", axis=0)
    graph.declare("label", dtype, (None,))


def _probabilities(graph: _Graph, loss: Any, n_classes: int) -> None:
    """Add the class probabilities, as returned by `predict_proba`."""
    if loss == "logistic":
        found = graph.node("Softmax", "scores", axis=1)
    else:
        shares = graph.node("Sigmoid", "scores")
        total = graph.node("ReduceSum", shares, graph.constant([1], np.int64), keepdims=1)
        least = graph.constant([np.finfo(graph.dtype).tiny])
        found = graph.node("Div", shares, graph.node("Max", total, least))
    graph.output(found, "probabilities", (None, n_classes))
