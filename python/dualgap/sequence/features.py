"""Functions that compute features of raw sentences. Model files store only their names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple

from dualgap.sequence.templates import Templates

__all__ = ["word_features"]

Expand = Callable[[Any], list[Any]]

_LONGEST_AFFIX = 4
# Maximum depth of nested features, as in the core.
_DEEPEST = 32
# Maximum number of distinct words whose features are cached.
_CACHED_WORDS = 1 << 16


class _Word(NamedTuple):
    """The features of a word, for its own position and for the neighbouring positions."""

    own: tuple[str, ...]
    lower: str
    around: dict[int, tuple[str, ...]]


def word_features(sentence: Sequence[str | Sequence[str]]) -> list[list[str]]:
    """Return the features of each token of a sentence, as used by ``features="words"``.

    A token's features are its word in lower case, its shape, prefixes and suffixes of up to four
    characters, the words up to two tokens away, the shapes of adjacent words, and pairs of
    neighbouring words. Further columns, such as parts of speech, give features of the tokens up to
    two positions away, and of pairs of neighbouring tokens.

    Parameters
    ----------
    sentence : sequence of str, or of sequences of str
        The words, or a word and further columns for each token.

    Returns
    -------
    list of list of str
        The names of each token's features.

    Raises
    ------
    ValueError
        If a token is neither a string nor a sequence of strings.

    Examples
    --------
    >>> word_features(["In", "Oslo"])[0]
    ['w=in', 'shape=Xx', 'p1=i', 's1=n', 'first', 'w+1=oslo', 'shape+1=Xx', 'w|w+1=in|oslo']
    """
    rows = [_columns(token, t) for t, token in enumerate(sentence)]
    words = [_word(row[0]) for row in rows]
    found = []
    for t, word in enumerate(words):
        token = list(word.own)
        if t == 0:
            token.append("first")
        for offset in (-2, -1, 1, 2):
            if 0 <= t + offset < len(words):
                token += words[t + offset].around[offset]
        if t > 0:
            token.append(f"w-1|w={words[t - 1].lower}|{word.lower}")
        if t + 1 < len(words):
            token.append(f"w|w+1={word.lower}|{words[t + 1].lower}")
        if len(rows[t]) > 1:
            token += _column_features(rows, t)
        found.append(token)
    return found


def _columns(token: Any, t: int) -> Sequence[str]:
    if isinstance(token, str):
        return (token,)
    columns = tuple(token) if isinstance(token, Iterable) and not isinstance(token, Mapping) else ()
    if not columns or not all(isinstance(column, str) for column in columns):
        msg = f"token {t}: must be a word or a tuple of strings, got {token!r}"
        raise ValueError(msg)
    return columns


@lru_cache(maxsize=_CACHED_WORDS)
def _word(word: str) -> _Word:
    lower = word.lower()
    shape = "".join(kind for kind, _ in groupby(map(_kind, word)))
    sizes = range(1, min(_LONGEST_AFFIX, len(lower) - 1) + 1)
    affixes = [(f"p{n}={lower[:n]}", f"s{n}={lower[-n:]}") for n in sizes]
    own = (f"w={lower}", f"shape={shape}", *(name for pair in affixes for name in pair))
    around: dict[int, tuple[str, ...]] = {at: (f"w{at:+d}={lower}",) for at in (-2, -1, 1, 2)}
    for at in (-1, 1):
        around[at] += (f"shape{at:+d}={shape}",)
    return _Word(own, lower, around)


def _kind(character: str) -> str:
    if character.isdigit():
        return "0"
    if character.isalpha():
        return "X" if character.isupper() else "x"
    return character


def _column_features(rows: Sequence[Sequence[str]], t: int) -> list[str]:
    found = []
    for column in range(1, len(rows[t])):
        values = {
            offset: rows[t + offset][column]
            for offset in range(-2, 3)
            if 0 <= t + offset < len(rows) and column < len(rows[t + offset])
        }
        found += [f"c{column}@{offset}={value}" for offset, value in values.items()]
        for first in range(-2, 2):
            if first in values and first + 1 in values:
                found.append(f"c{column}@{first}|={values[first]}|{values[first + 1]}")
    return found


def crfsuite_features(sentence: Iterable[Any]) -> list[Any]:
    """Convert dictionaries to features that are named as in python-crfsuite, ``name:value``."""
    return [
        _flat(token, "", {}, 0) if isinstance(token, Mapping) else list(token) for token in sentence
    ]


def _flat(
    features: Mapping[str, Any], prefix: str, found: dict[str, float], depth: int
) -> dict[str, float]:
    if depth > _DEEPEST:
        msg = (
            f"features must be nested at most {_DEEPEST} deep; these are nested deeper, or contain "
            "themselves"
        )
        raise ValueError(msg)
    for key, value in features.items():
        name = prefix + key
        if isinstance(value, Mapping):
            _flat(value, f"{name}:", found, depth + 1)
        elif isinstance(value, str):
            found[f"{name}:{value}"] = found.get(f"{name}:{value}", 0.0) + 1.0
        elif isinstance(value, list | tuple | set | frozenset):
            for each in value:
                found[f"{name}:{each}"] = found.get(f"{name}:{each}", 0.0) + 1.0
        else:
            found[name] = found.get(name, 0.0) + float(value)
    return found


_SETS: dict[str, Expand] = {"words": word_features, "crfsuite": crfsuite_features}


def expander(features: Any) -> Expand | None:
    """Return the function that computes features, or None if the sentences already have features.

    Raises
    ------
    ValueError
        If `features` is neither the name of a built-in set nor a list of templates.
    """
    if features is None:
        return None
    if isinstance(features, str) and features in _SETS:
        return _SETS[features]
    if isinstance(features, str) or not isinstance(features, list | tuple):
        names = ", ".join(map(repr, _SETS))
        msg = f"features: must be None, {names} or a list of templates, got {features!r}"
        raise ValueError(msg)
    return _templates(features).expand


def transition_prefixes(features: Any) -> list[str] | None:
    """Return the prefixes of transition features, if there are templates for them."""
    if isinstance(features, list | tuple) and _templates(features).on_transitions:
        return ["B"]
    return None


def _templates(lines: Sequence[Any]) -> Templates:
    if not all(isinstance(line, str) for line in lines):
        msg = f"features: templates must be strings, got {lines!r}"
        raise ValueError(msg)
    try:
        return Templates.parse(lines)
    except ValueError as error:
        msg = f"features: {error}"
        raise ValueError(msg) from error


def featured(sentences: Any, features: Any, lengths: Any = None) -> Any:
    """Return the features of each token, computed as the parameter `features` specifies.

    Raises
    ------
    ValueError
        If `sentences` is a matrix although features are to be computed.
    """
    expand = expander(features)
    if expand is None:
        return sentences
    if lengths is not None:
        msg = f"lengths: features={features!r} requires raw sentences, not a matrix with lengths"
        raise ValueError(msg)
    return _expanded(expand, sentences)


def _expanded(expand: Expand, sentences: Any) -> Iterator[list[Any]]:
    """Yield the features of each sentence; errors name the sentence."""
    if isinstance(sentences, str | bytes | dict) or not isinstance(sentences, Iterable):
        msg = f"X: must be sentences of words, got {type(sentences).__name__}"
        raise ValueError(msg)
    for number, sentence in enumerate(sentences):
        if isinstance(sentence, str | bytes) or not isinstance(sentence, Iterable):
            msg = (
                f"X: sentence {number} must be a sequence of tokens, got {sentence!r}; "
                "for one sentence, use predict_single"
            )
            raise ValueError(msg)
        try:
            yield expand(list(sentence))
        except (AttributeError, TypeError, ValueError) as error:
            msg = f"X: sentence {number}: {error}"
            raise ValueError(msg) from error
