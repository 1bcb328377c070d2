"""How wrong is this number? Intervals for any selection of any places, from the public files of a release."""
