"""Training of networks: the loop, where its pairs come from, and how a network is judged."""
