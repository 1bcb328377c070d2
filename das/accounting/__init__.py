"""What a release promises, given what it makes public."""
