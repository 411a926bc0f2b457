"""One thread per test process: two threads on a busy core are many times slower than one."""

import torch

torch.set_num_threads(1)
