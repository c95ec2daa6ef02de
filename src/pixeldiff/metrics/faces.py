"""Verification: from the scores of pairs, and whether both show one person, to the published numbers.

Accuracy is LFW's View 2: for each fold the share of pairs that are told right with the threshold that is best on all
other folds, then the mean over folds. Everything else is over all pairs at once. A pair is accepted when its score
is at least the threshold.

    accuracy    percent, with its standard error over folds; one fold alone is judged by its own best threshold
    auc         the chance that a pair of one person scores higher than a pair of two (ties count half)
    eer         percent, where as many of the same are rejected as of the others accepted
    tar         percent of the same that are accepted where at most a share of the others is
    threshold   the best one on all pairs, which a user's own pairs are judged by; true_accepts and false_accepts,
                in percent, are what it accepts of the same and of the others

Scores are compared in float64, whatever they come in. There are pairs of both kinds, and no score is NaN or infinite.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixeldiff.errors import UserError

FALSE_ACCEPT_RATES = (0.1, 0.01, 0.001)

Scores = NDArray[np.floating[Any]]
Flags = NDArray[np.bool_]


def _checked(scores: Scores, same: Flags) -> tuple[NDArray[np.float64], Flags]:
    """Convert the scores to float64 and `same` to bool; raise an error if they cannot be judged."""
    exact, flags = np.asarray(scores, np.float64), np.asarray(same)
    if exact.ndim != 1 or exact.shape != flags.shape or not exact.size:
        raise UserError(f"verification needs one score and one label per pair, got {exact.shape} and {flags.shape}")
    if not np.isfinite(exact).all():
        raise UserError("a score is NaN or infinite; check the network that gave it")
    if not np.isin(flags, (0, 1)).all():
        raise UserError("labels of pairs are 1 for the same person and 0 for two people; some are neither")
    flags = flags.astype(bool)
    if flags.all() or not flags.any():
        raise UserError(f"all {len(flags)} pairs are of {'one person' if flags[0] else 'two people'}; give both kinds")
    return exact, flags


def roc(scores: Scores, same: Flags) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """False and true accept rates at each threshold that changes them, from (0, 0) at infinity to (1, 1)."""
    scores, same = _checked(scores, same)
    order = np.argsort(-scores, kind="stable")
    ranked, hits = scores[order], same[order]
    last = np.append(ranked[1:] != ranked[:-1], True)  # equal scores are accepted together
    true, false = np.cumsum(hits)[last], np.cumsum(~hits)[last]
    start = np.zeros(1)
    return (
        np.concatenate([start, false / false[-1]]),
        np.concatenate([start, true / true[-1]]),
        np.concatenate([[np.inf], ranked[last]]),
    )


def auc(scores: Scores, same: Flags) -> float:
    """The area under the ROC curve."""
    false, true, _ = roc(scores, same)
    return float(np.sum(np.diff(false) * (true[1:] + true[:-1]) / 2))


def best_threshold(scores: Scores, same: Flags) -> float:
    """The threshold with the most pairs told right, in the middle between two scores; the highest of several."""
    scores, same = _checked(scores, same)
    order = np.argsort(-scores, kind="stable")
    ranked, hits = scores[order], same[order]
    right = np.concatenate([[0], np.cumsum(np.where(hits, 1, -1))])  # of accepting the first k, up to a constant
    cuts = np.concatenate([[True], ranked[1:] != ranked[:-1], [True]])  # not between equal scores
    k = int(np.argmax(np.where(cuts, right, -len(scores) - 1)))
    if k == 0:
        return float(np.nextafter(ranked[0], np.inf))
    return float(ranked[k - 1] + ranked[k]) / 2 if k < len(ranked) else float(ranked[-1])


def fold_accuracies(scores: Scores, same: Flags, folds: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
    """The share told right in each fold, by the threshold of the others."""
    scores, same = _checked(scores, same)
    if np.shape(folds) != scores.shape or np.min(folds) < 0:
        raise UserError(f"each of {len(scores)} pairs has the number of its fold, 0 or more, got {np.shape(folds)}")
    numbers = np.unique(folds)
    found = []
    for number in numbers:
        own = folds == number
        others = ~own if len(numbers) > 1 else own
        accepted = scores[own] >= best_threshold(scores[others], same[others])
        found.append(np.mean(accepted == same[own]))
    return np.array(found)


def summarize(scores: Scores, same: Flags, folds: NDArray[np.integer[Any]]) -> dict[str, Any]:
    """The numbers above, under their names."""
    scores, same = _checked(scores, same)
    false, true, _ = roc(scores, same)
    accuracies = 100 * fold_accuracies(scores, same, folds)
    threshold = best_threshold(scores, same)
    spread = accuracies.std(ddof=1) / np.sqrt(len(accuracies)) if len(accuracies) > 1 else None
    return {
        "accuracy": float(accuracies.mean()),
        "accuracy_error": None if spread is None else float(spread),
        "auc": auc(scores, same),
        "eer": 100 * _equal_error(false, true),
        "tar": {f"{rate:g}": 100 * float(true[false <= rate].max()) for rate in FALSE_ACCEPT_RATES},
        "threshold": threshold,
        "true_accepts": 100 * float(np.mean(scores[same] >= threshold)),
        "false_accepts": 100 * float(np.mean(scores[~same] >= threshold)),
        "pairs": len(scores),
        "folds": len(accuracies),
    }


def _equal_error(false: NDArray[np.float64], true: NDArray[np.float64]) -> float:
    """Where false accepts and false rejects cross, on the line between the two points beside the crossing."""
    gap = false - (1 - true)  # rises from -1 to 1
    k = int(np.argmax(gap >= 0))
    if gap[k] == 0:
        return float(false[k])
    part = -gap[k - 1] / (gap[k] - gap[k - 1])
    return float(false[k - 1] + part * (false[k] - false[k - 1]))
