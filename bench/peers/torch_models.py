"""The bundled models in PyTorch, their weights and data: as in examples/models and peer_step.cpp."""
import gzip

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(784, 1024)
        self.fc2 = nn.Linear(1024, 1024)
        self.fc3 = nn.Linear(1024, 10)

    def forward(self, x):
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x.flatten(1))))))


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


def set_weights(module):
    """Weights from a hash of the element's number, so that both sides start alike (see peer_step.cpp)."""
    counter = np.uint64(0)
    for parameter in module.parameters():
        n = parameter.numel()
        fan_in = parameter[0].numel() if parameter.dim() > 1 else n
        index = np.arange(n, dtype=np.uint64) + counter
        bits = (index * np.uint64(2654435761)) & np.uint64(0xFFFFFFFF)
        bits ^= bits >> np.uint64(15)
        bits = (bits * np.uint64(2246822519)) & np.uint64(0xFFFFFFFF)
        bits ^= bits >> np.uint64(13)
        values = (bits.astype(np.float64) / 2**32 - 0.5) * 2 / np.sqrt(fan_in)
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(values.astype(np.float32)).reshape(parameter.shape))
        counter += np.uint64(n)


def read_idx(path, header):
    with gzip.open(path) as file:
        return np.frombuffer(file.read(), np.uint8)[header:]
