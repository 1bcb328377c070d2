"""What a release promises: the plan given to the accountant, and the privacy statement."""
