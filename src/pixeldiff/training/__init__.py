"""From a recipe to weights: one loop, whatever the task."""
