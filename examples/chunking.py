"""Chunks and named entities: two taggers on generated sentences.

    python examples/chunking.py

The first finds noun phrases by structured hinge loss. The second finds names of people and places
as a conditional random field, whose labels obey the BIO scheme, and says how sure it is and why.
"""

from __future__ import annotations

import numpy as np

from dualgap.sequence import SequenceTagger

Sentence = list[str]

NAMES = {"PER": ["Ada", "Grace", "Alan", "Emmy"], "LOC": ["Paris", "Oslo", "Lima", "New York"]}
PATTERNS = ["PER flew to LOC", "the old train to LOC was late", "PER met PER in LOC", "it rained"]
ADJECTIVES, NOUNS, VERBS = ["old", "red", "tiny"], ["cat", "train", "house"], ["sees", "likes"]


def features(words: Sentence) -> list[dict[str, str | bool]]:
    """What is known of each token: its word, its neighbours, its shape."""
    found: list[dict[str, str | bool]] = []
    for t, word in enumerate(words):
        before = words[t - 1] if t > 0 else "<start>"
        after = words[t + 1] if t + 1 < len(words) else "<end>"
        shape: dict[str, str | bool] = {"capital": word[0].isupper(), "suffix": word[-2:]}
        found.append({"word": word.lower(), "before": before, "after": after, **shape})
    return found


def noun_phrases(rng: np.random.Generator) -> tuple[Sentence, list[str]]:
    """A sentence with its noun phrases."""
    words, labels = [], []
    for part in range(2):
        adjectives = rng.choice(ADJECTIVES, rng.integers(0, 3)).tolist()
        phrase = [str(rng.choice(["the", "a"])), *adjectives, str(rng.choice(NOUNS))]
        words += phrase
        labels += ["B-NP"] + ["I-NP"] * (len(phrase) - 1)
        if part == 0:
            words.append(str(rng.choice(VERBS)))
            labels.append("O")
    return words, labels


def entities(rng: np.random.Generator) -> tuple[Sentence, list[str]]:
    """A sentence with its names."""
    words, labels = [], []
    for word in str(rng.choice(PATTERNS)).split():
        if word not in NAMES:
            words.append(word)
            labels.append("O")
            continue
        name = str(rng.choice(NAMES[word])).split()
        words += name
        labels += [f"B-{word}"] + [f"I-{word}"] * (len(name) - 1)
    return words, labels


def main() -> None:
    """Train and show both taggers."""
    rng = np.random.default_rng(0)
    for title, make, tagger in [
        ("Noun phrases", noun_phrases, SequenceTagger(C=1.0, random_state=0)),
        ("Names", entities, SequenceTagger("log", C=1.0, tol=1e-3, transitions="bio")),
    ]:
        pairs = [make(rng) for _ in range(300)]
        X, y = [features(words) for words, _ in pairs], [labels for _, labels in pairs]
        tagger.fit(X[:200], y[:200])
        print(f"{title}: accuracy {tagger.score(X[200:], y[200:]):.3f}, ", end="")
        print(f"gap {tagger.relative_gap_:.1e} of the objective after {tagger.n_iter_} passes")
        words = pairs[-1][0]
        for word, label in zip(words, tagger.predict(X[-1:])[0], strict=True):
            print(f"    {word:10}{label}")
    sentence = features(["Grace", "flew", "to", "New", "York"])
    print("The best labels of 'Grace flew to New York' and their probabilities:")
    for labels, log_probability in tagger.predict_nbest([sentence], 3)[0]:
        print(f"    {np.exp(log_probability):.3f}  {' '.join(labels)}")
    evidence = tagger.explain(sentence)[3]
    print(f"What speaks for {evidence.label} at 'New':")
    for name, share in evidence.features[:3]:
        print(f"    {share:+.2f}  {name}")
    print(f"    {evidence.transition:+.2f}  the transition from the label before")
    print(tagger.transition_)


if __name__ == "__main__":
    main()
