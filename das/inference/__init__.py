"""What data users infer from a release: intervals for any number in it."""
