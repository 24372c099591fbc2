"""
Tagging sequences
=================

A tagger assigns a label to each token of a sentence. This one finds names of people and places from
features given as strings. Its labels obey the BIO scheme: an ``I-PER`` directly follows a ``B-PER``
or another ``I-PER``.
"""

import matplotlib.pyplot as plt
import numpy as np

from dualgap.sequence import SequenceTagger

# %%
# The example generates its sentences from patterns in which ``PER`` and ``LOC`` stand for names.

NAMES = {"PER": ["Ada", "Grace", "Alan", "Emmy"], "LOC": ["Paris", "Oslo", "Lima", "New York"]}
PATTERNS = ["PER flew to LOC", "the old train to LOC was late", "PER met PER in LOC", "it rained"]


def sentence(rng):
    """Draw the words of a sentence, with their labels."""
    words, labels = [], []
    for word in str(rng.choice(PATTERNS)).split():
        parts = str(rng.choice(NAMES[word])).split() if word in NAMES else [word]
        words += parts
        outside = word not in NAMES
        labels += ["O" if outside else f"{'I' if i else 'B'}-{word}" for i in range(len(parts))]
    return words, labels


def features(words):
    """Return the features of each token: its word, its neighbours and its shape."""
    known = []
    for t, word in enumerate(words):
        before = words[t - 1] if t else "<start>"
        after = words[t + 1] if t + 1 < len(words) else "<end>"
        shape = {"capital": word[0].isupper(), "suffix": word[-2:]}
        known.append({"word": word.lower(), "before": before, "after": after, **shape})
    return known


rng = np.random.default_rng(0)
pairs = [sentence(rng) for _ in range(300)]
X = [features(words) for words, _ in pairs]
y = [labels for _, labels in pairs]

# %%
# ``loss="logistic"`` trains a conditional random field, which gives probabilities. The default,
# ``loss="hamming"``, is the structured hinge loss, which maximises a margin. Both fits stop when
# the duality gap is small relative to the objective.

crf = SequenceTagger("logistic", tol=1e-3, transitions="bio", random_state=0).fit(X[:200], y[:200])
svm = SequenceTagger("hamming", C=1.0, tol=0.01, transitions="bio", random_state=0)
svm.fit(X[:200], y[:200])
for tagger in (crf, svm):
    print(f"{tagger.loss}: {tagger.score(X[200:], y[200:]):.3f} of the labels are right, ", end="")
    print(f"gap {tagger.relative_gap_:.1e} of the objective after {tagger.n_iter_} passes")

# %%
# The conditional random field gives the probabilities of whole label sequences, and the features
# that favour a label.

unseen = features(["Grace", "flew", "to", "New", "York"])
for labels, log_probability in crf.predict_top_k([unseen], 3)[0]:
    print(f"{np.exp(log_probability):.3f}  {' '.join(labels)}")
evidence = crf.explain(unseen)[3]
print(f"Evidence for {evidence.label} at 'New':", evidence.features[:2])

# %%
# The picture shows the probability of each label at each token of that sentence, and the learnt
# weights of transitions. Transitions that the scheme forbids are white: they have no weight, and
# are never predicted.

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
shares = left.imshow(crf.predict_marginals([unseen])[0].T, cmap="Blues", vmin=0, vmax=1)
left.set_xticks(range(len(unseen)), ["Grace", "flew", "to", "New", "York"])
left.set_yticks(range(len(crf.classes_)), crf.classes_)
left.set_title("Probability of each label")
figure.colorbar(shares)
table = crf.transition_
image = right.imshow(np.where(np.isfinite(table), table, np.nan), cmap="RdBu", vmin=-3, vmax=3)
right.set_xticks(range(len(table.columns)), table.columns, rotation=45)
right.set_yticks(range(len(table.rows)), table.rows)
right.set(title="Weight of the second label after the first", xlabel="second", ylabel="first")
figure.colorbar(image)
plt.show()

# %%
# `SequenceTagger` also reads matrices and generators, and supports masks and features of
# transitions. It is a scikit-learn estimator, so ``GridSearchCV`` can choose ``C``: see the guide
# to sequence labelling.
