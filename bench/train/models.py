# The models of the training benchmark: the README's CNN and similar networks, as lists of layers, with the names and
# shapes of their weights and the FLOP per image. The other frameworks build their models from this file; train.c has
# the same models. Uses only the standard library, because the runner reads this file, too.
import dataclasses

IMAGE = (28, 28, 1)
CNN = "cnn"


@dataclasses.dataclass(frozen=True)
class Layer:
    """`units` are filters or units, `size` is a convolution's side; a pool takes 2 x 2 windows, stride 2."""
    kind: str  # conv, norm, relu, max_pool, average_pool, flatten, dense
    units: int = 0
    size: int = 0
    padding: str = "valid"
    relu: bool = False
    bias: bool = True


def conv(units, size, **options):
    return Layer("conv", units, size, **{"relu": True} | options)


def normalised_conv(units, size):
    """Without a bias before a normalisation, which would subtract it again."""
    return [conv(units, size, relu=False, bias=False), Layer("norm"), Layer("relu")]


HEAD = [Layer("flatten"), Layer("dense", 128, relu=True), Layer("dense", 10)]
MAX, AVERAGE = Layer("max_pool"), Layer("average_pool")
MODELS = {
    CNN: [conv(32, 3), MAX, conv(64, 3), MAX, *HEAD],
    "kernels_5x5": [conv(32, 5), MAX, conv(64, 5), MAX, *HEAD],
    "average_pool": [conv(32, 3), AVERAGE, conv(64, 3), AVERAGE, *HEAD],
    "batch_norm": [*normalised_conv(32, 3), MAX, *normalised_conv(64, 3), MAX, *HEAD],
    "vgg": [conv(32, 3, padding="same"), conv(32, 3, padding="same"), MAX,
            conv(64, 3, padding="same"), conv(64, 3, padding="same"), MAX, *HEAD],
}
TITLES = {CNN: "the CNN", "kernels_5x5": "5×5 kernels", "average_pool": "average pools", "batch_norm": "batch normalisation",
          "vgg": "two convolutions before each pool"}
KERAS_NAMES = {"conv": "conv2d", "norm": "batch_normalization", "dense": "dense"}


@dataclasses.dataclass(frozen=True)
class Placed:
    """A layer in its model: its name as Keras numbers it, its input and output shapes, its weights."""
    layer: Layer
    name: str
    before: tuple
    after: tuple
    weights: dict  # name -> shape
    statistics: dict  # of weights that no gradient moves


def shape_after(layer, shape):
    if layer.kind == "conv":
        cut = 0 if layer.padding == "same" else layer.size - 1
        return shape[0] - cut, shape[1] - cut, layer.units
    if layer.kind.endswith("pool"):
        return shape[0] // 2, shape[1] // 2, shape[2]
    if layer.kind == "flatten":
        return (shape[0] * shape[1] * shape[2],)
    return (layer.units,) if layer.kind == "dense" else shape


def place(model):
    """The layers of a model, in order."""
    shape, seen, placed = IMAGE, {}, []
    for layer in MODELS[model]:
        number = seen[layer.kind] = seen.get(layer.kind, -1) + 1
        name = KERAS_NAMES.get(layer.kind, layer.kind) + (f"_{number}" if number else "")
        weights, statistics = {}, {}
        if layer.kind in ("conv", "dense"):
            sides = (layer.size, layer.size) if layer.kind == "conv" else ()
            weights[f"{name}/kernel"] = (*sides, shape[-1], layer.units)
            if layer.bias:
                weights[f"{name}/bias"] = (layer.units,)
        elif layer.kind == "norm":
            weights = {f"{name}/gamma": shape[-1:], f"{name}/beta": shape[-1:]}
            statistics = {f"{name}/moving_mean": shape[-1:], f"{name}/moving_variance": shape[-1:]}
        after = shape_after(layer, shape)
        placed.append(Placed(layer, name, shape, after, weights, statistics))
        shape = after
    return placed


def shapes(model):
    """The shapes of all weights, trainable and not, in Keras's order."""
    return {name: shape for each in place(model) for name, shape in (each.weights | each.statistics).items()}


def trainable(model):
    return [name for each in place(model) for name in each.weights]


# A multiply-add counts as two operations. The gradient of the weights costs as much as the forward pass, and so does
# the gradient of the activations, which the first layer does not need.
def forward_flop(each, positions=None):
    height, width = each.after[:2] if each.layer.kind == "conv" else (1, 1)
    area = each.layer.size ** 2 if each.layer.kind == "conv" else 1
    return 2 * (positions or height * width) * each.layer.units * area * each.before[-1]


def flop(model):
    """FLOP per image that the layers nominally need, and at most those that are left where a gradient is known to be zero:
    a maximum pool passes the gradient of one element of each window, so three in four of a pooled convolution's are zero."""
    placed, nominal, executed = place(model), 0, 0
    for i, each in enumerate(placed):
        if each.layer.kind not in ("conv", "dense"):
            continue
        forward, passes = forward_flop(each), 1 if i == 0 else 2
        pooled = i + 1 < len(placed) and placed[i + 1].layer.kind == "max_pool"
        height, width = placed[i + 1].after[:2] if pooled else (0, 0)
        nominal += forward * (1 + passes)
        executed += forward + passes * (forward_flop(each, height * width) if pooled else forward)
    return nominal, executed
