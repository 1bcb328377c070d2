"""How accurate a release is: measures of error, a release against the truth, and repetitions of a plan."""
