"""What Stable-Baselines3 needs to train on our environments."""
