"""Valid inference: methods that know the noise, for released numbers and, where a module says so, confidential data."""
