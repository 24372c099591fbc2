"""
Aligning words
==============

A matching links the words of a sentence to the words of its translation. Links compete: each word
has at most one link. `MatchingModel` learns weights for the features of pairs, so that the best
matching is the correct one.
"""

import matplotlib.pyplot as plt
import numpy as np

from dualgap.structured import MatchingModel, StructuredSVM

# %%
# The sentences are in two invented languages: word 17 of the first language translates to word 17
# of the second. The word order differs a little, and some words have no counterpart. A noisy table
# of word pairs that often occur together, as counted in a large text, serves as a dictionary.

rng = np.random.default_rng(0)
dictionary = np.clip(np.eye(40) * rng.uniform(0.2, 1.0, 40) + rng.normal(0, 0.25, (40, 40)), 0, 1)


def sentence_pair(rng):
    """Draw the words of both sentences, and the pairs of positions that are translations."""
    source = rng.choice(40, size=rng.integers(5, 9), replace=False)
    order = np.argsort(np.arange(len(source)) + rng.normal(0, 0.8, len(source)))
    links = [(place, column) for column, place in enumerate(order) if rng.random() > 0.15]
    target = source[order]
    known = {column for _, column in links}
    for column in range(len(target)):
        if column not in known:
            target[column] = rng.integers(40)
    return source, target, np.array(links).reshape(-1, 2)


def pair_features(source, target):
    """Return an array of shape (n_source, n_target, n_features)."""
    together = dictionary[np.ix_(source, target)]
    place = np.arange(len(source))[:, None] / len(source) - np.arange(len(target)) / len(target)
    return np.stack([together, together > 0.5, -np.abs(place), np.ones_like(together)], axis=2)


pairs = [sentence_pair(rng) for _ in range(150)]
X = [pair_features(source, target) for source, target, _ in pairs]
y = [links for _, _, links in pairs]

# %%
# A missing link costs three times as much as a wrong link. The fit maximises the dual one sentence
# at a time, and solves an assignment problem for each.

aligner = StructuredSVM(
    MatchingModel(false_negative_cost=3.0), C=0.1, tol=0.01, step="pairwise", random_state=0
)
aligner.fit(X[:100], y[:100])
print(f"gap {aligner.relative_gap_:.1e} of the objective after {aligner.n_iter_} passes")
for name, weights in aligner.parameters_.items():
    print(name, weights.round(2))


# %%
# Compare the links of the model with links from the dictionary alone:


def f1(found, right):
    """Return the harmonic mean of precision and recall of links."""
    hits = sum(
        len(set(map(tuple, a)) & set(map(tuple, b))) for a, b in zip(found, right, strict=True)
    )
    return 2 * hits / (sum(map(len, found)) + sum(map(len, right)))


greedy = [np.argwhere(x[:, :, 0] > 0.5) for x in X[100:]]
predicted = aligner.predict(X[100:])
print(
    f"F1 of links: trained {f1(predicted, y[100:]):.3f}, dictionary alone {f1(greedy, y[100:]):.3f}"
)

figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
for axis, (title, links) in zip(
    axes, {"dictionary alone": greedy, "trained": predicted}.items(), strict=True
):
    axis.imshow(X[100][:, :, 0], cmap="Greys")
    axis.scatter(
        *y[100].T[::-1], s=300, marker="s", facecolors="none", edgecolors="C0", label="right"
    )
    axis.scatter(*np.asarray(links[0]).T[::-1], marker="x", color="C3", label="found")
    axis.set(title=title, xlabel="word of the translation", ylabel="word of the sentence")
    axis.legend(loc="lower left")
plt.show()

# %%
# ``max_links=2`` lets a word have several links. ``signs`` keeps weights non-negative, for example
# the weights of features that can only be evidence for a link.
