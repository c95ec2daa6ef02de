"""Face verification: the published scores from the similarity of pairs and whether both images show one person.

Accuracy is LFW's View 2: for each fold the fraction of pairs that are classified correctly with the threshold that is
best on all other folds, then the mean over folds. Everything else is over all pairs at once. A pair is accepted if its
score is at least the threshold.

    accuracy    percent, with its standard error over folds; a single fold uses the threshold that is best on it
    auc         the chance that a pair of one person scores higher than a pair of two (ties count half)
    eer         percent, where the false reject rate equals the false accept rate
    tar         percent of the same that are accepted, at false accept rates of FALSE_ACCEPT_RATES
    threshold   the best one on all pairs, for pairs of users; true_accepts and false_accepts, in percent, are the
                fractions of the same and of the others that it accepts

Scores are compared in float64. There are pairs of both kinds, and no score is NaN or infinite.
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
    """Convert the scores to float64 and `same` to bool; raise an error if they cannot be compared."""
    exact, flags = np.asarray(scores, np.float64), np.asarray(same)
    if exact.ndim != 1 or exact.shape != flags.shape or not exact.size:
        raise UserError(f"verification needs one score and one label per pair, got {exact.shape} and {flags.shape}")
    if not np.isfinite(exact).all():
        raise UserError("a score is NaN or infinite; check the model that computed it")
    if not np.isin(flags, (0, 1)).all():
        raise UserError("labels of pairs are 1 for the same person and 0 for two people; some are neither")
    flags = flags.astype(bool)
    if flags.all() or not flags.any():
        raise UserError(f"all {len(flags)} pairs are of {'one person' if flags[0] else 'two people'}; give both kinds")
    return exact, flags


def roc(scores: Scores, same: Flags) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return false and true accept rates at each threshold that changes them, from (0, 0) at infinity to (1, 1)."""
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
    """Return the area under the ROC curve."""
    false, true, _ = roc(scores, same)
    return float(np.sum(np.diff(false) * (true[1:] + true[:-1]) / 2))


def best_threshold(scores: Scores, same: Flags) -> float:
    """Return the threshold that classifies the most pairs correctly: midway between two scores, the highest if tied."""
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
    """Return the fraction of each fold that is classified correctly with the threshold of the others."""
    scores, same = _checked(scores, same)
    if np.shape(folds) != scores.shape or np.min(folds) < 0:
        raise UserError(f"each of {len(scores)} pairs has the number of its fold, 0 or more, got {np.shape(folds)}")
    numbers = np.unique(folds)
    accuracies = []
    for number in numbers:
        fold = folds == number
        others = ~fold if len(numbers) > 1 else fold
        accepted = scores[fold] >= best_threshold(scores[others], same[others])
        accuracies.append(np.mean(accepted == same[fold]))
    return np.array(accuracies)


def summarize(scores: Scores, same: Flags, folds: NDArray[np.integer[Any]]) -> dict[str, Any]:
    """Return the scores above by name."""
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
    """Return the rate at which false accepts and false rejects cross, interpolated between two points."""
    gap = false - (1 - true)  # rises from -1 to 1
    k = int(np.argmax(gap >= 0))
    if gap[k] == 0:
        return float(false[k])
    part = -gap[k - 1] / (gap[k] - gap[k - 1])
    return float(false[k - 1] + part * (false[k] - false[k - 1]))
