"""The stages of a run as Beam transforms: tabulate, measure or congenial, estimate, publish."""
