"""PyTorch's side of the bench on GPUs: the networks of networks.c with torch.compile, and Adam as Muster's. Answers the
requests that run.py writes (see main.c). Usage: rival_torch.py cuda|cpu"""
import functools
import json
import sys
import time

import torch
import torch.nn.functional as F

import data
from sizes import GPTS

CHECKED_STEPS, PLACE = 5, torch.device(sys.argv[1])


def cnn_loss(w, x, y):
    x = x.permute(0, 3, 1, 2)
    for i in range(2):
        x = F.max_pool2d(F.relu(F.conv2d(x, w[2 * i].permute(3, 2, 0, 1), w[2 * i + 1])), 2)
    x = F.relu(x.permute(0, 2, 3, 1).reshape(-1, 1600) @ w[4] + w[5])
    return F.cross_entropy(x @ w[6] + w[7], y, reduction="none")


def attention(size, x, w):
    q, k, v = (part.reshape(-1, size.length, size.heads, size.width // size.heads).transpose(1, 2)
               for part in (x @ w[0] + w[1]).chunk(3, -1))
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
    return mixed.reshape(-1, size.length, size.width) @ w[2] + w[3]


def gpt_loss(size, w, x, y):
    w = [weight.to(getattr(torch, size.dtype)) for weight in w]
    h = F.embedding(x, w[0]) + w[1]
    for i in range(size.layers):
        layer = w[2 + i * data.PER_LAYER:2 + (i + 1) * data.PER_LAYER]
        h = h + attention(size, F.layer_norm(h, (size.width,), layer[0], layer[1]), layer[2:])
        inner = F.layer_norm(h, (size.width,), layer[6], layer[7]) @ layer[8] + layer[9]
        h = h + F.gelu(inner, approximate="tanh") @ layer[10] + layer[11]
    logits = F.layer_norm(h, (size.width,), w[-2], w[-1]).reshape(-1, size.width) @ w[0].T
    return F.cross_entropy(logits.float(), y.reshape(-1), reduction="none").reshape(-1, size.length).mean(1)


class Training:
    def __init__(self, name):
        self.loss = cnn_loss if name == "cnn" else functools.partial(gpt_loss, GPTS[name])
        self.weights = [torch.tensor(w, device=PLACE, requires_grad=True) for w in data.weights(name)]
        x, y = data.batch(name)
        self.x, self.y = torch.tensor(x, device=PLACE), torch.tensor(y, device=PLACE).long()
        self.optimizer = torch.optim.Adam(self.weights, 1e-3, eps=1e-7, fused=PLACE.type == "cuda")
        self.forward = torch.compile(lambda x, y: self.loss(self.weights, x, y).mean())

    def run(self):
        loss = self.forward(self.x, self.y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss


def wait():
    if PLACE.type == "cuda":
        torch.cuda.synchronize()


def measure(run, times):
    run()
    wait()
    begin, used = time.perf_counter(), time.process_time()
    for _ in range(times):
        run()
    wait()
    return {"wall": (time.perf_counter() - begin) / times, "processor": (time.process_time() - used) / times}


@functools.cache
def training(name):
    return Training(name)


for line in sys.stdin:
    what, name, times = line.split()
    answer = {"losses": [float(training(name).run().detach()) for _ in range(CHECKED_STEPS)]} if what == "check" \
        else measure(training(name).run, int(times))
    print(json.dumps(answer), flush=True)
