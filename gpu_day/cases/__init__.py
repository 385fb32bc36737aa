"""What the GPU day runs in the environment under test."""
