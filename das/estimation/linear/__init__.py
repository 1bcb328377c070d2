"""Best linear unbiased estimates on the tree, and their exact covariances."""
