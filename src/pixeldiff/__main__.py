"""`python -m pixeldiff`, also for torchrun."""

from pixeldiff.cli import main

if __name__ == "__main__":
    main()
