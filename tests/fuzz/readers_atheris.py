"""Coverage-guided fuzzing of one format's readers with atheris (PyPI), beside the blind fuzz of this package.

    python -m tests.fuzz.readers_atheris mat -max_total_time=600        # or lst, json, toml, safetensors, pdn, npy ...

libFuzzer keeps what reaches new code and damages it further, in the format's own ways every second time.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from random import Random

import atheris

with atheris.instrument_imports(include=["pixeldiff"]):
    from tests.fuzz.corpus import formats

from pixeldiff.errors import UserError
from tests.fuzz.mutate import damage


def main() -> None:
    entry = formats()[sys.argv[1]]
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    seeds = folder / "seeds"
    seeds.mkdir()
    for index, content in enumerate(entry.seeds):
        (seeds / str(index)).write_bytes(content)
    for name, content in entry.companions.items():
        (folder / name).write_bytes(content)
    path = folder / entry.file

    def read(content: bytes) -> None:
        path.write_bytes(content)
        for reader in entry.readers:
            try:
                reader(path)
            except UserError:
                continue

    def mutate(content: bytes, most: int, seed: int) -> bytes:
        rng = Random(seed)
        if rng.random() < 0.5:
            return bytes(atheris.Mutate(content, most))
        return damage(content, rng, entry.aimed)[:most]

    options = ["-rss_limit_mb=2048", "-timeout=10", "-max_len=100000", *sys.argv[2:]]
    atheris.Setup([sys.argv[0], *options, str(seeds)], read, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
