"""The reduced CIFAR-100 study: trains the runs of classes/cifar100-quarter and writes its table.

    PIXELDIFF_DATA=... python benchmarks/studies/cifar100_study.py --out runs/study [--jobs 2] [--table]

PIXELDIFF_DATA holds cifar-100-python. Runs that are finished stay as they are, interrupted ones go on. Each job is one
process with its share of the cores (one thread each is quicker in total than two threads in turn). --table only
reads what is there. The table has mean and standard deviation over seeds, and Bi-CPDC minus vanilla, paired by seed,
with its standard error. Written: <out>/study.json and <out>/study.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pixeldiff.files import atomic_write

RECIPE, SEEDS = "classes/cifar100-quarter", (0, 1, 2)  # the pair with each seed, all else with the first
PAIR = ("vanilla", "bicpdc")
ORDER = ("vanilla", "bicpdc", "float", "biapdc", "ratio0.1", "ratio0.4", "ratio0.8", "lbp-random", "lbp-uniform")
WORDS = {
    "vanilla": "vanilla binary",
    "bicpdc": "Bi-CPDC, xi 0.2",
    "float": "full precision",
    "biapdc": "Bi-APDC, xi 0.2",
    "ratio0.1": "Bi-CPDC, xi 0.1",
    "ratio0.4": "Bi-CPDC, xi 0.4",
    "ratio0.8": "Bi-CPDC, xi 0.8",
    "lbp-random": "fixed LBP kernels, random",
    "lbp-uniform": "fixed LBP kernels, 80% uniform",
}


def runs() -> list[tuple[str, int]]:
    """Every run of the study and its seed: the paired ones seed by seed, then the single runs."""
    return [*((name, seed) for seed in SEEDS for name in PAIR), *((name, SEEDS[0]) for name in ORDER[len(PAIR) :])]


def folder(out: Path, name: str, seed: int) -> Path:
    return out / f"{name}-seed{seed}"


def train(name: str, seed: int, out: Path, threads: int) -> None:
    run = folder(out, name, seed)
    run.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    with (run / "log.txt").open("a") as log:
        words = ["train", RECIPE, "--variant", name, "--set", f"seed={seed}", "-o", str(run)]
        subprocess.run([sys.executable, "-m", "pixeldiff", *words], env=environment, stdout=log, stderr=log, check=True)
    print(f"{run.name}: {scores(run)}", flush=True)


def scores(run: Path) -> dict[str, float] | None:
    """Final top-1 and top-5 of a finished run (the last weights, not the best ones)."""
    journal = run / "metrics.jsonl"
    lines = journal.read_text().splitlines() if journal.exists() else []
    whole = [json.loads(line) for line in lines if line.endswith("}")]  # the last line of a killed run may be cut
    scored = [line for line in whole if "top1" in line]
    return {key: scored[-1][key] for key in ("top1", "top5", "seconds")} if scored else None


def collect(out: Path) -> dict[str, dict[int, dict[str, float]]]:
    """network -> seed -> scores, of what is finished."""
    table: dict[str, dict[int, dict[str, float]]] = {}
    for name, seed in runs():
        found = scores(folder(out, name, seed))
        if found is not None:
            table.setdefault(name, {})[seed] = found
    return table


def paired_difference(table: dict[str, dict[int, dict[str, float]]]) -> dict[str, float | None] | None:
    """Bi-CPDC minus vanilla in top-1 over the seeds that both have."""
    ours, reference = table.get("bicpdc", {}), table.get("vanilla", {})
    differences = [ours[seed]["top1"] - reference[seed]["top1"] for seed in sorted(ours.keys() & reference.keys())]
    if not differences:
        return None
    error = statistics.stdev(differences) / len(differences) ** 0.5 if len(differences) > 1 else None
    return {"mean": statistics.mean(differences), "standard_error": error, "seeds": len(differences)}


def as_markdown(table: dict[str, dict[int, dict[str, float]]]) -> str:
    lines = ["| network | seeds | top-1 | top-5 |", "|---|---|---|---|"]
    for name in ORDER:
        runs = list(table.get(name, {}).values())
        cells = [_cell([run[key] for run in runs]) for key in ("top1", "top5")]
        lines.append(f"| {WORDS[name]} | {len(runs)} | {cells[0]} | {cells[1]} |")
    difference = paired_difference(table)
    if difference:
        error = difference["standard_error"]
        lines += [
            "",
            f"Bi-CPDC minus vanilla, top-1, paired over {difference['seeds']:.0f} seeds: {difference['mean']:+.2f} "
            + ("(one pair has no error)." if error is None else f"+- {error:.2f} (standard error)."),
        ]
    return "\n".join(lines) + "\n"


def _cell(values: list[float]) -> str:
    if not values:
        return "not yet run"
    spread = f" +- {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{spread}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--table", action="store_true", help="only write the table of what is finished")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if not options.table:
        threads = max(1, (os.cpu_count() or 1) // options.jobs)
        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(lambda run: train(run[0], run[1], options.out, threads), runs()))
    table = collect(options.out)
    result = {"runs": table, "bicpdc_minus_vanilla": paired_difference(table)}
    for name, text in (("study.json", json.dumps(result, indent=1) + "\n"), ("study.md", as_markdown(table))):
        atomic_write(options.out / name, text.encode())
    print(as_markdown(table), end="")


if __name__ == "__main__":
    main()
