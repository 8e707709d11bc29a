# PyTorch's part in the training bench: the same model, Adam as Keras has it, eager or compiled, in one process or two.
# Weights come in Keras's layouts and are turned into PyTorch's. Under channels_last the flatten reads NHWC as Keras
# does; otherwise the dense kernel's rows are put in NCHW order once, so that no setting pays for a transposition.
# How it is timed and what a setting's options mean to others lies in rival_common.py.
import functools
import math
import os
import socket

import models
import rival_common as common

arguments = common.enter("pytorch")
options = arguments.options


def split_into_ranks():
    """Under DDP, forks one process per core before PyTorch is loaded; returns the process's rank and their number."""
    if not options.get("ddp"):
        return 0, 1
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    cores = common.choose_cores(arguments.threads)
    rank = next((r for r in range(1, len(cores)) if os.fork() == 0), 0)
    os.sched_setaffinity(0, [cores[rank]])
    os.environ |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    return rank, len(cores)


rank, ranks = split_into_ranks()

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

FORMAT = torch.channels_last if options.get("channels_last") else torch.contiguous_format


def pool(kind, x):
    if not options.get("pool_slices"):
        return F.max_pool2d(x, 2) if kind == "max_pool" else F.avg_pool2d(x, 2)
    quarters = [x[:, :, i, j] for i, j in common.strided_quarters(*x.shape[2:])]
    if kind == "max_pool":
        return functools.reduce(torch.maximum, quarters)
    return sum(quarters) / len(quarters)


def module_of(placed):
    """None for layers without weights."""
    layer = placed.layer
    if layer.kind == "conv":
        return torch.nn.Conv2d(placed.before[2], layer.units, layer.size, padding=layer.padding, bias=layer.bias)
    if layer.kind == "dense":
        return torch.nn.Linear(placed.before[0], layer.units)
    if layer.kind == "norm":
        return torch.nn.BatchNorm2d(placed.before[2], common.NORM_EPSILON, 1 - common.NORM_MOMENTUM)
    return None


def in_order_of_torch(kernel, shape):
    """A convolution's kernel, or a dense one, whose rows follow the order in which `shape` is flattened."""
    if kernel.dim() == 4:
        return kernel.permute(3, 2, 0, 1)
    if shape is not None and FORMAT is torch.contiguous_format:
        kernel = kernel.reshape(*shape, -1).permute(2, 0, 1, 3).reshape(kernel.shape)
    return kernel.t()


class Net(torch.nn.Module):
    def __init__(self, weights):
        super().__init__()
        self.placed = models.place(arguments.model)
        self.parts = torch.nn.ModuleDict({each.name: module for each in self.placed if (module := module_of(each))})
        flattened = None
        for each in self.placed:
            if each.layer.kind == "flatten":
                flattened = each.before
            if each.name in self.parts:
                self.copy(self.parts[each.name], each, weights, flattened)
            if each.layer.kind == "dense":
                flattened = None

    def copy(self, module, each, weights, flattened):
        names = {"kernel": "weight", "bias": "bias", "gamma": "weight", "beta": "bias", "moving_mean": "running_mean",
                 "moving_variance": "running_var"}
        for name in each.weights | each.statistics:
            part = name.rpartition("/")[2]
            values = torch.from_numpy(weights[name])
            getattr(module, names[part]).data.copy_(in_order_of_torch(values, flattened) if part == "kernel" else values)

    def forward(self, images, labels):
        x = (images.float() / 255).unsqueeze(1).contiguous(memory_format=FORMAT)
        for each in self.placed:
            kind = each.layer.kind
            if each.name in self.parts:
                x = self.parts[each.name](x)
            elif kind.endswith("pool"):
                x = pool(kind, x)
            elif kind == "flatten":
                x = (x.permute(0, 2, 3, 1) if FORMAT is torch.channels_last else x).flatten(1)
            if each.layer.relu or kind == "relu":
                x = F.relu(x)
        return F.cross_entropy(x, labels)


class KerasAdam:
    """torch.optim.Adam with Keras's epsilon, which is outside the bias correction, so it is rescaled in each step."""

    def __init__(self, parameters):
        self.inner = torch.optim.Adam(parameters, common.LEARNING_RATE, (common.BETA_1, common.BETA_2),
                                      common.EPSILON, fused=options.get("fused_adam", False))
        self.n_steps = 0

    def step(self):
        self.n_steps += 1
        self.inner.param_groups[0]["eps"] = common.EPSILON / math.sqrt(1 - common.BETA_2 ** self.n_steps)
        self.inner.step()


def make_train_on():
    model = Net(common.read_weights(arguments.weights, arguments.model)).to(memory_format=FORMAT)
    if options.get("ddp"):
        model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True)
    optimizer = KerasAdam(model.parameters())
    forward = torch.compile(model) if options.get("compile") else model

    def train_on(images, labels):
        optimizer.inner.zero_grad(set_to_none=not options.get("ddp"))
        loss = forward(torch.from_numpy(images), torch.from_numpy(labels).long())
        loss.backward()
        optimizer.step()
        return loss.detach()

    return train_on


def gather(result):
    """Rank 0's report, with the mean loss and the memory of all ranks together."""
    sums = torch.tensor(result["losses"] + [result["rss_mib"]], dtype=torch.float64)
    torch.distributed.all_reduce(sums)
    result["losses"] = (sums[:-1] / ranks).tolist()
    result["rss_mib"] = round(sums[-1].item(), 1)


def main():
    torch.set_num_threads(1 if options.get("ddp") else arguments.threads)
    if options.get("ddp"):
        torch.distributed.init_process_group("gloo", rank=rank, world_size=ranks)
    result = common.measure(arguments, make_train_on(), common.Batches(rank, ranks))
    if options.get("ddp"):
        gather(result)
        torch.distributed.destroy_process_group()
    if rank == 0:
        common.report(result)


main()
