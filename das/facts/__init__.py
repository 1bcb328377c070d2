"""Public facts that estimation uses beside the measurements: collect them, check them, and write them."""
